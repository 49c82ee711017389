package requests

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The end of an installation is no decision, if its sync had no approval to judge. All else
// that a status may say first is one.
func TestNewDecision_Installation(t *testing.T) {
	for _, tc := range []struct {
		reason     string
		edit       func(before, after *v1alpha1.BatchRelease)
		installing bool
		want       bool
	}{
		{reason: "an installation", installing: true, want: false},
		{reason: "a later sync has installed it", want: true},
		{reason: "an approval came with it", installing: true, want: true, edit: func(before, after *v1alpha1.BatchRelease) {
			before.Spec.Approval, after.Spec.Approval = &v1alpha1.Approval{}, &v1alpha1.Approval{}
		}},
		{reason: "it had a status", installing: true, want: true, edit: func(before, _ *v1alpha1.BatchRelease) {
			before.Status.Phase = v1alpha1.PhaseRollingUpdate
		}},
		{reason: "a release begins", installing: true, want: true, edit: func(_, after *v1alpha1.BatchRelease) {
			after.Status.Phase = v1alpha1.PhaseRollingUpdate
		}},
		{reason: "a status that was copied", installing: true, want: true, edit: func(_, after *v1alpha1.BatchRelease) {
			after.Status.History = []v1alpha1.ReleaseRecord{{Commit: "b"}}
		}},
		{reason: "it has failed before", installing: true, want: true, edit: func(_, after *v1alpha1.BatchRelease) {
			after.Status.FailedRevision = "web-1"
		}},
	} {
		labels := map[string]string{v1alpha1.LabelSourceNamespace: "shop", v1alpha1.LabelSource: "web"}
		before := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1alpha1.BatchReleaseSpec{Commit: "a"}}
		after := before.DeepCopy()
		after.Status = v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseCompleted, UpdateCommit: "a", UpdateRevision: "web-0"}
		if tc.edit != nil {
			tc.edit(before, after)
		}
		w := &Watches{Installing: func(source types.NamespacedName) bool {
			return tc.installing && source == types.NamespacedName{Namespace: "shop", Name: "web"}
		}}
		if got := w.NewDecision().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
			t.Errorf("%s: a sync is requested: %t, want %t", tc.reason, got, tc.want)
		}
	}
}
