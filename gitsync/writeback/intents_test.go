package writeback

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/revert"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func sizesOf(replicas ...int32) (sizes []intstr.IntOrString) {
	for _, n := range replicas {
		sizes = append(sizes, intstr.FromInt32(n))
	}
	return sizes
}

func stepsOf(replicas ...int32) (steps []v1alpha1.Step) {
	for _, n := range sizesOf(replicas...) {
		steps = append(steps, v1alpha1.Step{Replicas: n})
	}
	return steps
}

// An approval given in the cluster says nothing of steps that the branch has by now.
func TestIntents_OtherSteps(t *testing.T) {
	given := func(step int32, replicas ...int32) v1alpha1.StepApproval {
		return v1alpha1.StepApproval{Step: step, By: "cluster", Steps: sizesOf(replicas...)}
	}
	for _, c := range []struct {
		because   string
		approvals []v1alpha1.StepApproval
		requested bool
		branch    []v1alpha1.Step
		want      int32 // the step whose approval is committed; -1: none
	}{
		{"the branch has those steps", []v1alpha1.StepApproval{given(0, 1, 2)}, false, stepsOf(1, 2, 8), 0},
		{"the branch has raised a later step", []v1alpha1.StepApproval{given(0, 1, 2)}, false, stepsOf(1, 2, 6, 8), 0},
		{"the branch has raised what the gate led to", []v1alpha1.StepApproval{given(0, 1, 2)}, false, stepsOf(1, 6, 8), -1},
		{"the branch has another first step", []v1alpha1.StepApproval{given(0, 1, 2)}, false, stepsOf(2, 2, 8), -1},
		{"two gates opened, and the second one for other steps",
			[]v1alpha1.StepApproval{given(0, 1, 2), given(1, 1, 2, 8)}, false, stepsOf(1, 2, 6, 8), 0},
		{"an earlier version did not write the steps", []v1alpha1.StepApproval{given(0)}, false, stepsOf(1, 2, 8), 0},
		{"an earlier version did not write them, and others are there", []v1alpha1.StepApproval{given(0)}, false, stepsOf(1, 6, 8), -1},
		{"it is to be reviewed", nil, true, stepsOf(1, 2, 8), 0},
		{"it is to be reviewed, and the branch has others", nil, true, stepsOf(1, 6, 8), -1},
	} {
		live := &v1alpha1.BatchRelease{Spec: v1alpha1.BatchReleaseSpec{Commit: "3f2c1e0"}, Status: v1alpha1.BatchReleaseStatus{
			Phase: v1alpha1.PhaseRollingUpdate, UpdateCommit: "3f2c1e0", Approvals: c.approvals, Steps: sizesOf(1, 2, 8),
		}}
		if c.requested {
			live.Status.RequestedApproval = &v1alpha1.RequestedApproval{}
		}
		r := &plan.Release{Plan: &v1alpha1.BatchRelease{}}
		r.Plan.Spec.Strategy.Steps = c.branch
		in, ok := approved(r, live)
		if ok != (c.want >= 0) || ok && in.step != c.want {
			t.Errorf("%s: %t, step %d", c.because, ok, in.step)
		}
	}
}

// An intent is what the cluster says of the branch's release and Git does not.
func TestIntents(t *testing.T) {
	const release, revision = "3f2c1e0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e", "5584f4c7df"
	approvedBy := func(by string, step int32) []v1alpha1.StepApproval {
		return []v1alpha1.StepApproval{{Step: step, By: by, Steps: sizesOf(1, 2, 3)[:step+2]}}
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
		{because: "rolled back while the status is about another spec", edit: func(br *v1alpha1.BatchRelease) {
			br.Status.FailedRevision, br.Status.FailedCommit, br.Status.UpdateRevision, br.Generation = revision, release, "58d874c89d", 2
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
		br.Spec.Strategy.Steps, br.Status.Steps = stepsOf(1, 2, 3), sizesOf(1, 2, 3)
		quiet := Mark(br)
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
			if Mark(br) == quiet {
				t.Errorf("%s: nobody looks", c.because)
			}
			message := in.message()
			if in.rollback {
				message = revertMessage([]intent{in}, []revert.Commit{{Subject: "web: v2"}})
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

// A source that asks for signed approvals gets none without a signature, and one that
// has not asked for commits gets none.
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
		{because: "it would go round the signers", spec: v1alpha1.GitSourceSpec{WriteBack: on, Approvals: signers}, want: v1alpha1.ReasonApprovedInCluster},
		{because: "nobody knows who gave it", spec: v1alpha1.GitSourceSpec{WriteBack: on, Approvals: &v1alpha1.ApprovalPolicy{DistinctAuthor: true}}, want: v1alpha1.ReasonApprovedInCluster},
		{because: "a rollback needs no approval", spec: v1alpha1.GitSourceSpec{WriteBack: on, Approvals: signers}, in: intent{rollback: true}, wanted: true},
		{because: "write-back is off", want: v1alpha1.ReasonApprovedInCluster},
		{because: "write-back is off, and the release is over", phase: v1alpha1.PhaseCompleted},
		{because: "write-back is not enabled", spec: v1alpha1.GitSourceSpec{WriteBack: &v1alpha1.WriteBack{}}, in: intent{rollback: true}, phase: v1alpha1.PhaseCompleted, want: v1alpha1.ReasonRolledBackInCluster},
	} {
		br := &v1alpha1.BatchRelease{Status: v1alpha1.BatchReleaseStatus{Phase: c.phase}}
		c.in.release = &plan.Release{Plan: br}
		w := &Input{Source: &v1alpha1.GitSource{Spec: c.spec}, Snapshot: &repository.Snapshot{}}
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

// A commit has done what its trailers say only if its content does. One that approved a gate
// which waits must also have come after the release was first seen.
func TestCommitted(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	v1, v2 := repo.Commit(gittest.Web("v1")), repo.Commit(gittest.Web("v2"))
	back := fmt.Sprintf("Change\n\nTranche-Release: shop/web\nTranche-Revision: abc\nTranche-Commit: %s", v2)
	approves := back + "\nTranche-Step: 0"
	approval := repo.Commit(map[string]string{"deploy/approvals/web.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\n" +
		"metadata: {name: web, namespace: shop}\nspec: {revision: abc, commit: \"" + v2 + "\", step: 0}\n"}, approves)
	noApproval := repo.Commit(map[string]string{"README.md": "x"}, approves)
	noRevert := repo.Commit(map[string]string{"README.md": "y"}, back)
	revert := repo.Commit(gittest.Web("v1"), back)
	repo.Commit(gittest.Web("v2"))
	repo.Push()
	r := readerOf(t, repo)
	d, _, err := r.Read(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		commit, message, applied string
		rollback, waits, want    bool
	}{
		"an approval":                        {approval, approves, v1, false, false, true},
		"no approval, with trailers":         {noApproval, approves, v1, false, false, false},
		"an approval, without trailers":      {approval, "Change", v1, false, false, false},
		"a revert":                           {revert, back, v1, true, false, true},
		"no revert, with trailers":           {noRevert, back, v1, true, false, false},
		"an approval of a gate that waits":   {approval, approves, v1, false, true, true},
		"one from before the release":        {approval, approves, revert, false, true, false},
		"no approval of a gate, as it waits": {noApproval, approves, v1, false, true, false},
	} {
		live := &v1alpha1.BatchRelease{}
		live.Spec.Commit, live.Spec.Template = v2, d.Set.Releases[0].Template
		live.Spec.ApprovalsSince = &v1alpha1.ApprovalsSince{AppliedCommit: tt.applied, ObservedCommit: tt.applied}
		in := intent{release: &d.Set.Releases[0], live: live, rollback: tt.rollback, revision: "abc", commit: v2, waits: tt.waits}
		got, err := committed(t.Context(), desired.NewHistory(r, d), in, []pastCommit{{plumbing.NewHash(tt.commit), tt.message}})
		if err != nil || got != tt.want {
			t.Errorf("%s: %t, want %t (%v)", name, got, tt.want, err)
		}
	}
}

// readerOf reads the pushed branch main of a repository for GitSource shop.
func readerOf(t *testing.T, repo *gittest.Repo) *desired.Reader {
	t.Helper()
	u, err := gitserver.ParseURL(repo.URL())
	if err != nil {
		t.Fatal(err)
	}
	remote := gitserver.Remote{URL: u}
	s, err := repository.NewCache(t.TempDir()).Of(remote).Fetch(t.Context(), remote, "main")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"}, Spec: v1alpha1.GitSourceSpec{URL: repo.URL(), Path: "deploy"}}
	return &desired.Reader{Snapshot: s, Source: gs, Mapper: gittest.RESTMapper(), Brought: map[string]signers.FileOrigin{}}
}

// The first line of a message may have what a terminal acts by. The message of a revert
// repeats it.
func TestRevertMessage_Subject(t *testing.T) {
	of := revert.Commit{Subject: revert.SubjectOf("web: v2\x1b[2K\u009b8m \r\n\nmore\x1b[8m\n")}
	list := []intent{{release: &plan.Release{Plan: &v1alpha1.BatchRelease{}}}}
	got, _, _ := strings.Cut(revertMessage(list, []revert.Commit{of}), "\n")
	if want := "Revert \"web: v2\ufffd[2K\ufffd8m\""; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
