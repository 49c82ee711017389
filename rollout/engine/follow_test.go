package engine_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// N changes while no release may go on. The existing ReplicaSets follow as far as writes
// pass, and nothing is made or handed back.
func TestFollow(t *testing.T) {
	refused := errors.New("refused")
	for _, tc := range []struct {
		name, why string
		n         int32
		edit      func(*engine.Observed)
		want      map[string]int32 // by revision, once nothing moves
	}{
		{name: "N grows, the template is refused", why: "the stable revision takes what comes", n: 12, want: map[string]int32{hashes[0]: 7, hashes[1]: 5},
			edit: func(o *engine.Observed) { o.Refused = refused }},
		{name: "N shrinks, the template is refused", why: "the release under way keeps the share of its step", n: 4, want: map[string]int32{hashes[0]: 2, hashes[1]: 2},
			edit: func(o *engine.Observed) { o.Refused = refused }},
		{name: "N grows, creations are refused", why: "resizes pass", n: 12, want: map[string]int32{hashes[0]: 7, hashes[1]: 5},
			edit: func(o *engine.Observed) {
				o.Refused, o.RefusedReason, o.CreationRefused = refused, v1alpha1.ReasonWriteRefused, true
			}},
		{name: "N shrinks, creations are refused", why: "resizes pass", n: 4, want: map[string]int32{hashes[0]: 2, hashes[1]: 2},
			edit: func(o *engine.Observed) {
				o.Refused, o.RefusedReason, o.CreationRefused = refused, v1alpha1.ReasonWriteRefused, true
			}},
		{name: "N grows, resizes are refused", why: "nothing passes", n: 12, want: map[string]int32{hashes[0]: 5, hashes[1]: 5},
			edit: func(o *engine.Observed) { o.Refused, o.RefusedReason = refused, v1alpha1.ReasonWriteRefused }},
		{name: "creations are refused, and the stable ReplicaSet is gone", why: "nothing takes its place", n: 12, want: map[string]int32{hashes[1]: 5, hashes[2]: 2},
			edit: func(o *engine.Observed) {
				o.Refused, o.RefusedReason, o.CreationRefused = refused, v1alpha1.ReasonWriteRefused, true
				o.ReplicaSets = o.ReplicaSets[1:]
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := at(0, "Blocking", 5, steps("50%", "100%")...)
			w.status.UpdateTemplateDigest = plan.TemplateDigest(templates[1])
			if len(tc.want) > 1 && tc.want[hashes[2]] > 0 {
				w.sets[2] = replicaSet{exists: true, size: 2, ready: 2, statusReady: 2, observed: true, desired: 10, maximum: 13}
			}
			w.scale(tc.n)
			for range 20 {
				o := w.observe()
				tc.edit(&o)
				d := engine.Decide(o, epoch)
				for _, a := range d.Actions {
					if _, ok := a.(engine.Resize); !ok {
						t.Fatalf("%s: %s", tc.why, a)
					}
					before := w.clone()
					w.do(a)
					w.checkWrite(t, before, a)
				}
				for i := range w.sets {
					w.turnReplicaSet(i)
					w.sets[i].ready, w.sets[i].pending = w.sets[i].size, 0
					w.turnReplicaSet(i)
				}
			}
			got := map[string]int32{}
			o := w.observe()
			tc.edit(&o)
			for _, rs := range o.ReplicaSets {
				if facts.Size(rs) > 0 {
					got[rs.Labels["pod-template-hash"]] = facts.Size(rs)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: sizes (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
