// Package contest counts how often drift of one object was reverted, and says when to
// revert it again. It takes times and reads no clock.
package contest

import "time"

const (
	// firstPause is how long a second change of an object stays, after the first was
	// reverted.
	firstPause = time.Second
	// longestPause is how long a change stays at most.
	longestPause = 5 * time.Minute
	// quiet is after how long without a change the next one is the first, at least.
	quiet        = time.Minute
	maxDoublings = 20 // more would not fit into a duration
)

// Contest counts how often drift of one object was reverted. A controller that sets the
// field to its own value after each revert would otherwise make both write without end.
// The zero value is that of an object without drift.
type Contest struct {
	// Reverts since the last quiet time.
	Reverts int
	// Last is when the last one was made.
	Last time.Time
	// By says who had changed which fields.
	By string
}

// pause is how long a change stays after the last revert.
func (c Contest) pause() time.Duration {
	if c.Reverts == 0 {
		return 0
	}
	return min(firstPause<<min(c.Reverts-1, maxDoublings), longestPause)
}

// isOver reports whether no change has come for so long that the next one is the first.
func (c Contest) isOver(now time.Time) bool {
	return now.Sub(c.Last) > max(quiet, 2*c.pause())
}

// Due returns how long a change that is there now stays. The first one stays not at all,
// and each later one twice as long as the one before.
func (c Contest) Due(now time.Time) time.Duration {
	if c.isOver(now) {
		return 0
	}
	return max(0, c.Last.Add(c.pause()).Sub(now))
}

// Goes reports whether changes come again after reverts.
func (c Contest) Goes(now time.Time) bool { return c.Reverts > 1 && !c.isOver(now) }

// Revert returns the contest after a revert.
func (c Contest) Revert(now time.Time, by string) Contest {
	if c.isOver(now) {
		c.Reverts = 0
	}
	return Contest{Reverts: c.Reverts + 1, Last: now, By: by}
}

// Until is what messages say of a contest, after who changes what.
const Until = ", again after each revert; reverts are made less and less often, at most 5m apart"
