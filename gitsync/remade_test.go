package gitsync_test

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const threeSteps = `apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  workloadRef: {name: web}
  strategy:
    steps:
    - replicas: 1
    - replicas: 2
    - replicas: 100%
`

// A BatchRelease that is deleted in the middle of a release and made again has another
// release, or none. Approvals of the former one are history, and no difference.
// Approvals of it that come afterwards are reported.
func TestApprovalOfARemadeRelease(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	wide := func(image string) string { return web(image, "replicas: 2", "replicas: 4") }
	s.applied2(s.push(map[string]string{"deploy/web.yaml": wide("v1"), "deploy/plan.yaml": threeSteps}))
	s.isAt("web", "ReleaseCompleted", 2)
	former := s.push(map[string]string{"deploy/web.yaml": wide("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	before := s.release("web")
	const file = "deploy/approvals/web.yaml"
	s.push(map[string]string{file: approvalOf("web", before.Status.UpdateRevision, former, "0")})
	s.isAt("web", "WaitingForApproval", 1)
	s.applied(s.push(map[string]string{"README.md": "more\n"}))
	s.kubectl("delete", "batchrelease/web") // the native controller brings the rest
	s.lookNow()
	s.isAt("web", "ReleaseCompleted", 2)
	if now := s.release("web"); now.UID == before.UID || now.Spec.Commit == former {
		t.Fatalf("it is %s of %s, and was %s", now.UID, now.Spec.Commit, before.UID)
	}
	s.lookNow()
	s.says("True InSync")
	s.push(map[string]string{file: approvalOf("web", before.Status.UpdateRevision, former, "1")})
	s.says("False ApprovalIgnored: " + file + ": BatchApproval " + s.ns + "/web: spec.commit: " + former)
}

// A Deployment that is left alone gets no approval from Git, and the status says so. It
// does not say that the approval is for another release than that of Git, which is not
// under way.
func TestApprovalOfWhatIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	release := s.release("web")
	s.kubectl("annotate", "deployment/web", "tranche.dev/reconcile=disabled")
	s.push(manifests("v3"))
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", release.Status.UpdateRevision, release.Spec.Commit, "0")})
	s.says("False LeftAlone")
	if m := s.inSync().Message; strings.Contains(m, "another release") {
		t.Errorf("it says %q, and the approval is of what is under way", m)
	}
	s.kubectl("annotate", "deployment/web", "tranche.dev/reconcile-")
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	if h := s.release("web").Status.History; len(h) == 0 || h[0].Outcome != v1alpha1.OutcomeSuperseded {
		t.Errorf("the history is %+v", h)
	}
}
