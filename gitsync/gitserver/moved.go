package gitserver

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// MaxMoved is how often in one sync a branch may be found to have moved. After that
	// the sync ends and another one is requested.
	MaxMoved = 8
	// firstPause is about how long the first wait is when the branch has
	// moved; each one after it is twice as long.
	firstPause = 20 * time.Millisecond
)

// PauseMoved waits before the branch is fetched again, longer each time and
// never as long as another controller would. It returns false at the end of ctx.
func PauseMoved(ctx context.Context, moved int) bool {
	d := firstPause << (moved - 1)
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
