package engine

import (
	"fmt"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// failRelease gives up what Git brings, until Git says something else. It moves nothing.
func failRelease(d *draft, why string) {
	d.status.FailedRevision, d.status.FailedCommit, d.status.FailedMessage = d.brought.name, d.spec.Commit, why
	d.status.FailedTemplateDigest = d.brought.id
	d.course = d.resolve(&d.status)
	beginRelease(d)
}

// requestedRollback acts on the rollback annotation: first the status says
// what has failed, then the annotation goes.
func requestedRollback(d *draft) bool {
	if d.Release.Annotations[v1alpha1.AnnotationRollback] != "true" {
		return false
	}
	switch {
	case d.forward() && !d.underWay():
		d.warn(v1alpha1.ReasonRollbackImpossible, fmt.Sprintf("it was asked for before %s came, which has not begun", d.goal.name))
		d.do(ClearRollback{because: "another release has come since"})
		return false
	case !d.forward() && releasing(&d.status) && !d.underWay() && !d.failed():
		d.do(ClearRollback{because: "Git has gone back"})
		return false
	case d.failed() || d.status.RollingBack:
		d.do(ClearRollback{because: "the rollback has begun"})
		return false
	case d.brought == nil || d.brought == d.stable && d.recorded(1) == nil:
		d.warn(v1alpha1.ReasonRollbackImpossible, "nothing that was stable before is known")
		d.do(ClearRollback{because: "there is nothing to go back to"})
		return false
	}
	failRelease(d, "asked for in the cluster")
	return true
}

func (d *draft) clearFailed() {
	d.status.FailedRevision, d.status.FailedCommit, d.status.FailedTemplateDigest, d.status.FailedMessage = "", "", "", ""
}
