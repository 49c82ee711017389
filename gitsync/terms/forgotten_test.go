package terms

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// If it is not known any more which approvals were used, none of that time counts. That
// holds for the approval of a release that comes now, and for that of a plan.
func TestForgottenApprovals(t *testing.T) {
	t.Parallel()
	for year, counts := range map[int]bool{2023: true, 2024: false} { // the commits are of November 2023
		until := metav1.NewTime(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		a := newAdversary(t, 1)
		a.head = a.commit(0, state{})
		a.sync()
		a.gs.Status.ForgottenUntil, a.gs.Status.PlanApprovalsForgottenUntil = &until, &until
		a.edit(0, func(s *state) { s.images[0] = 1 })
		a.sync()
		release := document{name: "web", namespace: "shop", commit: a.live["web"].Spec.Commit, at: 1}
		a.edit(1, func(s *state) { s.files[0] = release })
		a.sync()
		if got := a.live["web"].Spec.Approval; (got != nil) != counts {
			t.Errorf("until %d: the approval of the release is %+v", year, got)
		}
		a.edit(0, func(s *state) { s.variants[0] = 1 })
		agreed := document{name: "web", namespace: "shop", plan: termsOfVariant(1).Digest(), at: 2}
		a.edit(1, func(s *state) { s.files[1] = agreed })
		if terms, _ := a.sync(); (terms == termsOfVariant(1)) != counts {
			t.Errorf("until %d: %s governs", year, terms)
		}
	}
}
