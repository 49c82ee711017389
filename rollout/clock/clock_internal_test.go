package clock

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A status is corrected once for each jump, whatever becomes of the writes: refused,
// made without an answer, or read late.
func TestClock(t *testing.T) {
	const hour, second = time.Hour, time.Second
	at := func(seconds int64) *metav1.Time { return &metav1.Time{Time: time.Unix(1_000_000+seconds, 0)} }
	written := func(seconds int64) *v1alpha1.BatchRelease {
		return &v1alpha1.BatchRelease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Status:     v1alpha1.BatchReleaseStatus{StepStateTime: at(seconds), LastUpdateTime: at(seconds)},
		}
	}
	type look struct {
		wall, up time.Duration // both clocks, at the look
		reads    int64         // the status that is read, by its times
		jumped   time.Duration
		decides  int64 // the status that is decided on
	}
	for name, looks := range map[string][]look{
		"time passes":                   {{0, 0, 0, 0, 0}, {hour, hour, 0, 0, 5}, {2 * hour, 2 * hour, 5, 0, 5}},
		"no jump before the first look": {{hour, 0, 0, 0, 0}, {hour + second, second, 0, 0, 0}},
		"the status follows":            {{0, 0, 0, 0, 0}, {hour, 0, 0, hour, 3600}, {hour, 0, 3600, 0, 3600}},
		"the write is refused":          {{0, 0, 0, 0, 0}, {hour, 0, 0, hour, 3600}, {hour, 0, 0, hour, 3600}, {hour, 0, 3600, 0, 3600}},
		"read late, after another decision": {{0, 0, 0, 0, 0}, {hour, 0, 0, hour, 3600}, {hour + second, second, 0, hour, 3601},
			{hour + second, second, 3600, 0, 3600}},
		"ahead and back":               {{0, 0, 0, 0, 0}, {hour, 0, 0, hour, 3600}, {0, 0, 3600, -hour, 0}, {0, 0, 0, 0, 0}},
		"ahead and back at once":       {{0, 0, 0, 0, 0}, {hour, 0, 0, hour, 3600}, {0, 0, 0, 0, 0}},
		"between decision and reading": {{0, 0, 0, 0, 7}, {hour, 0, 7, hour, 3607}, {hour, 0, 3607, 0, 3607}},
		"written by others":            {{0, 0, 0, 0, 0}, {hour, 0, 9, hour, 3609}, {hour, 0, 3609, 0, 3609}},
		"small ones add up":            {{0, 0, 0, 0, 0}, {second, 0, 0, 0, 0}, {2 * second, 0, 0, 2 * second, 2}, {2 * second, 0, 2, 0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var wall, up time.Duration
			c := &Clock{
				now:    func() time.Time { return at(0).Add(wall) },
				uptime: func() time.Duration { return up },
				of:     map[types.NamespacedName]*clocked{},
			}
			for i, l := range looks {
				wall, up = l.wall, l.up
				br := written(l.reads)
				now, jumped := c.read(br)
				if !now.Equal(at(0).Add(l.wall)) || jumped != l.jumped {
					t.Errorf("look %d: %s, jumped %s, want %s", i, now, jumped, l.jumped)
				}
				c.note(br, &written(l.decides).Status, jumped)
			}
		})
	}
}

// A process that is stopped between two readings sees no jump.
func TestClock_Stopped(t *testing.T) {
	began, uptime, stopped := time.Now(), time.Duration(0), false
	c := &Clock{
		now: func() time.Time {
			at := began.Add(uptime)
			if !stopped {
				stopped, uptime = true, uptime+time.Hour
			}
			return at
		},
		uptime: func() time.Duration { return uptime },
	}
	if now, ahead := c.readings(); !now.Equal(began.Add(time.Hour)) || ahead != time.Duration(began.UnixNano()) {
		t.Errorf("%s, %s ahead", now, ahead)
	}
}
