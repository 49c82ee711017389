package commit

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/direct"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// If only signed approvals count, an approval that the controller has not taken is given
// again.
func TestUnsigned(t *testing.T) {
	spec := v1alpha1.BatchApprovalSpec{Revision: "5584f4c7df", Commit: "c28d103508da", Step: 1}
	for _, tc := range []struct {
		reason   string
		required bool
		taken    *v1alpha1.Approval
		want     bool
	}{
		{"no signature is needed", false, nil, false},
		{"none was taken", true, nil, true},
		{"this one was taken", true, &v1alpha1.Approval{Revision: "5584f4c7df", Commit: "c28d103508da", Step: 1}, false},
		{"one of an earlier step was taken", true, &v1alpha1.Approval{Revision: "5584f4c7df", Commit: "c28d103508da"}, true},
		{"one of another release was taken", true, &v1alpha1.Approval{Revision: "5584f4c7df", Commit: "0a1b2c3d4e5f", Step: 1}, true},
	} {
		br := &v1alpha1.BatchRelease{Spec: v1alpha1.BatchReleaseSpec{RequireSignedApprovals: tc.required, Approval: tc.taken}}
		if got := unsigned(br, spec); got != tc.want {
			t.Errorf("%s: %t, want %t", tc.reason, got, tc.want)
		}
	}
}

// If the branch has other steps than those that govern, an approval of a step that leads
// to one of them would not count. Without signers the branch is what counts.
func TestOtherSteps(t *testing.T) {
	of := func(signed bool, steps ...string) *v1alpha1.BatchRelease {
		br := &v1alpha1.BatchRelease{Spec: v1alpha1.BatchReleaseSpec{RequireSignedApprovals: signed}}
		for _, s := range steps {
			br.Spec.Strategy.Steps = append(br.Spec.Strategy.Steps, v1alpha1.Step{Replicas: intstr.Parse(s)})
		}
		return br
	}
	for _, tc := range []struct {
		reason string
		br     *v1alpha1.BatchRelease
		step   int32
		want   string
	}{
		{"the same", of(true, "1", "30%", "60%", "100%"), 1, ""},
		{"another later", of(true, "1", "30%", "60%", "90%", "100%"), 1, ""},
		{"another that it leads to", of(true, "1", "30%", "50%", "100%"), 1, "approve the plan first"},
		{"nobody signs", of(false, "1", "30%", "50%", "100%"), 1, ""},
	} {
		err := otherSteps(tc.br, of(false, "1", "30%", "60%", "100%"), tc.step)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
		}
	}
}

// A release of a plan that was removed since is not approved in Git.
func TestApproveEndedWithItsPlan(t *testing.T) {
	br := clitest.Release()
	br.Spec.Commit, br.Spec.WorkloadRef.Name = "c28d103508da1c5c8a4b7f1c1f6e7d6b2a90c3de", "web"
	gs := &v1alpha1.GitSource{}
	gs.Status.EndedReleases = []v1alpha1.EndedRelease{{Deployment: br.Namespace + "/web", Commit: br.Spec.Commit}}
	st := &commitCommand{release: br, source: gs}
	if err := st.approve(0); err == nil || !strings.Contains(err.Error(), "by a new commit") {
		t.Errorf("%v", err)
	}
}

// The branch has the names of two plans swapped, which the API server refuses: what
// would be committed is about another Deployment, and nothing is.
func TestPlanOfAnotherDeployment(t *testing.T) {
	st, commits := commandIn(t, [2]string{"deployment.yaml", "web:v1 => web:v2"})
	st.release.Spec.WorkloadRef.Name = "api"
	const want = "release.yaml has BatchRelease shop/web for Deployment web, and the cluster for Deployment api"
	for name, err := range map[string]error{
		"approve": st.approve(0), "rollback": st.rollback("", nil), "pause": st.pause(true, false, false),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if head, err := st.clone.Head(t.Context()); err != nil || head != commits[len(commits)-1] {
		t.Errorf("commit %s was made: %v", head, err)
	}
}

// Which step is approved, and when none can be.
func TestApproveStep(t *testing.T) {
	endedBefore := func(br *v1alpha1.BatchRelease) {
		br.Status.EndedReleases = []v1alpha1.ReleaseName{{Revision: br.Status.UpdateRevision, Commit: br.Status.UpdateCommit}}
	}
	for _, tc := range []struct {
		reason string
		o      approveOptions
		given  bool
		edit   func(*v1alpha1.BatchRelease)
		want   int32
		err    string
	}{
		{"the present one", approveOptions{}, false, nil, 1, ""},
		{"a later one", approveOptions{step: 2}, true, nil, 2, ""},
		{"all", approveOptions{all: true}, false, nil, 3, ""},
		{"one that is over", approveOptions{step: 0}, true, nil, 0, "is over"},
		{"none of the plan", approveOptions{step: 4}, true, nil, 0, "the steps 0 to 3"},
		{"on the way back", approveOptions{}, false, func(br *v1alpha1.BatchRelease) { br.Status.RollingBack = true }, 0, "rolling back"},
		{"a status of another spec", approveOptions{}, false, func(br *v1alpha1.BatchRelease) { br.Generation++ }, 0, "try again"},
		{"one that has ended before", approveOptions{}, false, endedBefore, 0, "by a new commit"},
		{"the same, in the cluster", approveOptions{direct: true}, false, endedBefore, 1, ""},
		{"one that a finalizer keeps", approveOptions{}, false, func(br *v1alpha1.BatchRelease) {
			br.Generation++
			br.DeletionTimestamp, br.Finalizers = clitest.Before(time.Minute), []string{"example.org/hostage"}
		}, 0, "is being deleted, kept by finalizers example.org/hostage; it has no gate"},
		{
			"nothing under way", approveOptions{}, false,
			func(br *v1alpha1.BatchRelease) { br.Status.Phase = v1alpha1.PhaseCompleted }, 0, "no release under way",
		},
	} {
		br := clitest.Release()
		if tc.edit != nil {
			tc.edit(br)
		}
		got, err := tc.o.stepOf(br, tc.given)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %d, %v; want %d, %q", tc.reason, got, err, tc.want, tc.err)
		}
	}
}

// An approval in the cluster that the controller would refuse, or would have reviewed,
// is refused by the command, and nothing is written.
func TestApproveDirectRefused(t *testing.T) {
	for _, tc := range []struct {
		reason string
		edit   func(*v1alpha1.BatchRelease)
		err    string
	}{
		{
			"only signed ones count", func(br *v1alpha1.BatchRelease) { br.Spec.RequireSignedApprovals = true },
			"tranche approve web -n shop --sign --push",
		},
		{"they are reviewed", func(br *v1alpha1.BatchRelease) { br.Spec.ReviewApprovals = true }, "tranche approve web -n shop"},
	} {
		br := clitest.Release()
		tc.edit(br)
		if err := direct.Approve(&cobra.Command{}, nil, br, 1, true); err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v", tc.reason, err)
		}
	}
}

// Which releases a commit names, and when that is not clear.
func TestOfOneSource(t *testing.T) {
	of := func(name, source, commit string) v1alpha1.BatchRelease {
		br := *clitest.Release()
		br.Name, br.Spec.Commit, br.Labels[v1alpha1.LabelSource] = name, commit, source
		return br
	}
	const a, b = "aaaaaaa1", "aaaaaaa2"
	for _, tc := range []struct {
		why  string
		list []v1alpha1.BatchRelease
		err  string
	}{
		{"none", nil, "no release under way in namespace shop comes from commit aaaaaaa"},
		{"two of one", []v1alpha1.BatchRelease{of("web", "shop", a), of("api", "shop", a)}, ""},
		{"two commits", []v1alpha1.BatchRelease{of("web", "shop", a), of("api", "shop", b)}, "both aaaaaaa1 and aaaaaaa2 begin with it"},
		{
			"two sources", []v1alpha1.BatchRelease{of("web", "shop", a), of("api", "other", a)},
			"come from the GitSources shop/shop, shop/other; name one with --source",
		},
	} {
		got, err := ofOneSource(tc.list, "aaaaaaa", "shop")
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) || err == nil && len(got) != len(tc.list) {
			t.Errorf("%s: %d, %v, want %q", tc.why, len(got), err, tc.err)
		}
	}
}
