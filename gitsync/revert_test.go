package gitsync

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// treeAt is the tree of a commit.
func treeAt(repo *gittest.Repo, commit string) plumbing.Hash {
	return plumbing.NewHash(repo.Git("rev-parse", commit+"^{tree}"))
}

// send brings the objects of a commit into a repository, as a push does.
func send(t *testing.T, repo *gittest.Repo, s *scratch, commit plumbing.Hash) {
	t.Helper()
	pack, err := s.pack(commit)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("git", "index-pack", "--stdin", "--strict")
	cmd.Dir, cmd.Stdin = repo.Work, bytes.NewReader(pack)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Trees are what git makes of the same files (G15), and packs are what git
// takes, whatever the names.
func TestWriteTreeIsGits(t *testing.T) {
	repo, random := gittest.NewRepo(t), rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "a.yaml", "a-b", "a0", "b/c", "b.d", "b-e/f", "b/c.d/g", "b/c0", "h/i/j"}
	commit := plumbing.NewHash(repo.Commit(map[string]string{"a.yaml": "0\n", "b/c.d/g": "0\n", "h/i/j": "0\n"}))
	now := map[string]string{"a.yaml": "0\n", "b/c.d/g": "0\n", "h/i/j": "0\n"}
	for i := range 30 {
		s := newScratch(gittest.Objects(repo.Work + "/.git"))
		put, write := files{}, map[string]string{}
		for range 1 + random.IntN(4) {
			name := names[random.IntN(len(names))]
			content := fmt.Sprintf("%d\n", i)
			if _, there := now[name]; there && random.IntN(2) == 0 && len(now) > 3 {
				put[name], write[name] = object.TreeEntry{}, ""
				delete(now, name)
				continue
			}
			blob, err := s.writeBlob([]byte(content))
			if err != nil {
				t.Fatal(err)
			}
			put[name], write[name], now[name] = object.TreeEntry{Mode: filemode.Regular, Hash: blob}, content, content
		}
		before, err := object.GetCommit(s, commit)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := s.writeTree(before.TreeHash, put)
		if err != nil {
			t.Fatal(err)
		}
		ada := object.Signature{Name: "Ada", Email: "ada@example.org"}
		made, err := maker{author: ada, committer: ada}.commit(s, tree, []plumbing.Hash{commit}, "Change\n", time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		send(t, repo, s, made)
		repo.Git("reset", "-q", "--hard", commit.String())
		for name, content := range write {
			if content == "" {
				repo.Git("rm", "-q", "--cached", "--ignore-unmatch", name)
				delete(write, name)
			}
		}
		repo.Git("clean", "-qfd")
		repo.Write(write)
		for name := range write {
			repo.Git("add", name)
		}
		if want := repo.Git("write-tree"); tree.String() != want {
			t.Fatalf("%v: tree %s\n%s\nwant %s\n%s", put, tree, repo.Git("ls-tree", "-r", tree.String()), want, repo.Git("ls-tree", "-r", want))
		}
		commit = made
	}
	repo.Git("fsck", "--strict")
}

// What a commit changed is taken back; what came since, to other files and in
// other lines, stays.
func TestUndo(t *testing.T) {
	base := map[string]string{"web.yaml": "replicas: 1\nlabel: a\nimage: v1\n", "old.yaml": "old\n", "kept.yaml": "kept\n"}
	release := map[string]string{"web.yaml": "replicas: 1\nlabel: a\nimage: v2\n", "old.yaml": "", "new.yaml": "new\n"}
	for _, c := range []struct {
		because   string
		since     map[string]string
		want      map[string]string // of the result, where it is not as the base
		conflicts []string
	}{
		{"nothing came since", nil, nil, nil},
		{"other files stay", map[string]string{"more.yaml": "more\n", "kept.yaml": ""}, map[string]string{"more.yaml": "more\n", "kept.yaml": ""}, nil},
		{"other lines stay", map[string]string{"web.yaml": "replicas: 5\nlabel: b\nimage: v2\n"}, map[string]string{"web.yaml": "replicas: 5\nlabel: b\nimage: v1\n"}, nil},
		{"the same line", map[string]string{"web.yaml": "replicas: 1\nlabel: a\nimage: v3\n"}, map[string]string{"web.yaml": "replicas: 1\nlabel: a\nimage: v3\n"}, []string{"web.yaml"}},
		{"a file of the release that was changed does not go", map[string]string{"new.yaml": "newer\n"}, map[string]string{"new.yaml": "newer\n"}, []string{"new.yaml"}},
		{"one that went already is gone", map[string]string{"new.yaml": ""}, nil, nil},
		{"one that came again, differently", map[string]string{"old.yaml": "other\n"}, map[string]string{"old.yaml": "other\n"}, []string{"old.yaml"}},
		{"taken back by hand already", map[string]string{"web.yaml": base["web.yaml"], "old.yaml": "old\n", "new.yaml": ""}, nil, nil},
	} {
		repo := gittest.NewRepo(t)
		before := repo.Commit(base)
		after := repo.Commit(release)
		tip := after
		if c.since != nil {
			tip = repo.Commit(c.since)
		}
		s := newScratch(gittest.Objects(repo.Work + "/.git"))
		changes, err := changed(s, treeAt(repo, before), treeAt(repo, after))
		if err != nil {
			t.Fatal(err)
		}
		tree, conflicts, err := undo(s, treeAt(repo, tip), changes)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.conflicts, conflicts); diff != "" {
			t.Errorf("%s: conflicts (-want +got):\n%s", c.because, diff)
		}
		want := map[string]string{}
		for _, from := range []map[string]string{base, c.want} {
			for name, content := range from {
				want[name] = content
			}
		}
		for name, content := range want {
			e, err := entryAt(s, tree, name)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if e.Mode != filemode.Empty {
				b, err := readBlob(s, e.Hash)
				if err != nil {
					t.Fatal(err)
				}
				got = string(b)
			}
			if got != content {
				t.Errorf("%s: %s is %q, want %q", c.because, name, got, content)
			}
		}
	}
}

// A result may differ from the tip in what the release had touched, and in
// nothing else.
func TestKept(t *testing.T) {
	object := func(image string, replicas int64, label string) map[string]any {
		return map[string]any{"Deployment web": map[string]any{"spec": map[string]any{"image": image, "replicas": replicas}, "labels": map[string]any{"team": label}}}
	}
	pairs := [][2]any{{object("v1", 1, "a"), object("v2", 1, "a")}}
	for _, c := range []struct {
		because     string
		tip, result map[string]any
		want        string
	}{
		{"only the image goes back", object("v2", 5, "b"), object("v1", 5, "b"), ""},
		{"the replicas were not the release's", object("v2", 5, "b"), object("v1", 1, "b"), "Deployment web: spec.replicas"},
		{"nor was the label", object("v2", 5, "b"), object("v1", 5, "a"), "Deployment web: labels"},
		{"nor another object", object("v2", 5, "b"), map[string]any{"Deployment web": object("v1", 5, "b")["Deployment web"], "Service web": map[string]any{}}, "Service web"},
	} {
		if got := kept(nil, pairs, c.tip, c.result); got != c.want {
			t.Errorf("%s: %q, want %q", c.because, got, c.want)
		}
	}
}

// An intent is what the cluster says of the branch's release and Git does not.
func TestIntents(t *testing.T) {
	const release, revision = "3f2c1e0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e", "5584f4c7df"
	approvedBy := func(by string, step int32) []v1alpha1.StepApproval {
		return []v1alpha1.StepApproval{{Step: step, By: by}}
	}
	inGit := func(revision string, step int32) []plan.Approval {
		a := plan.Approval{BatchApproval: v1alpha1.BatchApproval{Spec: v1alpha1.BatchApprovalSpec{Revision: revision, Commit: release[:7], Step: step}}}
		a.Metadata.Namespace, a.Metadata.Name = "shop", "web"
		return []plan.Approval{a}
	}
	for _, c := range []struct {
		because string
		edit    func(*v1alpha1.BatchRelease)
		git     []plan.Approval
		want    string
	}{
		{because: "nobody has decided anything"},
		{because: "approved in Git", edit: func(br *v1alpha1.BatchRelease) { br.Status.Approvals = approvedBy("Ada <ada@example.org>", 1) }},
		{because: "approved in the cluster", edit: func(br *v1alpha1.BatchRelease) {
			br.Status.Approvals = append(approvedBy("cluster", 0), approvedBy("cluster", 1)...)
		}, want: "approval of step 1 of shop/web"},
		{because: "approved in both", edit: func(br *v1alpha1.BatchRelease) { br.Status.Approvals = approvedBy("cluster", 1) }, git: inGit(revision, 1)},
		{because: "approved in Git up to an earlier step", edit: func(br *v1alpha1.BatchRelease) { br.Status.Approvals = approvedBy("cluster", 1) }, git: inGit(revision, 0), want: "approval of step 1 of shop/web"},
		{because: "approved in Git for another revision", edit: func(br *v1alpha1.BatchRelease) { br.Status.Approvals = approvedBy("cluster", 1) }, git: inGit("0000000000", 1), want: "approval of step 1 of shop/web"},
		{because: "the last gate, seen after the end", edit: func(br *v1alpha1.BatchRelease) {
			br.Status.Phase, br.Status.UpdateRevision = v1alpha1.PhaseCompleted, revision
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: revision, Commit: release, Outcome: v1alpha1.OutcomeCompleted, Approvals: approvedBy("cluster", 1)}}
		}, want: "approval of step 1 of shop/web"},
		{because: "an older release is over and done with", edit: func(br *v1alpha1.BatchRelease) {
			br.Status.Phase = v1alpha1.PhaseCompleted
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: revision, Commit: "0123456", Outcome: v1alpha1.OutcomeCompleted, Approvals: approvedBy("cluster", 1)}}
		}},
		{because: "the status is about another spec", edit: func(br *v1alpha1.BatchRelease) {
			br.Status.Approvals, br.Generation = approvedBy("cluster", 1), 2
		}},
		{because: "rolled back", edit: func(br *v1alpha1.BatchRelease) {
			br.Status.FailedRevision, br.Status.FailedCommit, br.Status.UpdateRevision = revision, release, "58d874c89d"
		}, want: "rollback of shop/web to 58d874c89d"},
		{because: "about to go back: the template is not there yet", edit: func(br *v1alpha1.BatchRelease) {
			br.Status.FailedRevision, br.Status.FailedCommit, br.Status.Phase = revision, release, v1alpha1.PhaseInitial
		}},
		{because: "what failed was another commit", edit: func(br *v1alpha1.BatchRelease) {
			br.Status.FailedRevision, br.Status.FailedCommit = revision, "0123456"
		}},
		{because: "to be reviewed", edit: func(br *v1alpha1.BatchRelease) { br.Status.RequestedApproval = &v1alpha1.RequestedApproval{} }, want: "approval of step 0 of shop/web"},
	} {
		br := &v1alpha1.BatchRelease{Spec: v1alpha1.BatchReleaseSpec{Commit: release}, Status: v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseRollingUpdate, UpdateRevision: revision, UpdateCommit: release, ObservedGeneration: 1}}
		br.Namespace, br.Name, br.Generation = "shop", "web", 1
		br.Spec.Strategy.Steps = make([]v1alpha1.Step, 3)
		quiet := mark(br)
		if c.edit != nil {
			c.edit(br)
		}
		set := &plan.Set{Releases: []plan.Release{{Plan: br}}}
		got := ""
		for _, in := range intents(set, map[string]*v1alpha1.BatchRelease{"shop/web": br}) {
			if a, _ := plan.MatchApproval(in.release, in.commit, c.git); in.covers(a) {
				continue
			}
			got += in.String()
			if mark(br) == quiet {
				t.Errorf("%s: nobody looks", c.because)
			}
			message := in.message()
			if in.rollback {
				message = revertMessage([]intent{in}, []revertedCommit{{subject: "web: v2"}})
			}
			if !in.says(message) {
				t.Errorf("%s: it does not know its own commit:\n%s", c.because, message)
			}
			in.step++
			in.commit = "0123456"
			if in.says(message) {
				t.Errorf("%s: it takes another's commit for its own", c.because)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.because, got, c.want)
		}
	}
}

// Who asks for signed approvals gets none that nobody signed, and who has not
// asked for commits gets none.
func TestUnwanted(t *testing.T) {
	on := &v1alpha1.WriteBack{Enabled: true}
	signers := &v1alpha1.ApprovalPolicy{Signers: &v1alpha1.Verification{}}
	for _, c := range []struct {
		because string
		spec    v1alpha1.GitSourceSpec
		phase   v1alpha1.ReleasePhase
		in      intent
		want    string // the reason on InSync
		wanted  bool
	}{
		{because: "an approval is committed", spec: v1alpha1.GitSourceSpec{WriteBack: on}, wanted: true},
		{because: "an approval is committed after the end, too", spec: v1alpha1.GitSourceSpec{WriteBack: on}, phase: v1alpha1.PhaseCompleted, wanted: true},
		{because: "it would go round the signers", spec: v1alpha1.GitSourceSpec{WriteBack: on, Approvals: signers}, want: reasonApprovedInCluster},
		{because: "nobody knows who gave it", spec: v1alpha1.GitSourceSpec{WriteBack: on, Approvals: &v1alpha1.ApprovalPolicy{DistinctAuthor: true}}, want: reasonApprovedInCluster},
		{because: "a rollback needs no approval", spec: v1alpha1.GitSourceSpec{WriteBack: on, Approvals: signers}, in: intent{rollback: true}, wanted: true},
		{because: "write-back is off", want: reasonApprovedInCluster},
		{because: "write-back is off, and the release is over", phase: v1alpha1.PhaseCompleted},
		{because: "write-back is not enabled", spec: v1alpha1.GitSourceSpec{WriteBack: &v1alpha1.WriteBack{}}, in: intent{rollback: true}, phase: v1alpha1.PhaseCompleted, want: reasonRolledBackInCluster},
	} {
		br := &v1alpha1.BatchRelease{Status: v1alpha1.BatchReleaseStatus{Phase: c.phase}}
		c.in.release = &plan.Release{Plan: br}
		w := &writeback{look: &look{gs: &v1alpha1.GitSource{Spec: c.spec}}, snapshot: &snapshot{}}
		ps := w.unwanted(c.in, br)
		got := ""
		for _, p := range ps {
			got += p.Reason
		}
		if got != c.want || (ps == nil) != c.wanted {
			t.Errorf("%s: %q, wanted %t; want %q, %t", c.because, got, ps == nil, c.want, c.wanted)
		}
	}
}
