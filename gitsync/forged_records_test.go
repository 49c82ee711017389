package gitsync_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/records"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// editor lets eve write the workloads of the namespace, and no ControllerRevision.
func editor(s *env) {
	s.Helper()
	s.kubectl("create", "role", "eve", "--verb=*", "--resource=deployments.apps,statefulsets.apps")
	s.kubectl("create", "rolebinding", "eve", "--role=eve", "--user=eve")
	clustertest.Wait(s, "the rights of eve", func() error {
		out, err := s.c.Kubectl(s, "auth", "can-i", "-n", s.ns, "--as=eve", "create", "statefulsets.apps")
		if err != nil {
			return errors.New(out)
		}
		return nil
	})
	if out, err := s.c.Kubectl(s, "auth", "can-i", "-n", s.ns, "--as=eve", "create", "controllerrevisions.apps"); err == nil {
		s.Fatalf("eve may create ControllerRevisions: %s", out)
	}
}

// statefulSet has eve make a StatefulSet without pods. The function that it returns gives the
// ControllerRevision that the native controller makes of it.
func statefulSet(s *env, name string, template *corev1.PodTemplateSpec, annotations map[string]string) func() *appsv1.ControllerRevision {
	s.Helper()
	manifest, err := json.Marshal(&appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32(0)), RevisionHistoryLimit: new(int32(0)), Template: *template,
			Selector: &metav1.LabelSelector{MatchLabels: template.Labels}},
	})
	s.must(err)
	s.with(string(manifest), "--as=eve", "create", "-f", "-")
	return func() (made *appsv1.ControllerRevision) {
		s.Helper()
		clustertest.Wait(s, "the revision of StatefulSet "+name, func() error {
			var list appsv1.ControllerRevisionList
			s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
			for i := range list.Items {
				if owner := metav1.GetControllerOf(&list.Items[i]); owner != nil && owner.Kind == "StatefulSet" && owner.Name == name {
					made = &list.Items[i]
					return nil
				}
			}
			return errors.New("there is none")
		})
		return made
	}
}

// labelledWeb is a Deployment whose template a record of Tranche could have.
func labelledWeb(image string) (manifest string, template *corev1.PodTemplateSpec) {
	manifest = web(image, "      labels: {app: web}", "      labels: {app: web, app.kubernetes.io/managed-by: tranche}")
	var d appsv1.Deployment
	if err := yaml.Unmarshal([]byte(manifest), &d); err != nil {
		panic(err)
	}
	return manifest, &d.Spec.Template
}

// A user without a right to ControllerRevisions has the native controller make one. It looks like
// the record of a revision before, and has no owner. A commit of that template is a release, and
// no rollback: there is no approval.
func TestForgedRecord(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	editor(s)
	v1, _ := labelledWeb("v1")
	v2, template := labelledWeb("v2")
	probe, err := plan.ReadRecord(statefulSet(s, "probe", template, nil)())
	s.must(err)
	name := "web-5584f4c7df-" + plan.TemplateDigest(probe.Template)[:10]
	statefulSet(s, name, template, map[string]string{
		"tranche.dev/revision": "5584f4c7df", "tranche.dev/sent": plan.TemplateDigest(template),
		"tranche.dev/strategy": `{"type":"RollingUpdate"}`,
	})()
	s.kubectl("--as=eve", "delete", "statefulset/probe")
	s.kubectl("--as=eve", "delete", "statefulset/"+name, "--cascade=orphan")
	clustertest.Wait(t, "the orphan", func() error {
		var list appsv1.ControllerRevisionList
		s.must(s.c.Client.List(t.Context(), &list, client.InNamespace(s.ns)))
		if len(list.Items) != 1 || len(list.Items[0].OwnerReferences) > 0 {
			return fmt.Errorf("%d ControllerRevisions", len(list.Items))
		}
		return nil
	})
	s.applied2(s.push(map[string]string{"deploy/web.yaml": v1, "deploy/plan.yaml": webPlan}))
	s.isAt("web", "ReleaseCompleted", 1)
	s.push(map[string]string{"deploy/web.yaml": v2})
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	if n := podsOf(s, "v2"); n != 1 {
		t.Errorf("%d pods of v2", n)
	}
}

// podsOf returns how many pods of an image the ReplicaSets are to have.
func podsOf(s *env, tag string) (n int32) {
	s.Helper()
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
	for i := range sets.Items {
		if strings.HasSuffix(sets.Items[i].Spec.Template.Spec.Containers[0].Image, ":"+tag) {
			n += *sets.Items[i].Spec.Replicas
		}
	}
	return n
}

// The same with what a failed release leaves, for a Deployment of the same name as the StatefulSet.
// It neither names the release by another commit, nor stops the source.
func TestForgedFailure(t *testing.T) {
	t.Parallel()
	manifest, template := labelledWeb("v2")
	for name, failed := range map[string]string{
		"another commit": `{"commit":"badbadbadbadbadbadbadbadbadbadbadbadbad0","digest":"` + plan.TemplateDigest(template) + `","revision":"x"}`,
		"not JSON":       "{",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, andRollout)
			editor(s)
			statefulSet(s, "web", template, map[string]string{"tranche.dev/failed": failed})()
			tip := s.push(map[string]string{"deploy/web.yaml": manifest, "deploy/plan.yaml": webPlan})
			s.applied2(tip)
			if br := s.release("web"); br.Spec.Commit != tip {
				t.Errorf("the release has commit %s, and %s is the tip", br.Spec.Commit, tip)
			}
		})
	}
}

// StatefulSets that select all records of Tranche adopt none, and so delete none. A Deployment that
// is deleted at a gate comes back at its stable revision.
func TestRecordsAreNotAdopted(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	editor(s)
	s.beginRelease()
	s.isAt("web", "WaitingForApproval", 0)
	labels := map[string]string{plan.LabelManagedBy: plan.ManagedBy}
	template := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "x"}}}}
	statefulSet(s, "eater", template, nil)()
	for _, cascade := range []string{"orphan", "background", "orphan"} {
		before := s.deployment("web")
		s.kubectl("--as=eve", "delete", "deployment/web", "--wait=false", "--cascade="+cascade)
		clustertest.Wait(t, "the Deployment to come back", func() error {
			s.kubectl("--as=eve", "annotate", "statefulset/eater", "again="+string(before.UID), "--overwrite") // it syncs
			var d appsv1.Deployment
			if err := s.c.Client.Get(t.Context(), client.ObjectKeyFromObject(before), &d); err != nil {
				return err
			}
			if d.UID == before.UID || d.Status.ObservedGeneration == 0 {
				return errors.New("it has not")
			}
			return nil
		})
		s.isAt("web", "WaitingForApproval", 0)
		if n := podsOf(s, "v2"); n != 1 {
			t.Errorf("%s: %d pods of v2", cascade, n)
		}
	}
	var list appsv1.ControllerRevisionList
	s.must(s.c.Client.List(t.Context(), &list, client.InNamespace(s.ns), client.MatchingLabelsSelector{Selector: records.Selector}))
	for i := range list.Items {
		if owner := metav1.GetControllerOf(&list.Items[i]); owner == nil || owner.Kind != "BatchRelease" {
			t.Errorf("ControllerRevision %s: owners %v", list.Items[i].Name, list.Items[i].OwnerReferences)
		}
	}
}

// A user who may patch the Deployment names gitsync as the manager of the label of a hold. The hold
// stays, and git revert rolls back.
func TestForgedManagerOfTheHold(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	editor(s)
	s.beginRelease()
	s.isAt("web", "WaitingForApproval", 0)
	s.kubectl("--as=eve", "patch", "deployment/web", "--type=merge", "-p", `{"metadata":{"managedFields":[{"manager":"tranche-gitsync",`+
		`"operation":"Apply","apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:tranche.dev/held":{},`+
		`"f:app":{}}},"f:spec":{"f:paused":{},"f:strategy":{"f:type":{}},"f:replicas":{},"f:selector":{}}}}]}}`)
	s.lookNow()
	if d := s.deployment("web"); !v1alpha1.HasHeld(d.Labels) || !d.Spec.Paused {
		t.Errorf("the hold is gone: %v, paused=%t", d.Labels, d.Spec.Paused)
	}
	s.repo.Git("revert", "--no-edit", "HEAD")
	s.repo.Push()
	s.lookNow()
	s.isAt("web", "ReleaseCompleted", 1)
	if n := podsOf(s, "v2"); n != 0 {
		t.Errorf("%d pods of v2", n)
	}
}

// Another hand makes the Deployment right before gitsync does. Its version is stable, and the one
// of the branch waits at its gate.
func TestFirstInstall_Forestalled(t *testing.T) {
	t.Parallel()
	var made atomic.Bool
	s, _ := envBetween(t, func(s *env, next http.RoundTripper, r *http.Request) (*http.Response, error) {
		writes := r.Method == http.MethodPatch && !r.URL.Query().Has("dryRun")
		if writes && strings.HasSuffix(r.URL.Path, "/deployments/web") && made.CompareAndSwap(false, true) {
			s.with(web("v0"), "create", "-f", "-")
			s.kubectl("rollout", "status", "deployment/web")
		}
		return next.RoundTrip(r)
	})
	s.applied2(s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/plan.yaml": webPlan}))
	s.isAt("web", "WaitingForApproval", 0)
	if n := podsOf(s, "v1"); n != 1 {
		t.Errorf("%d pods of v1", n)
	}
}
