// Package clock decides at the right time on a machine whose clock jumps.
package clock

import (
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// smallestJump is what counts as a jump. The times of a status are whole seconds.
const smallestJump = 2 * time.Second

// Clock sees by how much the clock of the machine jumps: it is compared with a time that
// nothing sets. Times in a status are the clock's, as other machines and users read them.
//
// A clock that is corrected little by little takes the other one with it, and is not seen.
type Clock struct {
	now    func() time.Time
	uptime func() time.Duration

	mu sync.Mutex
	of map[types.NamespacedName]*clocked
}

// New returns a Clock of two functions: the time of the machine, and a time that nothing
// sets, from any moment on.
func New(now func() time.Time, uptime func() time.Duration) *Clock {
	return &Clock{now: now, uptime: uptime, of: map[types.NamespacedName]*clocked{}}
}

// clocked is what is known of the times in the status of a release.
type clocked struct {
	ahead time.Duration // of the clock when they were written, compared with uptime
	// decided are the last decisions. Which of them is in the status is seen by reading
	// it: the answer to a write may be lost.
	decided []decided
}

// decided are the times that a decision has in its status, and what ahead is once that
// is written.
type decided struct {
	times statusTimes
	ahead time.Duration
}

// keptDecisions is how many decisions on a release may have been made on an older status
// than that of the first of them.
const keptDecisions = 8

// statusTimes are times of a status, in seconds.
type statusTimes [4]int64

func timesOf(s *v1alpha1.BatchReleaseStatus) (seconds statusTimes) {
	for i, t := range []*metav1.Time{s.StepStateTime, s.ProgressTime, s.ReasonTime, s.LastUpdateTime} {
		if t != nil {
			seconds[i] = t.Unix()
		}
	}
	return seconds
}

// Decide decides on what was observed, at the time of now.
func (c *Clock) Decide(o engine.Observed) engine.Decision {
	now, jumped := c.read(o.Release)
	o.Jumped = jumped
	d := engine.Decide(o, now)
	c.note(o.Release, &d.Status, jumped)
	return d
}

// Refused returns the status that names what was refused.
func (c *Clock) Refused(o engine.Observed, err error) (v1alpha1.BatchReleaseStatus, time.Duration) {
	now, jumped := c.read(o.Release)
	o.Jumped = jumped
	status, wait := engine.Refused(o, err, now)
	c.note(o.Release, &status, jumped)
	return status, wait
}

// read returns the time, and how far the clock has jumped since the status was written.
// A status that this process sees for the first time was written now, as far as it knows.
func (c *Clock) read(br *v1alpha1.BatchRelease) (now time.Time, jumped time.Duration) {
	now, ahead := c.readings()
	c.mu.Lock()
	defer c.mu.Unlock()
	key := client.ObjectKeyFromObject(br)
	of := c.of[key]
	if of == nil {
		of = &clocked{ahead: ahead}
		c.of[key] = of
	}
	times := timesOf(&br.Status)
	for _, d := range of.decided {
		if d.times == times {
			of.ahead = d.ahead
		}
	}
	if jumped = ahead - of.ahead; jumped.Abs() < smallestJump {
		return now, 0
	}
	return now, jumped
}

// readings returns the time, and how far ahead of uptime that is. The process may have been
// stopped between two readings.
func (c *Clock) readings() (now time.Time, ahead time.Duration) {
	for {
		before := c.uptime()
		now = c.now()
		if at := c.uptime(); at-before < smallestJump/4 {
			return now, time.Duration(now.UnixNano()) - at
		}
	}
}

// note notes what was decided on. A status that stays as it was is not from now.
func (c *Clock) note(br *v1alpha1.BatchRelease, s *v1alpha1.BatchReleaseStatus, jumped time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, times := c.of[client.ObjectKeyFromObject(br)], timesOf(s)
	if of == nil || times == timesOf(&br.Status) {
		return
	}
	of.decided = append(of.decided, decided{times, of.ahead + jumped})
	if more := len(of.decided) - keptDecisions; more > 0 {
		of.decided = slices.Delete(of.decided, 0, more)
	}
}

// Forget forgets a release that is gone.
func (c *Clock) Forget(release types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.of, release)
}
