package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/controller"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// asTranche in the environment makes the test binary the program itself, which
// tests can then run in a terminal, and see the exit code of.
const asTranche = "TRANCHE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asTranche) != "" || len(os.Args) > 1 && os.Args[1] == controller.RenderWorker {
		main()
		return
	}
	os.Exit(clustertest.Main(m))
}

// env is a namespace that follows a bare repository, and a clone of that.
type env struct {
	testing.TB
	c           *clustertest.Cluster
	ns          string
	bare, clone string
	w           *clustertest.Watcher
}

// newEnv lets a namespace follow the path of a repository that holds an example. The
// controller is the one of [controlledEnv].
func newEnv(t testing.TB, example, path string) *env {
	t.Helper()
	s := controlledEnv(t, example)
	s.follow("source", path)
	return s
}

// controlledEnv makes a namespace, and a repository that holds an example, for a test
// that runs beside others: one controller works for all of them.
func controlledEnv(t testing.TB, example string) *env {
	t.Helper()
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
	s := envOf(t, example)
	s.share()
	return s
}

// follow makes a GitSource of the repository.
func (s *env) follow(name, path string, edit ...func(*v1alpha1.GitSource)) {
	s.Helper()
	gs := &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns},
		Spec:       v1alpha1.GitSourceSpec{URL: "file://" + s.bare, Path: path, Prune: true},
	}
	for _, e := range edit {
		e(gs)
	}
	s.must(s.c.Client.Create(s.Context(), gs))
}

// envOf makes a namespace, and a repository that holds an example.
func envOf(t testing.TB, example string) *env {
	t.Helper()
	return envIn(t, clustertest.Shared(t), example)
}

// envIn does so in a cluster.
func envIn(t testing.TB, c *clustertest.Cluster, example string) *env {
	t.Helper()
	s := &env{TB: t, c: c, ns: c.Namespace(t)}
	s.w = c.Watch(t, s.ns)
	s.repository(example)
	return s
}

// repository makes a bare repository with an example, and a clone.
func (s *env) repository(example string) {
	s.Helper()
	dir := s.TempDir()
	s.bare, s.clone = filepath.Join(dir, "bare.git"), filepath.Join(dir, "clone")
	s.run(dir, "git", "init", "--quiet", "--bare", "--initial-branch=main", s.bare)
	s.run(dir, "git", "clone", "--quiet", s.bare, s.clone)
	s.run(s.clone, "git", "checkout", "--quiet", "-b", "main")
	s.must(os.CopyFS(s.clone, os.DirFS(filepath.Join("../../examples", example))))
	s.push("first commit")
}

func (s *env) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *env) run(dir, program string, args ...string) string {
	s.Helper()
	return clitest.Run(s, dir, program, args...)
}

// push commits everything and returns the commit.
func (s *env) push(message string) string {
	s.Helper()
	s.run(s.clone, "git", "add", ".")
	s.run(s.clone, "git", "commit", "--quiet", "-m", message)
	s.run(s.clone, "git", "push", "--quiet", "origin", "main")
	return s.run(s.clone, "git", "rev-parse", "HEAD")
}

// replace changes a file of the clone.
func (s *env) replace(file, from, to string) {
	s.Helper()
	clitest.Clone{TB: s, Dir: s.clone}.Replace(file, from, to)
}

func (s *env) write(file, text string) {
	s.Helper()
	clitest.Clone{TB: s, Dir: s.clone}.Write(file, text)
}

// approve commits an approval of a step of the release under way.
func (s *env) approve(dir, name string, step int) {
	s.Helper()
	br := s.release(name)
	s.write(filepath.Join(dir, "approvals", name+".yaml"), fmt.Sprintf(`apiVersion: tranche.dev/v1alpha1
kind: BatchApproval
metadata: {name: %s, namespace: %s}
spec: {revision: "%s", commit: "%.7s", step: %d}
`, name, s.ns, br.Status.UpdateRevision, br.Spec.Commit, step))
	s.push(fmt.Sprintf("approve step %d of %s", step, name))
}

func (s *env) release(name string) *v1alpha1.BatchRelease {
	s.Helper()
	var br v1alpha1.BatchRelease
	s.must(client.IgnoreNotFound(s.c.Client.Get(s.Context(), types.NamespacedName{Namespace: s.ns, Name: name}, &br)))
	return &br
}

func (s *env) source() *v1alpha1.GitSource {
	s.Helper()
	var gs v1alpha1.GitSource
	s.must(s.c.Client.Get(s.Context(), types.NamespacedName{Namespace: s.ns, Name: "source"}, &gs))
	return &gs
}

// ready is the source's condition of that name.
func (s *env) ready() *metav1.Condition {
	s.Helper()
	return meta.FindStatusCondition(s.source().Status.Conditions, "Ready")
}

// pods returns how many pods the ReplicaSets of a Deployment have, by tag.
func (s *env) pods(deployment string) map[string]int32 {
	s.Helper()
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
	pods := map[string]int32{}
	for _, rs := range sets.Items {
		if owner := metav1.GetControllerOf(&rs); owner != nil && owner.Name == deployment && rs.Status.Replicas > 0 {
			image := rs.Spec.Template.Spec.Containers[0].Image
			pods[image[strings.LastIndex(image, ":")+1:]] += rs.Status.Replicas
		}
	}
	return pods
}

// waitFor waits until a release has a reason, with these pods, by tag.
func (s *env) waitFor(name, reason string, step int32, pods map[string]int32) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%s of %s at step %d", reason, name, step), func() error {
		br, got := s.release(name), s.pods(name)
		at := br.Status
		if at.ObservedGeneration != br.Generation {
			return fmt.Errorf("the status is about generation %d, not %d", at.ObservedGeneration, br.Generation)
		}
		if at.Reason != reason || at.CurrentStepIndex != step || pods != nil && fmt.Sprint(got) != fmt.Sprint(pods) {
			return fmt.Errorf("%s at step %d, pods %v: %s; source %+v", at.Reason, at.CurrentStepIndex, got, at.Message, s.ready())
		}
		return nil
	})
}

// applied waits until the source has applied a commit.
func (s *env) applied(commit string) {
	s.Helper()
	clustertest.Wait(s, "commit "+commit+" to be applied", func() error {
		if at := s.source().Status; at.AppliedCommit != commit {
			return fmt.Errorf("applied %q: %+v", at.AppliedCommit, at.Conditions)
		}
		return nil
	})
}

// untouched fails unless the Deployment is native and bears nothing of a hold.
func (s *env) untouched(name string) {
	s.Helper()
	var d appsv1.Deployment
	s.must(s.c.Client.Get(s.Context(), types.NamespacedName{Namespace: s.ns, Name: name}, &d))
	if d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || strings.Contains(fmt.Sprint(d.Labels, d.Annotations), v1alpha1.Group) {
		s.Errorf("Deployment %s: paused=%t, strategy %s, labels %v, annotations %v", name, d.Spec.Paused, d.Spec.Strategy.Type, d.Labels, d.Annotations)
	}
}

// The main job: a tag starts a release, approvals let it go on, and git revert
// rolls back, on the way and afterwards.
func TestMainJob(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})

	s.replace("deployment.yaml", "web:v1", "web:v2")
	began := s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	if got := s.release("web").Spec.Commit; got != began {
		t.Errorf("the release comes from commit %s, not from %s", got, began)
	}
	s.approve(".", "web", 0)
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	s.untouched("web")
	if n := s.w.Writes("Deployment", v1alpha1.ManagerRollout); n > 2 {
		t.Errorf("%d writes to the Deployment\n%s", n, s.w.Timeline())
	}
	history := s.release("web").Status.History
	if len(history) != 1 || history[0].Commit != began || len(history[0].Approvals) != 2 || history[0].Approvals[0].By != "Ada <ada@example.org>" {
		t.Errorf("history %+v", history)
	}

	s.replace("deployment.yaml", "web:v2", "web:v3")
	s.push("web: v3")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v2": 8, "v3": 2})
	s.run(s.clone, "git", "revert", "--no-edit", "HEAD")
	s.run(s.clone, "git", "push", "--quiet", "origin", "main")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	s.untouched("web")

	s.hasEvents("BatchRelease", "web", "ReleaseStarted", "StepApproved", "StepApproved", "ReleaseCompleted", "ReleaseStarted", "RollingBack", "RolledBack")
	s.hasEvents("GitSource", "source", "Applied", "Applied", "Applied", "Applied", "Applied", "Applied")
	source, release := map[string]string{"source": "source"}, map[string]string{"release": "web"}
	with := func(of map[string]string, label, value string) map[string]string {
		of = maps.Clone(of)
		of[label] = value
		return of
	}
	for _, m := range []struct {
		name   string
		labels map[string]string
		least  float64
	}{
		{"tranche_release_outcomes_total", with(release, "outcome", "Completed"), 1},
		{"tranche_release_outcomes_total", with(release, "outcome", "RolledBack"), 1},
		{"tranche_release_rollbacks_total", release, 1},
		{"tranche_release_step_duration_seconds", release, 4},
		{"tranche_release_gate_wait_seconds", release, 2},
		{"tranche_release_phase", with(release, "phase", "Completed"), 1},
		{"tranche_release_condition", with(with(release, "condition", "Ready"), "status", "True"), 1},
		{"tranche_release_steps", release, 3},
		{"tranche_release_step", release, 1},
		{"tranche_release_replicas", release, 10},
		{"tranche_release_updated_replicas", release, 10},
		{"tranche_release_updated_available_replicas", release, 10},
		{"tranche_release_target_replicas", release, 10},
		{"tranche_release_waiting_since_timestamp_seconds", release, 0},
		{"tranche_source_condition", with(with(source, "condition", "Ready"), "status", "True"), 1},
		{"tranche_source_commits_behind", source, 0},
		{"tranche_source_syncs_total", with(source, "result", "Applied"), 6},
		{"tranche_source_renders_total", with(source, "result", "rendered"), 4},
		{"tranche_source_renders_total", with(source, "result", "skipped"), 2},
		{"tranche_git_exchange_duration_seconds", with(source, "operation", "fetch"), 6},
	} {
		if got := s.metric(m.name, m.labels); got < m.least {
			t.Errorf("%s%v is %v, want at least %v", m.name, m.labels, got, m.least)
		}
	}
}

// I9: one bad manifest among good ones changes nothing, and the condition
// names file, object and field.
func TestBadManifest(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	good := s.source().Status.AppliedCommit

	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.write("extra.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\n")
	s.replace("service.yaml", "port: 80", "port: eighty")
	bad := s.push("web: v2, and a mistake")
	clustertest.Wait(t, "the commit to be refused", func() error {
		gs := s.source()
		ready := s.ready()
		if gs.Status.ObservedCommit != bad || ready == nil || ready.Status != metav1.ConditionFalse {
			return fmt.Errorf("observed %s: %+v", gs.Status.ObservedCommit, ready)
		}
		for _, want := range []string{"service.yaml", "Service", "web", "port"} {
			if !strings.Contains(ready.Message, want) {
				return fmt.Errorf("the message does not name %q: %s", want, ready.Message)
			}
		}
		return nil
	})
	clustertest.Wait(t, "the metrics to tell", func() error {
		source := map[string]string{"source": "source"}
		behind, refused := s.metric("tranche_source_commits_behind", source), s.metric("tranche_source_syncs_total", map[string]string{"source": "source", "result": "DryRunFailed"})
		if behind != 1 || refused < 1 {
			return fmt.Errorf("%v commits behind, %v looks refused", behind, refused)
		}
		return nil
	})
	if got := s.source().Status.AppliedCommit; got != good {
		t.Errorf("applied %s, want %s still", got, good)
	}
	var extra corev1.ConfigMap
	if err := s.c.Client.Get(t.Context(), types.NamespacedName{Namespace: s.ns, Name: "extra"}, &extra); err == nil {
		t.Error("the good manifest beside the bad one was applied")
	}
	if br := s.release("web"); br.Spec.Template.Spec.Containers[0].Image != "registry.example.org/web:v1" {
		t.Errorf("the release was started: %s", br.Spec.Template.Spec.Containers[0].Image)
	}

	s.replace("service.yaml", "port: eighty", "port: 80")
	s.applied(s.push("the mistake put right"))
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
}

// A kustomization has several plans. A changed setting is a new ConfigMap. It brings a
// release in batches for a Deployment with a plan, and a native rollout for one without.
func TestShop(t *testing.T) {
	s := newEnv(t, "shop", "overlays/production")
	s.waitFor("catalog", "ReleaseCompleted", 2, map[string]int32{"1.0.0": 6})
	s.waitFor("checkout", "ReleaseCompleted", 3, map[string]int32{"1.0.0": 8})
	before := s.configMaps()

	s.replace("overlays/production/kustomization.yaml", "LOG_LEVEL=warning", "LOG_LEVEL=error")
	s.push("log only errors")
	s.waitFor("checkout", "WaitingForApproval", 0, map[string]int32{"1.0.0": 8})
	s.waitFor("catalog", "WaitingForApproval", 0, map[string]int32{"1.0.0": 6})
	clustertest.Wait(t, "the native rollout of mailer", func() error {
		var d appsv1.Deployment
		s.must(s.c.Client.Get(t.Context(), types.NamespacedName{Namespace: s.ns, Name: "mailer"}, &d))
		name := d.Spec.Template.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name
		if before[name] || d.Status.UpdatedReplicas != 2 || d.Status.AvailableReplicas != 2 {
			return fmt.Errorf("with %s: %+v", name, d.Status)
		}
		return nil
	})
	for name := range before {
		if !s.configMaps()[name] {
			t.Errorf("ConfigMap %s was pruned while old pods use it", name)
		}
	}
	s.approve("overlays/production", "checkout", 2)
	s.waitFor("checkout", "ReleaseCompleted", 3, map[string]int32{"1.0.0": 8})
	s.untouched("checkout")
	s.approve("overlays/production", "catalog", 0)
	s.waitFor("catalog", "ReleaseCompleted", 2, map[string]int32{"1.0.0": 6}) // its second gate opens by itself
	s.untouched("catalog")
}

func (s *env) configMaps() map[string]bool {
	s.Helper()
	var list corev1.ConfigMapList
	s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
	names := map[string]bool{}
	for _, c := range list.Items {
		if strings.HasPrefix(c.Name, "settings-") {
			names[c.Name] = true
		}
	}
	return names
}

// A step misses its deadline: the controller rolls back and says so in the condition.
// A later commit with another template is released.
func TestDeadline(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("release.yaml", "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 3\n    onFailure: Rollback\n")
	s.replace("deployment.yaml", "web:v1", "web:broken")
	s.push("web: a broken one")
	s.waitFor("web", "RolledBack", 2, map[string]int32{"v1": 10})
	s.untouched("web")
	s.replace("release.yaml", "progressDeadlineSeconds: 3", "progressDeadlineSeconds: 600")
	s.replace("deployment.yaml", "web:broken", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
}

// A plan that leaves the branch in the middle: the Deployment is handed back,
// and Git's template rolls out natively.
func TestPlanLeavesTheBranch(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.must(os.Remove(filepath.Join(s.clone, "release.yaml")))
	s.applied(s.push("no plan any more"))
	clustertest.Wait(t, "the native rollout", func() error {
		if got := s.pods("web"); got["v2"] != 10 || len(got) != 1 {
			return fmt.Errorf("pods %v", got)
		}
		return nil
	})
	s.untouched("web")
	s.replace("deployment.yaml", "web:v2", "web:v3")
	s.push("web: v3, natively")
	clustertest.Wait(t, "the next native rollout", func() error {
		if got := s.pods("web"); got["v3"] != 10 || len(got) != 1 {
			return fmt.Errorf("pods %v", got)
		}
		return nil
	})
}

// The controller reports approvals that do not count, and the rest of the sync goes on.
func TestApprovalsIgnored(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.write("approvals/web.yaml", fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: %s}\nspec: {revision: '%s', commit: '0123456789', step: 1}\n", s.ns, s.release("web").Status.UpdateRevision))
	s.write("approvals/other.yaml", "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: other}\nspec: {revison: x}\n")
	s.write("more.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n")
	s.applied(s.push("approvals that do not count"))
	clustertest.Wait(t, "the condition to say so", func() error {
		c := meta.FindStatusCondition(s.source().Status.Conditions, "InSync")
		if c == nil || c.Reason != "ApprovalIgnored" || !strings.Contains(c.Message, "approvals/other.yaml") || !strings.Contains(c.Message, "approvals/web.yaml") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	var more corev1.ConfigMap
	s.must(s.c.Client.Get(t.Context(), types.NamespacedName{Namespace: s.ns, Name: "more"}, &more))
}
