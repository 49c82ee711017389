package rollout

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Each write that admission changes doubles the time to the next one, to an hour. A
// change of the BatchRelease by a user ends the wait, and one of its status does not.
func TestTrials(t *testing.T) {
	trials := &trials{of: map[types.NamespacedName]*trial{}}
	br := &v1alpha1.BatchRelease{}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		trials.note(br, &replicaSetChanged{replicaSet: "web-1"}, now)
		br.ResourceVersion, br.Status.Message = "2", "refused"
		if _, waits := trials.last(br, now.Add(want*time.Minute-time.Second)); !waits {
			t.Errorf("write %d is tried again within %d minutes", i, want)
		}
		now = now.Add(want * time.Minute)
		if changed, waits := trials.last(br, now); waits || changed == nil {
			t.Errorf("write %d waits after %d minutes: %t, and is known: %t", i, want, waits, changed != nil)
		}
	}
	trials.note(br, &replicaSetChanged{replicaSet: "web-1"}, now)
	br.Annotations = map[string]string{"look": "again"}
	if changed, waits := trials.last(br, now); waits || changed != nil {
		t.Error("an annotation does not end the wait")
	}
}
