package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// A Deployment is left alone in the middle of a release. The release goes on to its end,
// and the one that comes meanwhile begins when the annotation is gone.
func TestLeftAloneInTheMiddle(t *testing.T) {
	t.Parallel()
	s := atGate(t, 4)
	revision := s.release().Status.UpdateRevision
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "tranche.dev/reconcile=disabled")
	s.bring("v3")
	clustertest.Wait(t, "the status to say that v3 waits", func() error {
		br := s.release()
		if m := br.Status.Message; br.Status.ObservedGeneration != br.Generation || br.Status.Reason != v1alpha1.ReasonWaitingForApproval || !strings.Contains(m, "spec brings another release, which waits") {
			return fmt.Errorf("%s: %s", br.Status.Reason, m)
		}
		return nil
	})
	s.become(map[string]int32{"v1": 3, "v2": 1})
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Approval = &v1alpha1.Approval{Revision: revision, Commit: commitOf("v2"), Step: 0}
	})
	s.waitFor(v1alpha1.ReasonReleasePaused, 0, map[string]int32{"v2": 4}) // of v3
	if d := s.deployment("web"); engine.Held(d) {
		t.Error("it stays held")
	}
	s.stay(map[string]int32{"v2": 4})
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "tranche.dev/reconcile-")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v2": 3, "v3": 1})
}
