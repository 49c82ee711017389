package gitsync_test

import (
	"strings"
	"testing"
)

// A finalizer keeps a BatchRelease that a user has deleted, and its plan gets another name in
// Git. The release has ended with the deletion: the new BatchRelease has none of its status,
// and its gates ask again. The Deployment stays held, and no pod moves.
func TestPlanRenamed_WhileItIsDeleted(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	s.finalizers(`"example.org/hostage"`)
	before, held, thaw := s.release("web"), s.recordDeployments(), s.freeze()
	s.kubectl("delete", "batchrelease/web", "--wait=false")
	s.handBackIsRefused()
	s.applied(s.push(map[string]string{
		"deploy/plan.yaml":          strings.Replace(webPlan, "name: web", "name: next", 1),
		"deploy/approvals/web.yaml": approvalOf("next", before.Status.UpdateRevision, before.Spec.Commit, "0"),
	}))
	thaw()
	s.isAt("next", "WaitingForApproval", 0)
	next := s.release("next")
	if next.Spec.Commit == before.Spec.Commit || next.Spec.Approval != nil {
		t.Errorf("it is of commit %s, with approval %v", next.Spec.Commit, next.Spec.Approval)
	}
	s.staysHeld(held)
	s.finalizers("")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("next", next.Status.UpdateRevision, next.Spec.Commit, "0")})
	s.isAt("next", "ReleaseCompleted", 1)
}
