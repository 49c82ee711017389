package engine

import (
	"fmt"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// failRelease gives up what Git brings, until Git says something else. It moves nothing.
func failRelease(d *draft, why string) {
	d.Status.FailedRevision, d.Status.FailedCommit, d.Status.FailedMessage = d.Brought.Name, d.Spec.Commit, why
	d.Status.FailedTemplateDigest = d.Brought.ID
	d.Course = d.Resolve(&d.Status)
	beginRelease(d)
}

// requestedRollback acts on the rollback annotation: first the status says
// what has failed, then the annotation goes.
func requestedRollback(d *draft) bool {
	if d.Release.Annotations[v1alpha1.AnnotationRollback] != "true" {
		return false
	}
	switch {
	case d.Forward() && !d.UnderWay():
		d.warn(v1alpha1.ReasonRollbackImpossible, fmt.Sprintf("it was asked for before %s came, which has not begun", d.Goal.Name))
		d.do(ClearRollback{Why: "another release has come since"})
		return false
	case !d.Forward() && position.Releasing(&d.Status) && !d.UnderWay() && !d.Failed():
		d.do(ClearRollback{Why: "Git has gone back"})
		return false
	case d.Failed() || d.Status.RollingBack:
		d.do(ClearRollback{Why: "the rollback has begun"})
		return false
	case d.Brought == nil || d.Brought == d.Stable && d.Recorded(1) == nil:
		d.warn(v1alpha1.ReasonRollbackImpossible, "nothing that was stable before is known")
		d.do(ClearRollback{Why: "there is nothing to go back to"})
		return false
	}
	failRelease(d, "asked for in the cluster")
	return true
}

func (d *draft) clearFailed() {
	d.Status.FailedRevision, d.Status.FailedCommit, d.Status.FailedTemplateDigest, d.Status.FailedMessage = "", "", "", ""
}
