package commit

import (
	"slices"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// If only signed approvals count, the command writes a line that no version of the file has
// had. Others may have written all other lines. An approval that counts stays as it is.
func TestApprove_LineOfItsOwn(t *testing.T) {
	st, commits := commandIn(t, [2]string{"deployment.yaml", "web:v1 => web:v2"})
	s := clitest.Clone{TB: t, Dir: st.clone.Dir}
	set, _, err := st.rendering().Set(commits[len(commits)-1])
	if err != nil {
		t.Fatal(err)
	}
	st.source.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: &v1alpha1.Verification{}}
	st.release.Spec.RequireSignedApprovals = true
	st.release.Spec.Strategy = set.Releases[0].Plan.Spec.Strategy
	var lines []string
	var text string
	approve := func(step int32) (ownLines int) {
		t.Helper()
		if err := st.approve(step); err != nil {
			t.Fatal(err)
		}
		text = s.Run("git", "show", "HEAD:approvals/web.yaml") + "\n"
		for _, l := range strings.Split(text, "\n") {
			if !slices.Contains(lines, l) {
				ownLines++
				lines = append(lines, l)
			}
		}
		return ownLines
	}
	approve(0)
	if parent := s.Run("git", "rev-parse", "HEAD~1"); !strings.Contains(text, " Made on "+parent+".\n") {
		t.Errorf("the approval does not name the commit before it, %s:\n%s", parent, text)
	}
	for _, step := range []string{"1", "0"} { // another user has both steps in the history
		s.Write("approvals/web.yaml", text[:strings.Index(text, "  step:")]+"  step: "+step+"\n")
		s.Run("git", "add", "--all")
		s.Run("git", "commit", "--quiet", "-m", "step "+step)
		lines = append(lines, "  step: "+step)
	}
	if approve(1) == 0 {
		t.Errorf("step 1 has no line of its own:\n%s", text)
	}
	a := v1alpha1.Approval{Revision: st.release.Status.UpdateRevision, Commit: st.release.Spec.Commit, Step: 1}
	st.release.Spec.Approval = &a
	head := s.Run("git", "rev-parse", "HEAD")
	if approve(1); s.Run("git", "rev-parse", "HEAD") != head {
		t.Errorf("an approval that counts is given again:\n%s", text)
	}
}

// An unsigned approval that cannot count is not pushed. One that is not pushed may still be
// signed, and git may sign each commit.
func TestApprove_PushesWhatIsSigned(t *testing.T) {
	for _, tc := range []struct {
		signers, push, sign, config bool
		refused                     bool
	}{
		{true, true, false, false, true},
		{true, true, true, false, false},
		{true, true, false, true, false},
		{true, false, false, false, false},
		{false, true, false, false, false},
	} {
		st, _ := commandIn(t)
		if tc.signers {
			st.source.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: &v1alpha1.Verification{}}
		}
		if tc.config {
			clitest.Clone{TB: t, Dir: st.clone.Dir}.Run("git", "config", "commit.gpgsign", "yes")
		}
		st.push, st.sign = tc.push, tc.sign
		if err := mustSign(st); (err != nil) != tc.refused {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
