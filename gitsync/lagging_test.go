package gitsync_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// passes pushes what leaves sources as they are, and waits until the controller has found
// that out. Two looks may have begun before the push was over, or share an older answer.
func (s *env) passes(push func(), sources ...string) {
	s.Helper()
	push()
	const enough = 3
	before := map[string]int{}
	for _, source := range sources {
		before[source] = s.renders("skipped", source)
	}
	touched := -1
	clustertest.Wait(s, "a look that finds the push", func() error {
		fewest := math.MaxInt
		for _, source := range sources {
			fewest = min(fewest, s.renders("skipped", source)-before[source])
		}
		if fewest >= enough {
			return nil
		}
		if fewest != touched {
			touched = fewest
			s.inBare("branch", fmt.Sprintf("touched-%d", time.Now().UnixNano()), "main") // the controller watches all
		}
		return fmt.Errorf("%d looks", fewest)
	})
}

// version is the resourceVersion of a source.
func (s *env) version(source string) string {
	s.Helper()
	return get(s, source, &v1alpha1.GitSource{}).ResourceVersion
}

// manyCommits pushes so many commits of a file that no source reads.
func (s *env) manyCommits(n int) (tip string) {
	s.Helper()
	tip = s.inBare("rev-parse", "main")
	var in bytes.Buffer
	for i := range n {
		text := fmt.Sprintf("%d after %s\n", i, tip)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter Ada Example <ada@example.org> %d +0000\ndata 4\nMore\n", time.Now().Unix())
		if i == 0 {
			fmt.Fprintf(&in, "from %s\n", tip)
		}
		fmt.Fprintf(&in, "M 100644 inline MORE.md\ndata %d\n%s\n", len(text), text)
	}
	gittest.FastImport(s, s.repo.Bare, &in)
	s.repo.Git("pull", "-q", "--ff-only", "origin", "main")
	return s.inBare("rev-parse", "main")
}

// counting counts the folders that are rendered.
type counting struct {
	gitsync.Renderer
	n atomic.Int32
}

func (c *counting) Render(tenant string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	c.n.Add(1)
	return c.Renderer.Render(tenant, fsys, dir, opts)
}

// startCounting starts a controller that counts what it renders.
func (s *env) startCounting() (c *counting, stop func()) {
	s.Helper()
	c = &counting{Renderer: renderers()}
	return c, s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		options := gitsync.Options{Renderer: c, StorageDir: s.TempDir(), Concurrent: 2, NoRemoteBases: true}
		options.FileRoots = []string{os.TempDir()}
		return gitsync.Add(mgr, options)
	})
}

// A commit to one path among many writes the status of one source. The others say which
// commit they have when they are asked.
func TestAPushWritesWhatItTouches(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	files, names := map[string]string{}, []string{}
	for i := range 8 {
		names = append(names, fmt.Sprint("source-", i))
		files[names[i]+"/a.yaml"] = configMap(names[i], "one")
	}
	first := s.push(files)
	versions := map[string]string{}
	for _, name := range names {
		s.another(name, name, func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = time.Hour })
	}
	for _, name := range names {
		s.kubectl("wait", "gsrc/"+name, "--for=condition=Ready", "--timeout=4m")
		s.isAppliedBy(name, first)
		versions[name] = s.version(name)
	}
	second := ""
	s.passes(func() {
		second = s.push(map[string]string{names[3] + "/a.yaml": configMap(names[3], "two")})
		s.kubectl("wait", "gsrc/"+names[3], "--for=jsonpath={.status.appliedCommit}="+second, "--timeout=4m")
	}, names[0])
	if v := get(s, names[3], &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("it is %q", v)
	}
	for _, name := range names {
		if now := s.version(name); (now == versions[name]) == (name == names[3]) {
			t.Errorf("%s was at version %s, and is at %s", name, versions[name], now)
		}
	}
	s.lookNow(names[5])
	if at := get(s, names[5], &v1alpha1.GitSource{}).Status; at.AppliedCommit != second || at.ObservedCommit != second {
		t.Errorf("asked, it says %s and %s, want %s", at.AppliedCommit, at.ObservedCommit, second)
	}
}

// The end of the interval brings the commit up to date, and so does another condition that
// the source gets.
func TestStatusCatchesUp(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "more/b.yaml": configMap("b", "one")})
	s.source()
	s.another("more", "more", func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = 2 * time.Second })
	s.applied(first)
	s.ready("more", metav1.ConditionTrue, "Applied")
	second := ""
	s.passes(func() { second = s.push(map[string]string{"README.md": "docs\n"}) }, "shop")
	clustertest.Wait(t, "the end of the interval", func() error {
		if at := get(s, "more", &v1alpha1.GitSource{}).Status; at.AppliedCommit != second || at.ObservedCommit != second {
			return fmt.Errorf("at %s and %s", at.AppliedCommit, at.ObservedCommit)
		}
		return nil
	})
	if at := s.gs().Status; at.AppliedCommit != first || at.ObservedCommit != first {
		t.Errorf("it says %s and %s, want %s", at.AppliedCommit, at.ObservedCommit, first)
	}
	unknown := metav1.Condition{Type: "Ready", Status: metav1.ConditionUnknown, Reason: "NotSynced", Message: "no controller has synced it"}
	editStatus(s, func(status *v1alpha1.GitSourceStatus) { meta.SetStatusCondition(&status.Conditions, unknown) })
	third := s.push(map[string]string{"README.md": "more docs\n"})
	clustertest.Wait(t, "the condition to be true again", func() error {
		if gs := s.gs(); gs.Status.AppliedCommit != third || !strings.Contains(said(gs), "Ready=True Applied: applied main@"+third[:12]) {
			return fmt.Errorf("%s", said(gs))
		}
		return nil
	})
}

// A controller that starts after a thousand commits which the status does not have renders
// each source once, and no older commit. So does one that starts after the branch was set
// back. The release stays the one that it was.
func TestRestartBehindManyCommits(t *testing.T) {
	t.Parallel()
	const pushes, each = 12, 90
	s := newIdleEnv(t)
	r, stop := s.startCounting()
	t.Cleanup(func() { stop() })
	s.push(manifests("v1"))
	s.source()
	s.applied(s.repo.Head())
	first := s.push(map[string]string{"deploy/web.yaml": web("v2"), "more/b.yaml": configMap("b", "one")})
	s.applied(first)
	s.another("more", "more", func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = time.Hour })
	s.isAppliedBy("more", first)
	sources, tip := []string{"shop", "more"}, ""
	for range pushes {
		s.passes(func() { tip = s.manyCommits(each) }, sources...)
	}
	begun := func(at string) {
		t.Helper()
		if gs := s.gs(); gs.Status.AppliedCommit != at {
			t.Errorf("the status is at %s, want %s", gs.Status.AppliedCommit, at)
		}
		if c := s.release("web").Spec.Commit; c != first {
			t.Errorf("the release is that of %s, want %s", c, first)
		}
	}
	begun(first)
	restart := func(commit string) {
		t.Helper()
		stop()
		r, stop = s.startCounting()
		for _, name := range sources {
			clustertest.Wait(t, name+" at "+commit, func() error {
				if at := get(s, name, &v1alpha1.GitSource{}).Status; at.AppliedCommit != commit || at.ObservedCommit != commit {
					return fmt.Errorf("at %s and %s", at.AppliedCommit, at.ObservedCommit)
				}
				return nil
			})
		}
		if n := int(r.n.Load()); n != len(sources) {
			t.Errorf("%d renders for %d sources", n, len(sources))
		}
		begun(commit)
	}
	restart(tip)
	if n := len(s.events("DriftUndone")); n > 0 {
		t.Errorf("%d reverted changes", n)
	}

	s.passes(func() { s.manyCommits(each) }, sources...)
	stop()
	s.repo.Git("reset", "-q", "--hard", first)
	other := s.repo.Commit(map[string]string{"README.md": "another past\n"})
	s.repo.Push("--force")
	restart(other)

	// Set back while the controller runs, it costs a sync and no rendering.
	s.repo.Git("reset", "-q", "--hard", first)
	last := s.repo.Commit(map[string]string{"README.md": "one more past\n"})
	s.repo.Push("--force")
	s.told("ForcePushed", "main@"+last[:12]+" no longer has "+other[:12])
	for _, name := range sources {
		s.kubectl("wait", "gsrc/"+name, "--for=jsonpath={.status.appliedCommit}="+last, "--timeout=4m")
	}
	begun(last)
	if n := int(r.n.Load()); n != len(sources) {
		t.Errorf("%d renders for %d sources after the branch was set back", n, len(sources))
	}
}

// Drift is reported as such by a controller that was started since the commits of the
// status.
func TestDriftBehindCommits(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	_, stop := s.startCounting()
	t.Cleanup(func() { stop() })
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source()
	s.applied(first)
	tip := ""
	s.passes(func() { tip = s.manyCommits(3) }, "shop")
	stop()
	s.kubectl("patch", "configmap/a", "--type=merge", "-p", `{"data":{"value":"by hand"}}`, "--field-manager=other")
	_, stop = s.startCounting()
	s.told("DriftUndone", "ConfigMap "+s.ns+"/a: data.value was changed by other, and is again as main@"+tip[:12]+" says")
}

// An approval that was on the branch before its release was first seen does not count. No
// source wrote a status for the commits that brought it, and the controller was started
// since. One that comes after the release does.
func TestOldApprovalBehindCommits(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() })
	first := s.push(manifests("v1"))
	s.applied2(first)
	s.isAt("web", "ReleaseCompleted", 1)
	s.passes(func() { s.manyCommits(3) }, "shop")
	before := s.repo.Head()

	// The change and its approval come with a merge that leaves them out.
	s.repo.Git("checkout", "-q", "-b", "side", first)
	change := s.repo.Commit(map[string]string{"deploy/web.yaml": web("v2")})
	approval := s.repo.Commit(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", "any", change, "0")})
	s.repo.Git("checkout", "-q", "main")
	s.repo.Git("merge", "-q", "--no-ff", "-s", "ours", "-m", "Merge", "side")
	merge := s.repo.Head()
	s.repo.Push()
	clustertest.Wait(t, "the merge in the status", func() error {
		if at := s.gs().Status.AppliedCommit; at != merge {
			return fmt.Errorf("at %s; before the merge there was %s", at, before)
		}
		return nil
	})
	stop()

	// A release of that change begins, by another way to the same content.
	s.repo.Git("reset", "-q", "--hard", s.repo.Git("commit-tree", "-m", "Merge", approval+"^{tree}", "-p", approval, "-p", merge))
	s.repo.Push()
	stop = s.startController(andRollout)
	s.isAt("web", "WaitingForApproval", 0)
	br := s.release("web")
	if br.Spec.Commit != change || br.Spec.Approval != nil || br.Spec.ApprovalsSince == nil || br.Spec.ApprovalsSince.AppliedCommit != merge {
		t.Errorf("the release is that of %s, with approval %+v since %+v", br.Spec.Commit, br.Spec.Approval, br.Spec.ApprovalsSince)
	}
	s.says("False ApprovalIgnored")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", br.Status.UpdateRevision, change, "0")})
	s.isAt("web", "ReleaseCompleted", 1)
}

// A release that begins while the status lags has the commit that brought it. The base of
// its approvals is the newest commit that was applied before. An approval that comes then
// counts, with a controller that was started since.
func TestReleaseBehindCommits(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() })
	s.applied2(s.push(manifests("v1")))
	s.isAt("web", "ReleaseCompleted", 1)
	base := ""
	s.passes(func() { base = s.manyCommits(3) }, "shop")
	change := s.push(map[string]string{"deploy/web.yaml": web("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	br := s.release("web")
	if br.Spec.Commit != change || br.Spec.ApprovalsSince == nil || br.Spec.ApprovalsSince.AppliedCommit != base {
		t.Errorf("the release is that of %s since %+v", br.Spec.Commit, br.Spec.ApprovalsSince)
	}
	s.passes(func() { s.manyCommits(3) }, "shop")
	stop()
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", br.Status.UpdateRevision, change, "0")})
	stop = s.startController(andRollout)
	s.isAt("web", "ReleaseCompleted", 1)
	if now := s.release("web"); now.Spec.Commit != change || now.Spec.ApprovalsSince.AppliedCommit != base {
		t.Errorf("the release is that of %s since %+v", now.Spec.Commit, now.Spec.ApprovalsSince)
	}
}

// A template that the branch removed and brought again is another release, though the status is
// behind by many commits. This is so, too, if no controller saw the removal. The approvals of the
// first release do not open its gates.
func TestReintroducedBehindCommits(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() })
	s.applied2(s.push(manifests("v1")))
	s.isAt("web", "ReleaseCompleted", 1)
	before := s.push(map[string]string{"deploy/web.yaml": web("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	first := s.release("web")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", first.Status.UpdateRevision, before, "0")})
	s.isAt("web", "ReleaseCompleted", 1)
	s.push(map[string]string{"deploy/web.yaml": web("v1")})
	clustertest.Wait(t, "the way back to be stable", func() error {
		if at := s.release("web").Status; at.Phase != v1alpha1.PhaseCompleted || at.StableRevision == first.Status.UpdateRevision {
			return fmt.Errorf("%s %s: stable is %s", at.Phase, at.Reason, at.StableRevision)
		}
		return nil
	})
	s.passes(func() { s.manyCommits(90) }, "shop")
	stop()
	s.manyCommits(1000)
	s.push(map[string]string{"deploy/web.yaml": web("v3")})
	s.push(map[string]string{"deploy/web.yaml": web("v1")})
	again := s.push(map[string]string{"deploy/web.yaml": web("v2")})
	s.manyCommits(3)
	stop = s.startController(andRollout)
	clustertest.Wait(t, "the release of "+again, func() error {
		if br := s.release("web"); br.Spec.Commit != again || br.Status.Reason != "WaitingForApproval" {
			return fmt.Errorf("that of %s, %s", br.Spec.Commit, br.Status.Reason)
		}
		return nil
	})
	if br := s.release("web"); br.Status.UpdateRevision != first.Status.UpdateRevision || br.Spec.Approval != nil {
		t.Errorf("revision %s, approved by %+v; first it was %s", br.Status.UpdateRevision, br.Spec.Approval, first.Status.UpdateRevision)
	}
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", first.Status.UpdateRevision, again, "0")})
	s.isAt("web", "ReleaseCompleted", 1)

	// The same if the branch has at last what is applied.
	s.passes(func() { s.manyCommits(3) }, "shop")
	stop()
	s.push(map[string]string{"deploy/web.yaml": web("v1")})
	third := s.push(map[string]string{"deploy/web.yaml": web("v2")})
	tip := s.manyCommits(3)
	stop = s.startController(andRollout)
	s.applied(tip)
	if c := s.release("web").Spec.Commit; c != third {
		t.Errorf("the release is that of %s, want %s", c, third)
	}
}

// A commit leaves a source as it is. Another source of the same branch that depends on it
// does not wait until the status of the first one has the commit.
func TestDependsOnWhatIsUntouched(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "base/b.yaml": configMap("b", "one")})
	s.another("base", "base", func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = time.Hour })
	s.source(after("base"))
	s.applied(s.repo.Head())
	version := s.version("base")
	for _, value := range []string{"two", "three"} {
		s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", value)}))
		if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != value {
			t.Errorf("a is %q, want %q", v, value)
		}
	}
	if now := s.version("base"); now != version {
		t.Errorf("base was at version %s, and is at %s", version, now)
	}
}

// A source that another controller looks at is asked for a sync.
func TestDependsOnAnotherShard(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	for _, shard := range []string{"a", "b"} {
		t.Cleanup(s.startShard(s.c.Controller, shard))
	}
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "base/b.yaml": configMap("b", "one")})
	s.another("base", "base", func(gs *v1alpha1.GitSource) {
		gs.Spec.Interval.Duration, gs.Labels = time.Hour, map[string]string{"shard": "b"}
	})
	s.source(after("base"), func(gs *v1alpha1.GitSource) { gs.Labels = map[string]string{"shard": "a"} })
	s.applied(s.repo.Head())
	for _, value := range []string{"two", "three"} {
		tip := s.push(map[string]string{"deploy/a.yaml": configMap("a", value)})
		s.applied(tip)
		if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != value {
			t.Errorf("a is %q, want %q", v, value)
		}
		base := get(s, "base", &v1alpha1.GitSource{})
		if asked := base.Annotations[v1alpha1.AnnotationReconcile]; asked != tip || base.Status.AppliedCommit != tip {
			t.Errorf("base was asked for %q, and is at %s, want %s", asked, base.Status.AppliedCommit, tip)
		}
	}
	// A commit that touches both is applied there first.
	tip := s.push(map[string]string{"deploy/a.yaml": configMap("a", "four"), "base/b.yaml": configMap("b", "two")})
	s.applied(tip)
	if v := get(s, "b", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("b is %q", v)
	}
}

// A source that waits for nothing new stays ready after a restart, though the one that it
// depends on is not.
func TestRestartedDependentIsReady(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	_, stop := s.startCounting()
	t.Cleanup(func() { stop() })
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "base/b.yaml": configMap("b", "one")})
	s.another("base", "base", func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = time.Hour })
	s.source(after("base"))
	s.applied(s.repo.Head())
	tip := ""
	s.passes(func() { tip = s.push(map[string]string{"base/b.yaml": "a: [\n"}) }, "shop")
	s.ready("base", metav1.ConditionFalse, "InvalidManifest")
	stop()
	_, stop = s.startCounting()
	clustertest.Wait(t, "the source to be ready at the commit", func() error {
		gs := &v1alpha1.GitSource{}
		s.must(s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "shop"}, gs))
		if !strings.Contains(said(gs), "Ready=True Applied: applied main@"+tip[:12]) {
			return fmt.Errorf("%s", said(gs))
		}
		return nil
	})
}
