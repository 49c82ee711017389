package gitsync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// another makes a second GitSource beside the env's.
func (s *env) another(name, path string, edit ...func(*v1alpha1.GitSource)) {
	s.Helper()
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns}, Spec: v1alpha1.GitSourceSpec{URL: s.repo.URL(), Path: path, Prune: true}}
	for _, e := range edit {
		e(gs)
	}
	s.must(s.c.Client.Create(s.Context(), gs))
	s.Cleanup(func() { s.end(name) })
}

func after(names ...string) func(*v1alpha1.GitSource) {
	return func(gs *v1alpha1.GitSource) {
		for _, name := range names {
			gs.Spec.DependsOn = append(gs.Spec.DependsOn, v1alpha1.NamespacedObjectReference{Name: name})
		}
	}
}

// ready waits for the Ready condition of a source, and returns its message.
func (s *env) ready(source string, status metav1.ConditionStatus, reason string) string {
	s.Helper()
	message := ""
	clustertest.Wait(s, fmt.Sprintf("Ready %s %s of %s", status, reason, source), func() error {
		gs := get(s, source, &v1alpha1.GitSource{})
		c := meta.FindStatusCondition(gs.Status.Conditions, "Ready")
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("%s", said(gs))
		}
		message = c.Message
		return nil
	})
	return message
}

// A commit is applied after the sources that it depends on have applied it, and
// not while they cannot.
func TestDependsOn(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "base/b.yaml": configMap("b", "one")})
	s.source(after("base"))
	if m := s.ready("shop", metav1.ConditionFalse, "DependencyNotReady"); !strings.Contains(m, "there is no GitSource "+s.ns+"/base") {
		t.Error(m)
	}
	err := s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "a"}, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Fatalf("applied before what it depends on: %v", err)
	}
	s.another("base", "base")
	s.ready("shop", metav1.ConditionTrue, "Applied")
	get(s, "a", &corev1.ConfigMap{})

	// A commit that the other one cannot apply.
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "two"), "base/b.yaml": "a: [\n"})
	clustertest.Wait(t, "the wait", func() error {
		if m := s.ready("shop", metav1.ConditionFalse, "DependencyNotReady"); !strings.Contains(m, "GitSource "+s.ns+"/base is not ready") {
			return errors.New(m)
		}
		return nil
	})
	isBehind(s, 1)
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "three")})
	isBehind(s, 2)
	last := s.push(map[string]string{"base/b.yaml": configMap("b", "two"), "deploy/a.yaml": configMap("a", "two")})
	s.applied(last)
	isBehind(s, 0)
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("a is %q", v)
	}
	// A commit that touches only the other source waits for none, nor does it end Ready.
	last = s.push(map[string]string{"base/b.yaml": "a: [\n"})
	s.applied(last)
	s.ready("base", metav1.ConditionFalse, "InvalidManifest")
	s.suspend("shop")
	last = s.push(map[string]string{"base/b.yaml": "b: [\n"})
	s.kubectl("patch", "gsrc/shop", "--type=merge", "-p", `{"spec":{"suspend":false}}`) // a whole sync
	s.applied(last)
}

// isBehind waits until the metric says how many commits are not applied.
func isBehind(s *env, commits float64) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("the metric to be %v", commits), func() error {
		if got := gauge(s, "tranche_source_commits_behind", "shop"); got != commits {
			return fmt.Errorf("it is %v", got)
		}
		return nil
	})
}

func TestDependenciesThatCannotBe(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "base/b.yaml": configMap("b", "one")})
	s.source(after("base"))
	s.another("base", "base", after("more"))
	s.another("more", "base", after("shop"))
	for _, name := range []string{"shop", "base", "more"} {
		gs := get(s, name, &v1alpha1.GitSource{})
		gs.Annotations = map[string]string{v1alpha1.AnnotationReconcile: "now"} // all are there by now
		s.write(gs)
	}
	m := s.ready("shop", metav1.ConditionFalse, "DependencyCycle")
	if want := "GitSources wait for each other: " + strings.Join([]string{s.ns + "/shop", s.ns + "/base", s.ns + "/more", s.ns + "/shop"}, " → "); !strings.Contains(m, want) {
		t.Errorf("%q is not in %q", want, m)
	}
	stalled := meta.FindStatusCondition(s.gs().Status.Conditions, "Stalled")
	if stalled == nil || stalled.Status != metav1.ConditionTrue {
		t.Errorf("%s", said(s.gs()))
	}
	s.end("base")
	s.another("base", "base", func(gs *v1alpha1.GitSource) {
		gs.Spec.DependsOn = []v1alpha1.NamespacedObjectReference{{Name: "secret", Namespace: "kube-system"}}
	})
	m = s.ready("base", metav1.ConditionFalse, "CrossNamespaceReference")
	if !strings.Contains(m, "spec.dependsOn[0].namespace") || !strings.Contains(m, "kube-system") {
		t.Error(m)
	}
}

// If the controller lets them, sources depend on those of other namespaces.
func TestDependsOnAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	base := s.at(s.c.Namespace(t))
	t.Cleanup(s.startManager(s.c.Config, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, NoRemoteBases: true, FileRoots: []string{os.TempDir()}})
	}, base.ns))
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "base/b.yaml": configMap("b", "one")})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.DependsOn = []v1alpha1.NamespacedObjectReference{{Name: "base", Namespace: base.ns}}
	})
	if m := s.ready("shop", metav1.ConditionFalse, "DependencyNotReady"); !strings.Contains(m, "there is no GitSource "+base.ns+"/base") {
		t.Error(m)
	}
	s.absent("a", &corev1.ConfigMap{})
	base.another("base", "base")
	s.ready("shop", metav1.ConditionTrue, "Applied")
	get(s, "a", &corev1.ConfigMap{})
	get(base, "b", &corev1.ConfigMap{})
}

// An object that has failed is reported, and the sources that wait for it go on
// waiting.
func TestFailedIsNotReady(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	job := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate}\nspec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: j, image: registry.example.org/j}]}}}\n"
	s.push(map[string]string{"deploy/job.yaml": job, "app/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Wait = true })
	s.another("app", "app", after("shop"))
	s.ready("shop", metav1.ConditionUnknown, "WaitingForReadiness")
	s.kubectl("patch", "job/migrate", "--subresource=status", "--type=merge", "-p",
		`{"status":{"startTime":"2026-01-01T00:00:00Z","conditions":[{"type":"FailureTarget","status":"True"},{"type":"Failed","status":"True"}]}}`)
	if m := s.stalled("HealthCheckFailed"); !strings.Contains(m, "Ready=False HealthCheckFailed: applied main@"+s.repo.Head()[:12]+", not ready: Job "+s.ns+"/migrate: Job Failed") {
		t.Error(m)
	}
	s.ready("app", metav1.ConditionFalse, "DependencyNotReady")
	s.absent("a", &corev1.ConfigMap{})
}

// kubectl wait returns when the branch is applied, and not before.
func TestKubectlWait(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	const wait, short, long = "--for=condition=Ready", "--timeout=1s", "--timeout=4m"
	s.push(map[string]string{"deploy/a.yaml": "a: [\n"})
	s.source()
	s.stalled("InvalidManifest")
	if out, err := s.c.Kubectl(t, "wait", "-n", s.ns, "gsrc/shop", wait, short); err == nil {
		t.Errorf("it waits for nothing: %s", out)
	}
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.kubectl("wait", "gsrc/shop", wait, long)
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
}

// With spec.wait, Ready is of what runs, and what waits for it waits for that.
func TestWaitForReadiness(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	claim := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: \"\", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan, "deploy/claim.yaml": claim, "app/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Wait = true })
	s.another("app", "app", after("shop"))
	m := s.ready("shop", metav1.ConditionUnknown, "WaitingForReadiness")
	if !strings.Contains(m, "PersistentVolumeClaim "+s.ns+"/data") {
		t.Error(m)
	}
	s.ready("app", metav1.ConditionFalse, "DependencyNotReady")
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.ns},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}},
			ClaimRef:               &corev1.ObjectReference{Namespace: s.ns, Name: "data"},
		},
	}
	s.must(s.c.Client.Create(t.Context(), volume))
	t.Cleanup(func() { s.must(s.c.Client.Delete(context.Background(), volume)) })
	s.applied(first)
	s.ready("app", metav1.ConditionTrue, "Applied")
	if d := s.deployment("web"); d.Status.AvailableReplicas != 2 {
		t.Errorf("Ready before the pods are: %+v", d.Status)
	}

	// A release at its gate is not over.
	second := s.push(map[string]string{"deploy/web.yaml": web("v2")})
	m = s.ready("shop", metav1.ConditionUnknown, "WaitingForReadiness")
	if !strings.Contains(m, "BatchRelease "+s.ns+"/web") {
		t.Error(m)
	}
	clustertest.Wait(t, "the gate", func() error {
		if br := s.release("web"); br.Status.Reason != "WaitingForApproval" || br.Status.UpdateCommit != second {
			return fmt.Errorf("%+v", br.Status)
		}
		return nil
	})
	br := s.release("web")
	s.applied(s.push(map[string]string{"deploy/approvals/web.yaml": fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web}\nspec: {revision: %q, commit: %q, step: 0}\n", br.Status.UpdateRevision, second)}))
	if d := s.deployment("web"); d.Status.UpdatedReplicas != 2 || d.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:v2" {
		t.Errorf("Ready before the release is over: %+v", d.Status)
	}
}

// suspend suspends a source and waits until it is.
func (s *env) suspend(source string) {
	s.Helper()
	gs := get(s, source, &v1alpha1.GitSource{})
	gs.Spec.Suspend = true
	s.write(gs)
	clustertest.Wait(s, "the suspension of "+source, func() error {
		gs := get(s, source, &v1alpha1.GitSource{})
		if c := meta.FindStatusCondition(gs.Status.Conditions, "InSync"); c == nil || c.Reason != "Suspended" {
			return fmt.Errorf("%s", said(gs))
		}
		return nil
	})
}

// A push, or a branch that is set back, waits for a source of the same branch to go
// there first. That source writes the URL in another way.
func TestDependsOnTheSameBranch(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "base/b.yaml": configMap("b", "one")})
	s.another("base", "base", func(gs *v1alpha1.GitSource) { gs.Spec.URL += "/" })
	s.source(after("base"))
	s.applied(first)
	last := s.push(map[string]string{"deploy/a.yaml": configMap("a", "two"), "base/b.yaml": configMap("b", "two")})
	s.applied(last)
	s.isAppliedBy("base", last)
	s.suspend("base")
	s.repo.Git("push", "-q", "--force", "origin", first+":refs/heads/main")
	if m := s.ready("shop", metav1.ConditionFalse, "DependencyNotReady"); !strings.Contains(m, "base has not applied it yet") {
		t.Error(m)
	}
	s.repo.Git("push", "-q", "origin", last+":refs/heads/main")
	s.applied(last)
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "three")})
	if m := s.ready("shop", metav1.ConditionFalse, "DependencyNotReady"); !strings.Contains(m, "base has not applied it yet") {
		t.Error(m)
	}
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("a is %q", v)
	}
}

// An approval waits for no other source, also the first one, which brings the folder of approvals
// into that of the manifests.
func TestDependsOn_Approvals(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.push(map[string]string{
		"deploy/web.yaml": web("v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%"), "base/b.yaml": configMap("b", "one"),
	})
	s.another("base", "base")
	s.source(after("base"))
	s.isAt("web", "ReleaseCompleted", 2)
	second := s.push(map[string]string{"deploy/web.yaml": web("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	revision := s.release("web").Status.UpdateRevision
	s.suspend("base")
	for _, step := range []string{"0", "1"} {
		last := s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", revision, second, step)})
		s.applied(last)
	}
	s.isAt("web", "ReleaseCompleted", 2)
	// The two are gone again. A change beside them waits.
	s.repo.Git("rm", "-rq", "deploy/approvals")
	s.applied(s.push(map[string]string{"README.md": "no approvals"}))
	s.push(map[string]string{
		"deploy/approvals/web.yaml": approvalOf("web", revision, second, "2"), "deploy/a.yaml": configMap("a", "one"),
	})
	if m := s.ready("shop", metav1.ConditionFalse, "DependencyNotReady"); !strings.Contains(m, "base has not applied it yet") {
		t.Error(m)
	}
}

// A change of spec.path waits for others, too, though no commit is new.
func TestDependsOnWithAnotherPath(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "more/a.yaml": configMap("a", "two"), "base/b.yaml": "a: [\n"}))
	s.another("base", "base")
	s.ready("base", metav1.ConditionFalse, "InvalidManifest")
	gs := s.gs()
	gs.Spec.Path = "more"
	after("base")(gs)
	s.write(gs)
	s.ready("shop", metav1.ConditionFalse, "DependencyNotReady")
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
	s.push(map[string]string{"base/b.yaml": configMap("b", "one")})
	s.ready("shop", metav1.ConditionTrue, "Applied")
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("a is %q", v)
	}
}

// An object that was created again is not ready because the former one was.
func TestWaitForWhatWasMadeAnew(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Wait = true })
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1")}))
	s.push(map[string]string{"deploy/web.yaml": web("v1", "app: web", "app: web2", "labels: {app: web2, team: shop}", "annotations: {tranche.dev/force: 'true'}",
		"      containers:", "      nodeSelector: {is: nowhere}\n      containers:")})
	if m := s.ready("shop", metav1.ConditionUnknown, "WaitingForReadiness"); !strings.Contains(m, "Deployment "+s.ns+"/web") {
		t.Error(m)
	}
}

// A release that rollout has not begun is not over.
func TestWaitForAReleaseToBegin(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Wait = true })
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1")}))
	s.push(map[string]string{"deploy/web.yaml": web("v2"), "deploy/release.yaml": webPlan})
	if m := s.ready("shop", metav1.ConditionUnknown, "WaitingForReadiness"); !strings.Contains(m, "BatchRelease "+s.ns+"/web: no controller has written its status yet") {
		t.Error(m)
	}
}
