package engine_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// A held Deployment has lost its records. Its template becomes stable only where that
// opens no gate (I3). The release at 2 of 10 pods has a closed gate.
func TestLostRecords(t *testing.T) {
	none := replicaSet{}
	of := func(n int32) replicaSet {
		return replicaSet{exists: true, size: n, ready: n, statusReady: n, observed: true, desired: 10, maximum: 13}
	}
	const stalled = "" // no revision becomes stable
	for _, tc := range []struct {
		why    string
		sets   [3]replicaSet
		edit   func(*world)
		stable string
	}{
		{"nothing runs, and nothing is known of the stable revision", [3]replicaSet{}, nil, stalled},
		{"only pods of the update revision are left", [3]replicaSet{none, of(2)}, nil, stalled},
		{"a revision that was superseded is not the stable one", [3]replicaSet{none, of(2), of(5)}, nil, stalled},
		{"the status is lost, too: the hold says that a release is under way", [3]replicaSet{none, of(2)},
			func(w *world) { w.status = v1alpha1.BatchReleaseStatus{} }, stalled},
		{"an old back-up: its status names another release", [3]replicaSet{}, func(w *world) {
			w.status.Phase, w.status.UpdateRevision = v1alpha1.PhaseCompleted, hashes[0]
		}, stalled},
		{"at 0 replicas all pods would come up on the update revision", [3]replicaSet{none, of(0)}, func(w *world) { w.n = 0 }, stalled},
		{"strategy was changed by hand", [3]replicaSet{}, func(w *world) { w.recreate = false }, stalled},
		{"the ReplicaSet of the stable revision is there", [3]replicaSet{of(8), of(2)}, nil, hashes[0]},
		{"it has no pods", [3]replicaSet{of(0), of(2)}, nil, hashes[0]},
		{"it has fewer pods than one that was superseded", [3]replicaSet{of(1), of(2), of(7)}, nil, hashes[0]},
		{"the status is lost, too: what runs besides the template is stable", [3]replicaSet{of(8), of(2)},
			func(w *world) { w.status = v1alpha1.BatchReleaseStatus{} }, hashes[0]},
		{"Git brings the stable template back", [3]replicaSet{}, func(w *world) { w.brought = 0 }, hashes[0]},
		{"the status is lost, too, nothing runs, and Git brings another template", [3]replicaSet{}, func(w *world) {
			w.status, w.brought = v1alpha1.BatchReleaseStatus{}, 0
		}, hashes[0]},
		{"the status is lost, too, and nothing runs: Git brings what is under release", [3]replicaSet{},
			func(w *world) { w.status = v1alpha1.BatchReleaseStatus{} }, stalled},
		{"the status is lost, too, pods of the update revision run, and Git brings another template", [3]replicaSet{none, of(2)}, func(w *world) {
			w.status, w.brought = v1alpha1.BatchReleaseStatus{}, 0
		}, stalled},
		{"all pods run the template", [3]replicaSet{none, of(10)}, nil, hashes[1]},
		{"the last gate has opened", [3]replicaSet{none, of(7)}, func(w *world) {
			w.status.OpenedReplicas = []intstr.IntOrString{plan.Full}
		}, hashes[1]},
		{"the hold is a rollback's", [3]replicaSet{}, func(w *world) {
			w.template, w.brought, w.status.RollingBack, w.status.UpdateRevision = 0, 0, true, hashes[0]
		}, hashes[0]},
	} {
		t.Run(tc.why, func(t *testing.T) {
			w := at(0, v1alpha1.StepBlocking, 2, steps("20%", "50%", "100%")...)
			w.records, w.releasing = nil, nil
			copy(w.sets[:], tc.sets[:])
			if tc.edit != nil {
				tc.edit(w)
			}
			o := w.observe()
			before := o.Release.Status
			d := engine.Decide(o, epoch)
			var stable string
			for _, a := range d.Actions {
				if r, ok := a.(engine.Remember); ok && r.Record.Order > 0 {
					stable = r.Record.Revision
				}
			}
			if stable != tc.stable {
				t.Errorf("%q becomes stable, want %q: %v", stable, tc.stable, d.Actions)
			}
			if tc.stable != stalled {
				return
			}
			s := d.Status
			if len(d.Actions) > 0 || s.Reason != v1alpha1.ReasonRecordsLost ||
				!meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled) || d.Wait != engine.RefusedInterval {
				t.Errorf("%s: %s, wait %s, %v", s.Reason, s.Message, d.Wait, d.Actions)
			}
			if !meta.IsStatusConditionPresentAndEqual(s.Conditions, v1alpha1.ConditionHeld, metav1.ConditionTrue) {
				t.Error("Held is not True")
			}
			if s.StableRevision != before.StableRevision || s.Phase != before.Phase || !slices.Equal(s.OpenedReplicas, before.OpenedReplicas) {
				t.Errorf("the status is forgotten: %+v", s)
			}
			if !strings.Contains(s.Message, before.StableRevision) || !strings.Contains(s.Message, "estore") {
				t.Errorf("message %q", s.Message)
			}
		})
	}
}
