package gitsync_test

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Objects that a commit may not write beside the Deployment and its plan. They are its
// ReplicaSets, the records of its revisions, and the plan made again in the middle of a
// release. Each would take the release past its gate.
func TestCommitsRoundTheGate(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v1"), "deploy/release.yaml": planOf("web", "1", "100%")}))
	s.isAt("web", "ReleaseCompleted", 1)
	r := s.recordSizes("v2")
	s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v2")})
	s.isAt("web", "WaitingForApproval", 0)

	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(t.Context(), &sets, client.InNamespace(s.ns)))
	for i := range sets.Items {
		rs := &sets.Items[i]
		none := int32(0)
		if strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":v2") {
			none = 4
		}
		in := &appsv1.ReplicaSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ReplicaSet"}, ObjectMeta: metav1.ObjectMeta{Name: rs.Name}, Spec: rs.Spec}
		in.Spec.Replicas = &none
		s.isRefused(in, "labels[pod-template-hash]: only a controller of Kubernetes sets it")
		delete(in.Spec.Template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		s.isRefused(in, "it is controlled by Deployment web")
	}

	var records appsv1.ControllerRevisionList
	s.must(s.c.Client.List(t.Context(), &records, client.InNamespace(s.ns), client.MatchingLabels{plan.LabelManagedBy: plan.ManagedBy}))
	if len(records.Items) == 0 {
		t.Fatal("nothing is on record")
	}
	for i := range records.Items {
		record := &records.Items[i]
		record.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "ControllerRevision"}
		record.ObjectMeta = metav1.ObjectMeta{Name: record.Name, Labels: record.Labels, Annotations: map[string]string{v1alpha1.AnnotationForce: "true"}}
		record.Data.Raw = []byte(strings.ReplaceAll(string(record.Data.Raw), ":v1", ":v2"))
		s.isRefused(record, "a ControllerRevision is the record of a controller")
	}

	// With an owner that is gone, the garbage collector would delete it.
	const owner = "ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: nope, uid: 11111111-1111-1111-1111-111111111111}]"
	plain, governed := planOf("web", "1", "100%"), sizedWeb(4, "v2")
	for reason, files := range map[string]map[string]string{
		"InvalidPlan":     {"deploy/release.yaml": strings.Replace(plain, "{name: web}", "{name: web, "+owner+"}", 1)},
		"InvalidManifest": {"deploy/web.yaml": strings.Replace(governed, "metadata:\n  name: web", "metadata:\n  name: web\n  "+owner, 1)},
	} {
		if message := s.refused(s.push(files), reason); !strings.Contains(message, "metadata.ownerReferences") {
			t.Errorf("%s: %s", reason, message)
		}
		s.applied(s.push(map[string]string{"deploy/release.yaml": plain, "deploy/web.yaml": governed}))
	}
	namespace := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	namespace.OwnerReferences = []metav1.OwnerReference{{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "gone", UID: "11111111-1111-1111-1111-111111111111"}}
	s.isRefused(namespace, "metadata.ownerReferences")

	anew := strings.Replace(planOf("web", "1", "100%"), "metadata: {name: web}", "metadata: {name: web, annotations: {"+v1alpha1.AnnotationForce+": 'true'}}", 1)
	bad := s.push(map[string]string{
		"deploy/api.yaml":     strings.ReplaceAll(sizedWeb(1, "v1"), "web", "api"),
		"deploy/release.yaml": strings.Replace(anew, "workloadRef: {name: web}", "workloadRef: {name: api}", 1) + "---\n" + planOf("next", "1", "100%"),
	})
	if message := s.refused(bad, "DryRunFailed"); !strings.Contains(message, "a plan is not deleted") {
		t.Errorf("the plan made again: %s", message)
	}
	s.isAt("web", "WaitingForApproval", 0)
	r.atMost(1)
	var web appsv1.Deployment
	s.must(s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "web"}, &web))
	if web.Status.AvailableReplicas < 4 {
		t.Errorf("%d pods are available", web.Status.AvailableReplicas)
	}
}

// isRefused pushes an object that is refused, and takes it back.
func (s *env) isRefused(o client.Object, because string) {
	s.Helper()
	raw, err := json.Marshal(o)
	s.must(err)
	if message := s.refused(s.push(map[string]string{"deploy/object.yaml": string(raw)}), "InvalidManifest"); !strings.Contains(message, because) {
		s.Errorf("%s: %s", o.GetName(), message)
	}
	s.applied(s.push(map[string]string{"deploy/object.yaml": ""}))
}

// The API server creates an object with the deletionTimestamp of a server-side apply, and
// nothing would delete it.
func TestManifestThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	doomed := func(at string) map[string]string {
		text := strings.Replace(configMap("doomed", "one"), "name: doomed", "name: doomed, deletionTimestamp: "+at, 1)
		return map[string]string{"deploy/doomed.yaml": text}
	}
	refusedCommit := s.push(doomed("'2020-01-01T00:00:00Z'"))
	s.source()
	if message := s.refused(refusedCommit, "InvalidManifest"); !strings.Contains(message, "metadata.deletionTimestamp") {
		t.Error(message)
	}
	s.absent("doomed", &corev1.ConfigMap{})
	s.applied(s.push(doomed("null")))
	if at := get(s, "doomed", &corev1.ConfigMap{}).DeletionTimestamp; at != nil {
		t.Errorf("it is being deleted since %v", at)
	}
}
