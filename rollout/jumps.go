package rollout

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

const (
	// smallestJump is what counts as a jump. The times of a status are whole seconds.
	smallestJump = 2 * time.Second
	// pauseInterval is when to look again at a release whose pause runs: its status then
	// follows a jump, before the process ends and the jump is forgotten.
	pauseInterval = time.Minute
)

// jumps sees by how much the clock of the machine jumps: it is compared with a time that
// nothing sets. What a status has is the clock's time, as other machines and people read it.
//
// A clock that is corrected little by little takes the other one with it, and is not seen.
type jumps struct {
	now    func() time.Time
	uptime func() time.Duration

	mu sync.Mutex
	of map[types.NamespacedName]*clocked
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

// decide decides on what was observed, at the time of now.
func (j *jumps) decide(o engine.Observed) engine.Decision {
	now, jumped := j.read(o.Release)
	o.Jumped = jumped
	d := engine.Decide(o, now)
	j.note(o.Release, &d.Status, jumped)
	return d
}

// refused returns the status that names what was refused.
func (j *jumps) refused(br *v1alpha1.BatchRelease, err error) (v1alpha1.BatchReleaseStatus, time.Duration) {
	now, jumped := j.read(br)
	status, wait := engine.Refused(br, err, now, jumped)
	j.note(br, &status, jumped)
	return status, wait
}

// read returns the time, and how far the clock has jumped since the status was written.
// A status that this process sees for the first time was written now, as far as it knows.
func (j *jumps) read(br *v1alpha1.BatchRelease) (now time.Time, jumped time.Duration) {
	now, ahead := j.clock()
	j.mu.Lock()
	defer j.mu.Unlock()
	key := client.ObjectKeyFromObject(br)
	of := j.of[key]
	if of == nil {
		of = &clocked{ahead: ahead}
		j.of[key] = of
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

// clock returns the time, and how far ahead of uptime that is. The process may have been
// stopped between two readings.
func (j *jumps) clock() (now time.Time, ahead time.Duration) {
	for {
		before := j.uptime()
		now = j.now()
		if at := j.uptime(); at-before < smallestJump/4 {
			return now, time.Duration(now.UnixNano()) - at
		}
	}
}

// note notes what was decided on. A status that stays as it was is not from now.
func (j *jumps) note(br *v1alpha1.BatchRelease, s *v1alpha1.BatchReleaseStatus, jumped time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of, times := j.of[client.ObjectKeyFromObject(br)], timesOf(s)
	if of == nil || times == timesOf(&br.Status) {
		return
	}
	of.decided = append(of.decided, decided{times, of.ahead + jumped})
	if more := len(of.decided) - keptDecisions; more > 0 {
		of.decided = slices.Delete(of.decided, 0, more)
	}
}

func (j *jumps) forget(release types.NamespacedName) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.of, release)
}

// untilNext returns when to look again after a round.
func untilNext(d engine.Decision) time.Duration {
	if d.Status.Reason == engine.ReasonWaitingForPause {
		return min(d.Wait, pauseInterval)
	}
	return d.Wait
}
