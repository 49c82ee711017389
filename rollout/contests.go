package rollout

import (
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/plan/contest"
)

// contests are the releases whose native Deployment has drifted. A hold is put back at
// once, however often another manager changes it.
type contests struct {
	mu sync.Mutex
	of map[types.NamespacedName]contest.Contest
}

// due returns how long drift is left, and who has changed what before.
func (c *contests) due(release types.NamespacedName, now time.Time) (time.Duration, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.of[release]
	return at.Due(now), at.By
}

// reverted notes that drift was reverted.
func (c *contests) reverted(release types.NamespacedName, now time.Time, by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[types.NamespacedName]contest.Contest{}
	}
	c.of[release] = c.of[release].Revert(now, strings.TrimPrefix(by, "; "))
}

func (c *contests) forget(release types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, release)
}
