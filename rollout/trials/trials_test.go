package trials_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/trials"
)

var errInVain = errors.New("refused")

// Each write in vain doubles the time to the next one, to an hour. A
// change of the BatchRelease by a user ends the wait, and one of its status does not.
func TestTrials(t *testing.T) {
	trials := trials.New[error]()
	br := &v1alpha1.BatchRelease{}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		trials.Note(br, errInVain, now)
		br.ResourceVersion, br.Status.Message = "2", "refused"
		if _, waits := trials.Last(br, now.Add(want*time.Minute-time.Second)); !waits {
			t.Errorf("write %d is tried again within %d minutes", i, want)
		}
		now = now.Add(want * time.Minute)
		if came, waits := trials.Last(br, now); waits || came == nil {
			t.Errorf("write %d waits after %d minutes: %t, and is known: %t", i, want, waits, came != nil)
		}
	}
	trials.Note(br, errInVain, now)
	br.Annotations = map[string]string{"look": "again"}
	if came, waits := trials.Last(br, now); waits || came != nil {
		t.Error("an annotation does not end the wait")
	}
}
