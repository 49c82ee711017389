package gitsync_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

const grace = "Grace Example <grace@example.org>"

func approvalOf(name, revision, commit, step string) string {
	return "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: " + name + "}\nspec: {revision: '" + revision + "', commit: '" + commit + "', step: " + step + "}\n"
}

// approvalOf approves a step of Deployment web as it must be written where only signed
// approvals count: with its namespace.
func (s *env) approvalOf(revision, commit, step string) string {
	return strings.Replace(approvalOf("web", revision, commit, step), "{name: web}", "{name: web, namespace: "+s.ns+"}", 1)
}

// says waits until InSync is as it should be.
func (s *env) says(want string) {
	s.Helper()
	clustertest.Wait(s, "InSync to say "+want, func() error {
		if m := said(s.gs()); !strings.Contains(m, "InSync="+want) {
			return fmt.Errorf("%s", m)
		}
		return nil
	})
}

// The method `told` waits for an event.
func (s *env) told(reason, note string) {
	s.Helper()
	clustertest.Wait(s, "event "+reason+": "+note, func() error {
		if notes := s.events(reason); !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, note) }) {
			return fmt.Errorf("%q", notes)
		}
		return nil
	})
}

// An approval that is for anything but the release under way is ignored. A condition
// and an event say so with file and reason, and it keeps nothing else from being
// applied. One that counts is on record with its commit and author.
func TestApprovalsInGit(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	release := s.release("web")
	revision, commit := release.Status.UpdateRevision, release.Spec.Commit
	const dir = "deploy/approvals/"
	for i, tt := range []struct {
		reason string
		files  map[string]string
		says   string
	}{
		{"another revision", map[string]string{"a.yaml": approvalOf("web", "abc", commit, "0")},
			dir + "a.yaml: BatchApproval NS/web: spec.revision: abc is another revision; the one under way is " + revision},
		{"another commit", map[string]string{"a.yaml": approvalOf("web", revision, "0123456", "0")},
			dir + "a.yaml: BatchApproval NS/web: spec.commit: 0123456 is another release; the present one comes from " + commit[:7]},
		{"an unknown release", map[string]string{"a.yaml": approvalOf("shop", revision, commit, "0")},
			dir + "a.yaml: BatchApproval NS/shop: names no BatchRelease"},
		{"a step that there is not", map[string]string{"a.yaml": approvalOf("web", revision, commit, "2")},
			dir + "a.yaml: BatchApproval NS/web: spec.step: 2: the plan has steps 0 to 1"},
		{"a negative step", map[string]string{"a.yaml": approvalOf("web", revision, commit, "-1")},
			dir + "a.yaml: BatchApproval NS/web: spec.step: -1: must not be negative"},
		{"two files for one release", map[string]string{"a.yaml": approvalOf("web", revision, commit, "0"), "b.yaml": approvalOf("web", revision, commit, "1")},
			dir + "a.yaml: BatchApproval NS/web: there is another for the same release in " + dir + "b.yaml, so neither counts"},
		{"no YAML", map[string]string{"a.yaml": "a: [\n"}, dir + "a.yaml: line 1"},
		{"another kind", map[string]string{"a.yaml": configMap("x", "y")}, dir + "a.yaml: ConfigMap NS/x: is a ConfigMap of v1 in the folder for approvals"},
		{"no step", map[string]string{"a.yaml": strings.Replace(approvalOf("web", revision, commit, "0"), ", step: 0", "", 1)},
			dir + "a.yaml: BatchApproval NS/web: spec.step: must be set"},
		{"an LFS pointer", map[string]string{"a.yaml": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"},
			dir + "a.yaml: read /" + dir + "a.yaml: is a Git LFS pointer"},
		{"a million aliases", map[string]string{"a.yaml": "a: &a [" + strings.Repeat("x, ", 5000) + "]\nb: &b [" + strings.Repeat("*a, ", 1000) + "]\n"},
			dir + "a.yaml: read /" + dir + "a.yaml: line 1: its YAML aliases, written out, make more than 8 MiB"},
	} {
		files := map[string]string{"deploy/a.yaml": configMap("a", fmt.Sprint("x", i))}
		for name, content := range tt.files {
			files[dir+name] = content
		}
		s.applied(s.push(files)) // the rest of the sync goes on
		want := strings.ReplaceAll(tt.says, "NS", s.ns)
		s.says("False ApprovalIgnored: " + want)
		s.told("ApprovalIgnored", want)
		if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != fmt.Sprint("x", i) {
			t.Errorf("%s: the rest was not applied: %s", tt.reason, v)
		}
		if br := s.release("web"); br.Status.CurrentStepIndex != 0 || br.Status.CurrentStepState != v1alpha1.StepBlocking {
			t.Errorf("%s: the gate opened: %+v", tt.reason, br.Status)
		}
		gone := map[string]string{}
		for name := range tt.files {
			gone[dir+name] = ""
		}
		s.repo.Write(gone)
	}
	s.repo.Author = grace
	approved := s.push(map[string]string{dir + "web.yaml": approvalOf("web", revision, commit[:9], "0")})
	s.repo.Author = gittest.Author
	s.isAt("web", "ReleaseCompleted", 1)
	s.says("True InSync")
	history := s.release("web").Status.History
	if len(history) == 0 || len(history[0].Approvals) != 1 || history[0].Approvals[0].By != grace || history[0].Approvals[0].Commit != approved || history[0].Commit != commit {
		t.Errorf("history: %+v", history)
	}
	s.told("StepApproved", "by "+grace+" in commit "+approved)

	// The release goes, and comes again while the approval still stands.
	s.repo.Git("checkout", "-q", commit+"~1", "--", "deploy/web.yaml")
	s.push(nil)
	clustertest.Wait(t, "v1 to run again", func() error {
		if now := s.release("web").Status; now.UpdateRevision == revision || now.Phase != v1alpha1.PhaseCompleted {
			return fmt.Errorf("%s: %s", now.UpdateRevision, now.Message)
		}
		return nil
	})
	s.says("True InSync") // the approval is history
	again := s.push(manifests("v2"))
	s.isAt("web", "WaitingForApproval", 0)
	if got := s.release("web"); got.Spec.Commit != again || got.Status.UpdateRevision != revision {
		t.Errorf("it is %s from %s, want %s from %s", got.Status.UpdateRevision, got.Spec.Commit, revision, again)
	}
	s.says("True InSync")
}

// The status reports a folder of approvals that cannot be read as one. A link out of
// the repository, or in a circle, has the same effect as no approval.
func TestApprovalsBehindALink(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	for _, tt := range []struct{ target, at, says string }{
		{"/etc", "deploy/approvals", "deploy/approvals: symbolic link leaves the repository"},
		{"../../more", "deploy/approvals", "symbolic link leaves the repository"},
		{"approvals", "deploy/approvals", "too many symbolic links"},
		{"../../../more", "deploy/approvals/more", "deploy/approvals/more: open /deploy/approvals/more: symbolic link leaves the repository"},
	} {
		s.link(tt.target, tt.at)
		s.applied(s.push(map[string]string{"README.md": tt.target + tt.at}))
		s.says("False ApprovalIgnored: deploy/approvals")
		if m := s.inSync().Message; !strings.Contains(m, tt.says) {
			t.Errorf("%q is not in %q", tt.says, m)
		}
		s.must(os.RemoveAll(filepath.Join(s.repo.Work, "deploy/approvals")))
		s.applied(s.push(nil))
		s.says("True InSync")
	}
}

// A history that moves under a release: nothing starts twice, no approval that
// stands in the tree is lost, and the way back stays open.
func TestHistoryMovesUnderARelease(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	before := s.release("web")
	revision, commit := before.Status.UpdateRevision, before.Spec.Commit
	started := func() (n int) {
		var list eventsv1.EventList
		s.must(s.c.Client.List(t.Context(), &list, client.InNamespace(s.ns)))
		for _, e := range list.Items {
			if e.Regarding.Kind == "BatchRelease" && e.Reason == "ReleaseStarted" && strings.Contains(e.Note, "to "+revision) {
				n++
			}
		}
		return n
	}
	stays := func(reason string) {
		t.Helper()
		s.isAt("web", "WaitingForApproval", 0)
		now := s.release("web")
		if now.Spec.Commit != commit || !now.Status.StartTime.Equal(before.Status.StartTime) || started() != 1 {
			t.Errorf("%s: began %s from %s, %d times; was %s from %s", reason, now.Status.StartTime, now.Spec.Commit, started(), before.Status.StartTime, commit)
		}
	}

	// A rebase with the same content: another commit that is called v2.
	s.repo.Git("reset", "-q", "--hard", "HEAD~1")
	s.repo.Commit(map[string]string{"README.md": "x"})
	rebased := s.repo.Commit(manifests("v2"))
	s.repo.Push("--force")
	s.applied(rebased)
	s.told("ForcePushed", "main@"+rebased[:12]+" no longer has "+commit[:12])
	stays("rebased")

	s.inBare("config", "receive.denyDeleteCurrent", "ignore")
	// The branch goes, and comes again with another past.
	s.repo.Git("push", "-q", "origin", "main~1:refs/heads/next", ":main")
	s.stalled("BranchNotFound")
	s.told("BranchNotFound", "there is no branch main; there is next; push it")
	stays("deleted")
	s.repo.Git("checkout", "-q", "--orphan", "new")
	orphan := s.repo.Commit(nil)
	s.repo.Git("branch", "-q", "-M", "new", "main")
	s.inBare("gc", "--quiet", "--prune=now")
	s.repo.Push("--force")
	s.applied(orphan)
	stays("created again")

	// The default branch gets another name.
	s.repo.Git("push", "-q", "origin", "main:trunk")
	s.inBare("symbolic-ref", "HEAD", "refs/heads/trunk")
	s.repo.Git("push", "-q", "origin", ":main")
	if m := s.stalled("BranchNotFound"); !strings.Contains(m, "there is no branch main; there is trunk, the default one, next; push it, or set spec.ref.branch") {
		t.Error(m)
	}
	stays("renamed")
	gs := s.gs()
	gs.Spec.Ref.Branch = "trunk"
	s.write(gs)
	clustertest.Wait(t, "the new branch", func() error {
		if m := said(s.gs()); !strings.Contains(m, "Ready=True Applied: applied trunk@"+orphan[:12]) {
			return fmt.Errorf("%s", m)
		}
		return nil
	})
	stays("followed under the new name")

	// The approval names a commit that is nowhere any more, and counts.
	s.repo.Git("checkout", "-q", "-B", "trunk")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", revision, commit, "0")})
	s.isAt("web", "ReleaseCompleted", 1)
	if n := started(); n != 1 {
		t.Errorf("the release began %d times", n)
	}

	// No commit of the old content is left: pushed as a new one, it is the rollback all
	// the same.
	s.push(manifests("v1"))
	clustertest.Wait(t, "the way back", func() error {
		d := s.deployment("web")
		if image := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v1") || d.Spec.Paused || d.Status.UpdatedReplicas != 2 {
			return fmt.Errorf("%s, paused %t", image, d.Spec.Paused)
		}
		return nil
	})
	s.told("RollingBack", "back to")
}

func TestPruneOfMostIsAskedFor(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	files, gone := map[string]string{}, map[string]string{"deploy/a.yaml": configMap("a", "two")}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		files["deploy/"+name+".yaml"] = configMap(name, "one")
		if name > "b" {
			gone["deploy/"+name+".yaml"] = ""
		}
	}
	first := s.push(files)
	s.source()
	s.applied(first)
	bad := s.push(gone)
	m := s.refused(bad, "PruneRefused")
	want := fmt.Sprintf("main@%s: 3 of the 5 objects that were applied would be deleted: ConfigMap %s/c, ConfigMap %[2]s/d, ConfigMap %[2]s/e; if that is meant, kubectl annotate -n %[2]s gitsource shop --overwrite tranche.dev/confirm-prune=%[1]s", bad[:12], s.ns)
	if m != want {
		t.Errorf("got  %s\nwant %s", m, want)
	}
	s.told("PruneRefused", "3 of the 5 objects")
	s.confirm(first) // another commit is not this one
	s.lookNow()
	s.refused(bad, "PruneRefused")
	for _, name := range []string{"a", "c", "d", "e"} {
		if v := get(s, name, &corev1.ConfigMap{}).Data["value"]; v != "one" {
			t.Errorf("%s is %q: something of the commit was applied", name, v)
		}
	}
	s.confirm(bad[:12])
	s.applied(bad)
	s.isGone("c", &corev1.ConfigMap{})
	s.isGone("e", &corev1.ConfigMap{})
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("a is %q", v)
	}
	t.Run("another path", func(t *testing.T) {
		s := s.in(t)
		other := map[string]string{}
		for _, name := range []string{"c", "d", "e"} {
			other["elsewhere/"+name+".yaml"] = configMap("new-"+name, "one")
			other["deploy/"+name+".yaml"] = configMap(name, "two")
		}
		tip := s.push(other)
		s.applied(tip)
		gs := s.gs()
		gs.Spec.Path = "elsewhere"
		s.write(gs)
		s.refused(tip, "PruneRefused")
		get(s, "c", &corev1.ConfigMap{})
		confirmEdit(s, tip)
		s.isGone("c", &corev1.ConfigMap{})
		get(s, "new-c", &corev1.ConfigMap{})
	})
}

// confirmEdit confirms what an edit of the spec deletes.
func confirmEdit(s *env, commit string) {
	s.Helper()
	s.confirm(fmt.Sprintf("%s.%d", commit, s.gs().Generation))
}

func (s *env) confirm(commit string) {
	s.Helper()
	gs := s.gs()
	patch := client.MergeFrom(gs.DeepCopy())
	metav1.SetMetaDataAnnotation(&gs.ObjectMeta, v1alpha1.AnnotationConfirmPrune, commit)
	s.must(s.c.Client.Patch(s.Context(), gs, patch))
}

// A repository that hits a limit says which, and changes nothing, neither of
// its own nor of the others.
func TestALimitIsSaid(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source()
	s.applied(first)
	other := gittest.NewRepo(t)
	other.CommitAndPush(map[string]string{"deploy/b.yaml": configMap("b", "one")})
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: s.ns}, Spec: s.gs().Spec}
	gs.Spec.URL, gs.Spec.Prune = other.URL(), false
	s.must(s.c.Client.Create(t.Context(), gs))
	s.refused(s.push(map[string]string{"deploy/a.yaml": configMap("a", "two"), "deploy/big.yaml": "# " + strings.Repeat("x", 9<<20)}), "InvalidManifest")
	var deep strings.Builder
	for i := range 300 {
		fmt.Fprintf(&deep, "d%d/", i)
	}
	s.push(map[string]string{"deploy/big.yaml": "", deep.String() + "x": "x"})
	if m := s.stalled("LimitExceeded"); !strings.Contains(m, "folders are nested more than 256 deep") {
		t.Error(m)
	}
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		t.Errorf("a is %q", v)
	}
	other.CommitAndPush(map[string]string{"deploy/b.yaml": configMap("b", "two")})
	clustertest.Wait(t, "the other source", func() error {
		cm := &corev1.ConfigMap{}
		err := s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "b"}, cm)
		if err == nil && cm.Data["value"] != "two" {
			err = fmt.Errorf("it is %q", cm.Data["value"])
		}
		return err
	})
	s.repo.Git("rm", "-rq", "d0")
	s.repo.Git("update-index", "--add", "--cacheinfo", "160000,"+first+",deploy/module")
	s.repo.Git("commit", "-qm", "A submodule")
	s.repo.Push()
	s.applied(s.repo.Head())
	const says = "deploy/module: is a submodule, and what is in it is not applied"
	s.says("False SubmoduleIgnored: " + says)
	s.told("SubmoduleIgnored", says)
	s.must(s.c.Client.Delete(t.Context(), gs))
}

// The API server refuses the second of the objects that a commit brings. Its revert would delete
// the first alone, and needs no confirmation, though all of them are in the inventory.
func TestRevertOfACommitThatWasHalfApplied(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	files := map[string]string{}
	for _, name := range []string{"a", "b", "c"} {
		files["deploy/"+name+".yaml"] = configMap(name, "one")
	}
	first := s.push(files)
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Prune = true })
	s.applied(first)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "few", Namespace: s.ns}}
	quota.Spec.Hard = corev1.ResourceList{"count/configmaps": resource.MustParse("5")} // with the one of the namespace
	s.must(s.c.Client.Create(t.Context(), quota))
	clustertest.Wait(t, "the quota to count", func() error {
		if used := get(s, "few", &corev1.ResourceQuota{}).Status.Used["count/configmaps"]; used.Value() != 4 {
			return fmt.Errorf("it counts %s", used.String())
		}
		return nil
	})
	for i := range 7 {
		files[fmt.Sprintf("deploy/new-%d.yaml", i)] = configMap(fmt.Sprintf("new-%d", i), "two")
	}
	s.refused(s.push(files), "ApplyFailed")
	for i := range 7 {
		files[fmt.Sprintf("deploy/new-%d.yaml", i)] = ""
	}
	s.applied(s.push(files))
	for i := range 7 {
		s.isGone(fmt.Sprintf("new-%d", i), &corev1.ConfigMap{})
	}
	get(s, "a", &corev1.ConfigMap{})
}
