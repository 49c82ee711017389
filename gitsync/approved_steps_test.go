package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// planOf is a plan for Deployment web.
func planOf(name string, steps ...string) string {
	plan := strings.Split(webPlan, "    - replicas")[0]
	plan = strings.Replace(plan, "metadata: {name: web}", "metadata: {name: "+name+"}", 1)
	for _, s := range steps {
		plan += "    - replicas: " + s + "\n"
	}
	return plan
}

// isApproved waits until a BatchRelease has an approval of these steps; without
// steps, until it has none.
func (s *env) isApproved(name string, steps ...string) {
	s.Helper()
	var want []intstr.IntOrString
	for _, step := range steps {
		want = append(want, intstr.Parse(step))
	}
	clustertest.Wait(s, fmt.Sprintf("an approval of the steps %q", steps), func() error {
		var br v1alpha1.BatchRelease
		if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &br); err != nil {
			return err
		}
		var got []intstr.IntOrString
		if a := br.Spec.Approval; a != nil {
			got = a.Steps
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return withSource(s, fmt.Errorf("(-want +got):\n%s", diff))
		}
		return nil
	})
}

// An approval is for the steps that the plan had in the commit that brought it. If
// these have changed, the status reports it until it is given again.
func TestApprovalIsForItsSteps(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	const file = "deploy/approvals/web.yaml"
	ignored := func(fact string) {
		t.Helper()
		s.says("False ApprovalIgnored: " + file + ": BatchApproval " + s.ns + "/web: spec.step: " + fact)
	}
	s.source()
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": planOf("web", "1", "30%", "50%", "100%")}))
	commit := s.push(map[string]string{"deploy/web.yaml": web("v2")})
	s.applied(commit)
	approval := approvalOf("web", "abc", commit, "0")
	given := s.push(map[string]string{file: approval})
	s.applied(given)
	s.isApproved("web", "1", "30%", "50%", "100%")
	s.says("True InSync")
	if a := s.release("web").Spec.Approval; a.ApprovedIn != given || a.Step != 0 {
		t.Errorf("the approval is %+v", a)
	}

	// Steps beyond the approval may change.
	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("web", "1", "30%", "60%", "100%")}))
	s.isApproved("web", "1", "30%", "50%", "100%")
	s.says("True InSync")

	edited := s.push(map[string]string{"deploy/release.yaml": planOf("web", "1", "20%", "60%", "100%")})
	s.applied(edited)
	s.isApproved("web", "1", "30%", "50%", "100%")
	ignored("the plan's steps have changed since: step 1 was 30% in commit " + given[:7] + ", which brought the approval, and is 20% now; approve again")
	s.lookNow()
	s.isApproved("web", "1", "30%", "50%", "100%")
	s.push(map[string]string{file: "# Again, for 20 %.\n" + approval})
	s.isApproved("web", "1", "20%", "60%", "100%")
	s.says("True InSync")

	// An approval may come with the new name of its plan, and not before it.
	const next = "deploy/approvals/next.yaml"
	approval = strings.ReplaceAll(approval, "name: web", "name: next")
	ahead := s.push(map[string]string{file: "", next: approval})
	s.isApproved("web")
	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("next", "1", "20%", "60%", "100%")}))
	s.says("False ApprovalIgnored: " + next + ": BatchApproval " + s.ns + "/next: spec.step: commit " + ahead[:7] + ", which brought the approval, has no valid plan next for a valid Deployment " + s.ns + "/web")
	s.isApproved("next")
	s.push(map[string]string{"deploy/release.yaml": planOf("last", "1", "20%", "60%", "100%"), next: strings.ReplaceAll(approval, "name: next", "name: last")})
	s.isApproved("last", "1", "20%", "60%", "100%")
}

// An approval that came with a commit that cannot be rendered, or that has no
// plan for the Deployment, does not count.
func TestApprovalOfUnknownSteps(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	const file = "deploy/approvals/web.yaml"
	ignored := func(commit string) {
		t.Helper()
		s.isApproved("web")
		s.says("False ApprovalIgnored: " + file + ": BatchApproval " + s.ns + "/web: spec.step: commit " + commit[:7] + ", which brought the approval, has no valid plan web for a valid Deployment " + s.ns + "/web, so the steps that it approves are not known; approve again")
	}
	s.source()
	s.applied(s.push(manifests("v1")))
	release := s.push(manifests("v2"))
	s.applied(release)
	approval := approvalOf("web", "abc", release, "0")

	for _, broken := range []map[string]string{
		{"deploy/web.yaml": "a: [\n", file: approval},
		{"deploy/plan.yaml": "", file: "# no plan\n" + approval},
	} {
		in := s.repo.Commit(broken)
		s.repo.Commit(manifests("v2"))
		s.repo.Push()
		s.applied(s.repo.Head())
		ignored(in)
	}
	s.push(map[string]string{file: "# again\n" + approval})
	s.isApproved("web", "1", "100%")
	s.says("True InSync")
}

// An approval of a release that has ended is no difference between branch and
// cluster, also while another release is under way. One that is brought then is.
func TestApprovalOfEndedRelease(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	release := s.release("web")
	v2 := release.Spec.Commit
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", release.Status.UpdateRevision, v2, "0")})
	s.isAt("web", "ReleaseCompleted", 1)
	s.says("True InSync")
	s.repo.Revert(v2)
	s.repo.Push()
	clustertest.Wait(t, "v1 to run again", func() error {
		d, br := s.deployment("web"), s.release("web")
		if image := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v1") || br.Status.Phase != v1alpha1.PhaseCompleted {
			return fmt.Errorf("%s: %s", image, br.Status.Message)
		}
		return nil
	})
	s.applied(s.repo.Head())
	s.lookNow()
	if c := s.inSync(); c.Status != metav1.ConditionTrue {
		t.Errorf("InSync is %s %s: %s", c.Status, c.Reason, c.Message)
	}
	if notes := s.events("ApprovalIgnored"); len(notes) > 0 {
		t.Errorf("told that an approval is ignored: %q", notes)
	}

	// One of a release that never was is a mistake, even now.
	s.push(map[string]string{"deploy/approvals/b.yaml": approvalOf("web", "abc", "0123456", "0")})
	s.says("False ApprovalIgnored: deploy/approvals/b.yaml: BatchApproval " + s.ns + "/web: spec.commit: 0123456 is another release")
	again := s.push(map[string]string{"deploy/web.yaml": web("v3"), "deploy/approvals/b.yaml": ""})
	s.isAt("web", "WaitingForApproval", 0)
	s.says("True InSync")
	s.push(map[string]string{"deploy/approvals/web.yaml": "# meant for v3\n" + approvalOf("web", release.Status.UpdateRevision, v2, "0")})
	s.says("False ApprovalIgnored: deploy/approvals/web.yaml: BatchApproval " + s.ns + "/web: spec.commit: " + v2 + " is another release; the present one comes from " + again[:7])
}

// An approval is moved as it is: to another name, and to the path of another source with its
// plan. By that it approves no other steps than before, and those it approved it still does.
func TestApprovalMoved(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	br := s.tenOfGit()
	s.push(map[string]string{"other/config.yaml": configMap("other", "one"), "deploy/config.yaml": configMap("deploy", "one")})
	s.source(func(gs *v1alpha1.GitSource) { gs.Name, gs.Spec.Path = "other", "other" })
	const file, renamed, moved = "deploy/approvals/web.yaml", "deploy/approvals/2026.yaml", "other/approvals/web.yaml"
	approval := approvalOf("web", br.Status.UpdateRevision, br.Spec.Commit, "0")
	given := s.push(map[string]string{file: approval})
	s.isAt("web", "WaitingForApproval", 1)

	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("web", "100%")}))
	s.applied(s.push(map[string]string{file: "", renamed: approval}))
	s.isApproved("web", gatedSteps...)
	s.isAt("web", "WaitingForApproval", 0)
	s.runs("web", map[string]int32{"v1": 5, "v2": 5})
	s.says("False ApprovalIgnored: " + renamed + ": BatchApproval " + s.ns +
		"/web: spec.step: the plan's steps have changed since: step 0 was 1 in commit " + given[:7])

	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("web", gatedSteps...)}))
	s.isAt("web", "WaitingForApproval", 1)
	moves := func(from, to string, files map[string]string) {
		t.Helper()
		at := map[string]string{}
		for name, content := range files {
			at[from+"/"+name], at[to+"/"+name] = "", content
		}
		s.push(at)
		clustertest.Wait(t, "the plan to be of source "+to, func() error {
			if l := s.release("web").Labels; l[v1alpha1.LabelSource] != map[string]string{"deploy": "shop", "other": "other"}[to] {
				return withSource(s, fmt.Errorf("labels %v", l))
			}
			return nil
		})
	}
	s.applied(s.push(map[string]string{renamed: "", file: approval}))
	moves("deploy", "other", map[string]string{
		"web.yaml": sizedWeb(10, "v2"), "release.yaml": planOf("web", "100%"), "approvals/web.yaml": approval,
	})
	s.isApproved("web", gatedSteps...)
	s.isAt("web", "WaitingForApproval", 0)
	s.runs("web", map[string]int32{"v1": 5, "v2": 5})
	s.push(map[string]string{"other/release.yaml": planOf("web", gatedSteps...)})
	s.isAt("web", "WaitingForApproval", 1)
	s.push(map[string]string{moved: strings.Replace(approval, "step: 0", "step: 1", 1)})
	s.isAt("web", "ReleaseCompleted", 2)
}
