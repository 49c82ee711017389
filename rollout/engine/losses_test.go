package engine_test

import (
	"testing"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Pods that come and go at a gate have their deadline once. Each loss is shorter than it, and
// their sum is not.
func TestLosses_AddUp(t *testing.T) {
	c := newCluster(ten())
	for _, m := range []string{"quiet", "bring 2", "quiet"} {
		c.exec(m)
	}
	began := c.now
	for c.now.Sub(began) < 20*time.Minute {
		for _, m := range []string{"break 2", "sets 2", "round", "time 2m", "round", "mend 2", "ready 2", "sets 2", "round", "time 5s", "round"} {
			c.exec(m)
			if c.br.Status.Reason != v1alpha1.ReasonProgressDeadlineExceeded {
				continue
			}
			if lasted := c.now.Sub(began); lasted < 8*time.Minute {
				t.Errorf("it ended after %s, and the deadline is ten minutes", lasted)
			}
			return
		}
	}
	t.Errorf("a pod was away for two minutes, again and again, and no deadline ends: %s", c)
}
