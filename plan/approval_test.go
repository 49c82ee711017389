package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const commit = "3f2c1e0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e"

func TestMatchApproval(t *testing.T) {
	set := plantest.Collect(t, map[string]string{"apps/a.yaml": plantest.Deployment("web", "nginx", "10") + "---\n" + plantest.Plan("web", "1", "30%")}, "apps", "shop")
	for _, tc := range []struct {
		reason, commit string
		files          map[string]string
		want           string
		ps             []string
	}{
		{"none", commit, nil, "", nil},
		{"seven characters of the commit", commit, map[string]string{"a/web.yaml": plantest.Approval("web", "x", commit[:7], "0")}, "a/web.yaml shop/web x 3f2c1e0 0", nil},
		{"all of it, and the last step", commit, map[string]string{"a/web.yaml": plantest.Approval("web", "x", commit, "2")}, "a/web.yaml shop/web x " + commit + " 2", nil},
		{"another release's is no business of this one", commit, map[string]string{"a/web.yaml": plantest.Approval("api", "x", commit, "0")}, "", nil},
		{"another commit: I5, never for another release", commit, map[string]string{"a/web.yaml": plantest.Approval("web", "x", "aaaaaaa", "0")}, "", []string{
			"ApprovalIgnored a/web.yaml: BatchApproval shop/web: spec.commit: aaaaaaa is another release; the present one comes from 3f2c1e0; replace it when that one is to be approved"}},
		{"more than the commit is not the commit", commit[:39], map[string]string{"a/web.yaml": plantest.Approval("web", "x", commit, "0")}, "", []string{
			"ApprovalIgnored a/web.yaml: BatchApproval shop/web: spec.commit: " + commit + " is another release; the present one comes from 3f2c1e0; replace it when that one is to be approved"}},
		{"no release under way", "", map[string]string{"a/web.yaml": plantest.Approval("web", "x", commit, "0")}, "", []string{
			"ApprovalIgnored a/web.yaml: BatchApproval shop/web: spec.commit: no release is under way that it could be for; remove it"}},
		{"a step that the plan does not have", commit, map[string]string{"a/web.yaml": plantest.Approval("web", "x", commit, "3")}, "", []string{
			"ApprovalIgnored a/web.yaml: BatchApproval shop/web: spec.step: 3: the plan has steps 0 to 2"}},
		{"two files for one release: neither counts", commit, map[string]string{"a/web.yaml": plantest.Approval("web", "x", commit, "0"), "a/web2.yaml": plantest.Approval("web", "x", commit[:8], "1")}, "", []string{
			"ApprovalIgnored a/web.yaml: BatchApproval shop/web: there is another for the same release in a/web2.yaml, so neither counts; keep one of them",
			"ApprovalIgnored a/web2.yaml: BatchApproval shop/web: there is another for the same release in a/web.yaml, so neither counts; keep one of them"}},
		{"one of a former release beside it does no harm", commit, map[string]string{"a/web.yaml": plantest.Approval("web", "x", commit, "0"), "a/web2.yaml": plantest.Approval("web", "x", "bbbbbbb", "1")}, "a/web.yaml shop/web x " + commit + " 0", []string{
			"ApprovalIgnored a/web2.yaml: BatchApproval shop/web: spec.commit: bbbbbbb is another release; the present one comes from 3f2c1e0; replace it when that one is to be approved"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			approvals, ps := manifest.ReadApprovals(plantest.Tree(t, tc.files), "a", "shop")
			if len(ps) > 0 {
				t.Fatal(ps)
			}
			got, ps := plan.MatchApproval(&set.Releases[0], tc.commit, approvals)
			if diff := cmp.Diff(tc.want, plantest.Summary(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			var problems []string
			if len(ps) > 0 {
				problems = plantest.List(ps)
			}
			if diff := cmp.Diff(tc.ps, problems); diff != "" {
				t.Errorf("%s: problems (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	approvals, _ := manifest.ReadApprovals(plantest.Tree(t, map[string]string{"a/a.yaml": plantest.Approval("gone", "x", commit, "0") + "---\n" + plantest.Approval("web", "x", commit, "0")}), "a", "shop")
	if diff := cmp.Diff([]string{"ApprovalIgnored a/a.yaml: BatchApproval shop/gone: names no BatchRelease; give it the name and namespace of one, or remove it"}, plantest.List(plan.UnknownApprovals(set.Releases, approvals))); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
}

func TestStepsChanged(t *testing.T) {
	replicas := func(list ...string) []intstr.IntOrString {
		var all []intstr.IntOrString
		for _, s := range list {
			all = append(all, intstr.Parse(s))
		}
		return all
	}
	for _, tc := range []struct {
		reason         string
		approved, plan []intstr.IntOrString
		step           int32
		first          int
		says           string // after the fact that the steps have changed; empty: nothing
	}{
		{"the same steps", replicas("1", "30%", "100%"), replicas("1", "30%", "100%"), 1, -1, ""},
		{"the step that the gate leads to is lower", replicas("1", "30%", "100%"), replicas("1", "20%", "100%"), 0, 1, "step 1 was 30% in commit 3f2c1e0, which brought the approval, and is 20% now"},
		{"the step that the gate leads to is higher", replicas("1", "30%", "100%"), replicas("1", "50%", "100%"), 0, 1, "step 1 was 30% in commit 3f2c1e0, which brought the approval, and is 50% now"},
		{"the step before the gate", replicas("1", "30%", "100%"), replicas("2", "30%", "100%"), 0, 0, "step 0 was 1 in commit 3f2c1e0, which brought the approval, and is 2 now"},
		{"a step that the approval does not reach", replicas("1", "30%", "50%", "100%"), replicas("1", "30%", "60%", "100%"), 0, -1, ""},
		{"the gates before the change open", replicas("1", "30%", "50%", "100%"), replicas("1", "30%", "60%", "100%"), 2, 2, "step 2 was 50% in commit 3f2c1e0, which brought the approval, and is 60% now; it counts up to step 0"},
		{"a number is not the percentage that comes to the same", replicas("1", "3", "100%"), replicas("1", "30%", "100%"), 0, 1, "step 1 was 3 in commit 3f2c1e0, which brought the approval, and is 30% now"},
		{"a step is put in between", replicas("1", "100%"), replicas("1", "30%", "100%"), 0, 1, "step 1 was 100% in commit 3f2c1e0, which brought the approval, and is 30% now"},
		{"a step is added after the last", replicas("1", "100%"), replicas("1", "100%", "100%"), 1, 2, "step 2 was not there in commit 3f2c1e0, which brought the approval, and is 100% now; it counts up to step 0"},
		{"a step is taken away", replicas("1", "30%", "100%"), replicas("1", "100%"), 0, 1, "step 1 was 30% in commit 3f2c1e0, which brought the approval, and is 100% now"},
		{"only steps that are not reached are taken away", replicas("1", "50%", "60%", "100%"), replicas("1", "50%", "100%"), 0, -1, ""},
		{"an approval of the last step ends with the plan", replicas("1", "100%"), replicas("1", "100%"), 1, -1, ""},
		{"nothing is known of the steps", nil, replicas("1", "100%"), 0, 0, "step 0 was not there in commit 3f2c1e0, which brought the approval, and is 1 now"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			steps := make([]v1alpha1.Step, len(tc.plan))
			for i, r := range tc.plan {
				steps[i].Replicas = r
			}
			if got := plan.ChangedStep(tc.approved, tc.step, steps); got != tc.first {
				t.Errorf("the first step that has changed is %d, want %d", got, tc.first)
			}
			a := &plan.Approval{File: "a/web.yaml"}
			a.Metadata.Namespace, a.Metadata.Name, a.Spec.Step = "shop", "web", tc.step
			p, got, want := a.StepsChanged(tc.approved, commit, steps), "", ""
			if p != nil {
				got = p.Reason + " " + p.Error()
			}
			if tc.says != "" {
				want = "ApprovalIgnored a/web.yaml: BatchApproval shop/web: spec.step: the plan's steps have changed since: " + tc.says + "; approve again: commit a change of the file, such as a comment"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
