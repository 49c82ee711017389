package gitsync_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// firstObjects are of the kinds that come before others in the order of application. The
// policy of the tests refuses those with the label.
func firstObjects(label string) map[string]string {
	object := func(version, kind, rest string) string {
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: a-%s, labels: {%s: here}}\n%s",
			version, kind, strings.ToLower(kind), label, rest)
	}
	return map[string]string{
		"ServiceAccount": object("v1", "ServiceAccount", ""),
		"Role":           object("rbac.authorization.k8s.io/v1", "Role", "rules: []\n"),
		"ConfigMap":      object("v1", "ConfigMap", "data: {value: one}\n"),
		"Secret":         object("v1", "Secret", "stringData: {value: one}\n"),
		"Service":        object("v1", "Service", "spec: {ports: [{port: 80}], selector: {app: z}}\n"),
		"Deployment":     strings.Replace(strings.ReplaceAll(web("v1"), "web", "a-deployment"), "team: shop", label+": here", 1),
	}
}

func isReadyFalse(gs *v1alpha1.GitSource) string {
	c := meta.FindStatusCondition(gs.Status.Conditions, "Ready")
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "DryRunFailed" {
		return ""
	}
	return c.Message
}

// The object that is applied first is not tried in a first sync. If the API server refuses it,
// the cluster and the status are as after a dry run that fails. The next sync, which tries
// all objects, says the same.
func TestFirstObject_Refused(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.policyOn("*", "*", &corev1.ConfigMap{})
	bad, good := firstObjects("forbidden"), firstObjects("allowed")
	kinds := slices.Sorted(maps.Keys(bad))
	files := map[string]string{}
	for _, kind := range kinds {
		files[kind+"/a.yaml"] = bad[kind]
		files[kind+"/z.yaml"] = strings.ReplaceAll(web("v1"), "web", "z-"+strings.ToLower(kind))
	}
	s.push(files)
	for _, kind := range kinds {
		s.another(strings.ToLower(kind), kind)
	}
	before := map[string]v1alpha1.GitSourceStatus{}
	for _, kind := range kinds {
		before[kind] = firstRefused(s, kind)
	}
	for name := range s.found() {
		if strings.Contains(name, " a-") || strings.Contains(name, " z-") {
			t.Errorf("%s is there", name)
		}
	}
	for _, kind := range kinds {
		s.lookNow(strings.ToLower(kind))
		after := get(s, strings.ToLower(kind), &v1alpha1.GitSource{}).Status
		after.LastHandledReconcileAt = ""
		if diff := cmp.Diff(before[kind], after); diff != "" {
			t.Errorf("%s: a sync that tries all says otherwise:\n%s", kind, diff)
		}
		files[kind+"/a.yaml"] = good[kind]
	}
	tip := s.push(files)
	for _, kind := range kinds {
		s.isAppliedBy(strings.ToLower(kind), tip)
	}
}

// firstRefused waits until a source is refused for its first object, and returns its status.
func firstRefused(s *env, kind string) v1alpha1.GitSourceStatus {
	s.Helper()
	source := strings.ToLower(kind)
	message := s.ready(source, metav1.ConditionFalse, "DryRunFailed")
	want := kind + "/a.yaml: " + kind + " " + s.ns + "/a-" + source + ": "
	if !strings.HasPrefix(message, want) || !strings.Contains(message, "not in this shop") {
		s.Errorf("%s: the message is %q", kind, message)
	}
	is := get(s, source, &v1alpha1.GitSource{}).Status
	if is.Inventory != nil || is.Plans != nil || is.AppliedCommit != "" || is.AppliedWith != "" {
		s.Errorf("%s: the status is %+v", kind, is)
	}
	return is
}

// A commit of which the first object and another one are refused names both.
func TestFirstObject_AndAnotherRefused(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	tip := s.push(map[string]string{
		"deploy/a.yaml": strings.Replace(configMap("a", "one"), "kind: ConfigMap\n", "kind: ConfigMap\nimmutable: 5\n", 1),
		"deploy/b.yaml": strings.Replace(configMap("b", "one"), "kind: ConfigMap\n", "kind: ConfigMap\nimmutable: 5\n", 1),
	})
	s.source()
	message := s.refused(tip, "DryRunFailed")
	if a, b := strings.Index(message, "deploy/a.yaml: ConfigMap"), strings.Index(message, "deploy/b.yaml: ConfigMap"); a < 0 || b < a {
		t.Errorf("the message is %q", message)
	}
	if i := s.gs().Status.Inventory; i != nil {
		t.Errorf("the inventory is %+v", i)
	}
}

// An object that exists is not created: it is read and tried as any other one. The
// kube-apiserver judges, by what is in the cluster in the end.
func TestFirstObject_Exists(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	tip := s.push(map[string]string{
		"owner/a.yaml": configMap("owned", "one"),
		"owned/a.yaml": configMap("owned", "two"), "owned/b.yaml": configMap("b-owned", "two"),
		"alone/a.yaml": configMap("alone", "two"), "alone/b.yaml": configMap("b-alone", "two"),
		"hand/a.yaml": configMap("hand", "two"), "hand/b.yaml": configMap("b-hand", "two"),
	})
	s.another("owner", "owner")
	s.isAppliedBy("owner", tip)
	for name, value := range map[string]string{"alone": v1alpha1.AnnotationReconcileDisabled, "hand": "enabled"} {
		there := &corev1.ConfigMap{Data: map[string]string{"value": "one", "more": "kept"}}
		there.Name, there.Namespace, there.Annotations = name, s.ns, map[string]string{v1alpha1.AnnotationReconcile: value}
		s.must(s.c.Client.Create(t.Context(), there))
	}
	for _, name := range []string{"owned", "alone", "hand"} {
		s.another(name, name)
	}
	s.isAppliedBy("alone", tip)
	s.isAppliedBy("hand", tip)
	if m := s.ready("owned", metav1.ConditionFalse, "OwnedByOther"); !strings.Contains(m, "owned/a.yaml: ConfigMap "+s.ns+"/owned") {
		t.Errorf("the message is %q", m)
	}
	for name, want := range map[string]string{"owned": "one", "alone": "one", "hand": "two", "b-alone": "two", "b-hand": "two"} {
		if v := get(s, name, &corev1.ConfigMap{}).Data["value"]; v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	if hand := get(s, "hand", &corev1.ConfigMap{}); hand.Data["more"] != "kept" || hand.Labels[v1alpha1.LabelSource] != "hand" {
		t.Errorf("hand is %+v", hand)
	}
	if _, there := s.found()["ConfigMap b-owned"]; there || get(s, "owned", &v1alpha1.GitSource{}).Status.Inventory != nil {
		t.Error("something of a commit is applied that has an object of another source")
	}
	if notes := s.events("FieldConflict"); len(notes) != 1 || !strings.Contains(notes[0], "data.value") {
		t.Errorf("the events are %q", notes)
	}
}

// A controller that dies after each of its writes comes to the same end, also after the first
// object of a first sync was refused.
func TestFirstObject_RefusedAndKilled(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	s.policyOn("*", "*", &corev1.ConfigMap{})
	s.startMortals(gitsyncOnly)
	s.push(map[string]string{"deploy/a.yaml": firstObjects("forbidden")["ConfigMap"], "deploy/web.yaml": web("v1")})
	s.source()
	clustertest.Wait(s, "the refusal", func() error {
		if m := isReadyFalse(s.gs()); !strings.Contains(m, "deploy/a.yaml: ConfigMap "+s.ns+"/a-configmap") {
			return fmt.Errorf("%s", said(s.gs()))
		}
		return nil
	})
	for name := range s.found() {
		if name == "ConfigMap a-configmap" || name == "Deployment web" {
			t.Errorf("%s is there", name)
		}
	}
	s.applied(s.push(map[string]string{"deploy/a.yaml": firstObjects("allowed")["ConfigMap"]}))
	if got := inventory.Read(s.gs().Status.Inventory); len(got) != 2 {
		t.Errorf("the inventory is %v", got)
	}
	s.applied(s.push(map[string]string{"deploy/a.yaml": ""}))
	if _, there := s.found()["ConfigMap a-configmap"]; there {
		t.Error("a-configmap is not pruned")
	}
}

// A first sync of four objects takes eleven requests with the event, which the ledger leaves
// out. With a plan it takes 23, those of rollout included, and no second sync follows.
func TestFirstSync_Requests(t *testing.T) {
	s := newIdleEnv(t)
	requests := &ledger{}
	t.Cleanup(s.startControllerWith(requests.config(s.c.Controller), andRollout))
	objects := firstObjects("allowed")
	files := map[string]string{"warm/a.yaml": configMap("warm", "one")}
	for i, kind := range []string{"ServiceAccount", "ConfigMap", "Service", "Deployment"} {
		object := strings.Replace(objects[kind], "replicas: 2", "replicas: 0", 1)
		files[fmt.Sprintf("deploy/%d.yaml", i)] = object
		files[fmt.Sprintf("planned/%d.yaml", i)] = strings.ReplaceAll(object, "a-", "p-")
	}
	files["planned/plan.yaml"] = strings.ReplaceAll(webPlan, "web", "p-deployment")
	s.push(files)
	tip := s.repo.Head()
	s.another("warm", "warm", func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = time.Hour })
	s.isAppliedBy("warm", tip)
	_, n := requests.since(0)
	s.source()
	s.applied(tip)
	got, n := requests.since(n)
	want := map[string]int{
		"PATCH gitsources/shop": 1, "PUT gitsources/shop/status": 2,
		"PATCH serviceaccounts/a-serviceaccount": 1, "PATCH configmaps/a-configmap": 1, "PATCH services/a-service": 1,
		"PATCH deployments/a-deployment": 1, dry + "PATCH configmaps/a-configmap": 1, dry + "PATCH services/a-service": 1,
		dry + "PATCH deployments/a-deployment": 1,
	}
	if diff := cmp.Diff(want, countedIn(got, "/a-", "/shop")); diff != "" {
		t.Errorf("%s\n%s", diff, strings.Join(got, "\n"))
	}
	s.another("planned", "planned", func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = time.Hour })
	s.isAppliedBy("planned", tip)
	clustertest.Wait(s, "the plan's status", func() error {
		if br := s.release("p-deployment"); br.Status.ObservedGeneration != br.Generation || br.Status.Phase != v1alpha1.PhaseCompleted {
			return fmt.Errorf("%+v", br.Status)
		}
		return nil
	})
	s.passes(func() { s.push(map[string]string{"README.md": "docs\n"}) }, "planned") // after what else was requested
	got, _ = requests.since(n)
	total := 0
	for _, count := range countedIn(got, "p-deployment", "/p-", "/planned", "controllerrevisions") {
		total += count
	}
	const most = 25 // two of them repeated
	if total > most || len(got) > 2*most {
		t.Errorf("with a plan: %d requests, at most %d\n%s", total, most, strings.Join(got, "\n"))
	}
}

// countedIn counts the requests about what some texts name, without the namespace in their paths.
func countedIn(requests []string, about ...string) map[string]int {
	counted := map[string]int{}
	for _, r := range requests {
		method, path, _ := strings.Cut(r, " ")
		if _, after, ok := strings.Cut(path, "/namespaces/"); ok {
			_, path, _ = strings.Cut(after, "/")
		}
		if slices.ContainsFunc(about, func(a string) bool { return strings.Contains("/"+path, a) }) {
			counted[method+" "+path]++
		}
	}
	return counted
}
