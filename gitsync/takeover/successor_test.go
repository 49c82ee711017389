package takeover

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The new plan has the status of the other until it governs. So it is if both were created in
// one second and its name is the first.
func TestTakesOver(t *testing.T) {
	at := func(name string, second int64, phase v1alpha1.ReleasePhase, observed int64) *v1alpha1.BatchRelease {
		return &v1alpha1.BatchRelease{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0))},
			Status:     v1alpha1.BatchReleaseStatus{Phase: phase, ObservedGeneration: observed},
		}
	}
	for _, tc := range []struct {
		why            string
		successor, old *v1alpha1.BatchRelease
		want           bool
	}{
		{"it is new", at("next", 2, "", 0), at("web", 1, v1alpha1.PhaseRollingUpdate, 3), true},
		{"it has the status, and the old one is there", at("next", 2, v1alpha1.PhaseRollingUpdate, 0),
			at("web", 1, v1alpha1.PhaseRollingUpdate, 3), true},
		{"the same in one second", at("next", 1, v1alpha1.PhaseRollingUpdate, 0), at("web", 1, v1alpha1.PhaseRollingUpdate, 3), true},
		{"the old name again", at("web", 1, v1alpha1.PhaseRollingUpdate, 3), at("next", 2, v1alpha1.PhaseRollingUpdate, 0), false},
		{"the old name again, in one second", at("api", 1, v1alpha1.PhaseRollingUpdate, 3), at("next", 1, v1alpha1.PhaseRollingUpdate, 0), false},
	} {
		if got := TakesOver(tc.successor, tc.old); got != tc.want {
			t.Errorf("%s: %t", tc.why, got)
		}
	}
}
