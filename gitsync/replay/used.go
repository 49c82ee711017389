package replay

import (
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// IsUsed reports whether the approval of a plan has been used. A commit is known by what its
// signature covers, since the signature itself can be written in other ways.
func (c *Check) IsUsed(digest, payload string) bool {
	return slices.ContainsFunc(c.Source.Status.UsedPlanApprovals, func(u v1alpha1.UsedPlanApproval) bool {
		return u.Plan == digest && u.Payload == payload
	})
}

// PlanForgotten says why the approval of a plan that a commit brought may be one that was used
// and is not known any more. It returns an empty string if it cannot be.
func (c *Check) PlanForgotten(commit plumbing.Hash) (string, error) {
	return c.forgotten(commit, plansForgottenUntil(&c.Source.Status, time.Now()))
}

// maxUsed bounds the approvals that a GitSource knows to have been used.
const maxUsed = 256

// UsePlanApprovals adds approvals to those that have been used. For approvals that the bound
// removes, only the newest date stays.
func UsePlanApprovals(status *v1alpha1.GitSourceStatus, now time.Time, approvals []v1alpha1.UsedPlanApproval) {
	until := plansForgottenUntil(status, now)
	for _, a := range approvals {
		is := func(u v1alpha1.UsedPlanApproval) bool { return u.Plan == a.Plan && u.Payload == a.Payload }
		if !slices.ContainsFunc(status.UsedPlanApprovals, is) {
			status.UsedPlanApprovals = slices.Insert(status.UsedPlanApprovals, 0, a)
		}
	}
	bound := min(len(status.UsedPlanApprovals), maxUsed)
	for _, a := range status.UsedPlanApprovals[bound:] {
		if date := dateOf(a, now); until == nil || until.Before(date) {
			until = date
		}
	}
	status.UsedPlanApprovals, status.PlanApprovalsForgottenUntil = status.UsedPlanApprovals[:bound], until
}

// dateOf returns the date of an approval, and now where it is not known or yet to come.
func dateOf(a v1alpha1.UsedPlanApproval, now time.Time) *metav1.Time {
	if a.Time == nil || a.Time.After(now) {
		return &metav1.Time{Time: now}
	}
	return a.Time
}

// plansForgottenUntil returns until when used approvals of plans may be missing in the
// status, or nil. An earlier version has written no dates: its full list may have lost any.
func plansForgottenUntil(status *v1alpha1.GitSourceStatus, now time.Time) *metav1.Time {
	if u := status.UsedPlanApprovals; status.PlanApprovalsForgottenUntil == nil && len(u) >= maxUsed && u[len(u)-1].Time == nil {
		return &metav1.Time{Time: now}
	}
	return status.PlanApprovalsForgottenUntil
}
