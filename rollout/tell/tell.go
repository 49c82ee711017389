package tell

import (
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

const (
	// sizesInterval is the least time between two events of the sizes that a step writes.
	sizesInterval = 5 * time.Second
	// longestNote is how many bytes the API server takes as the note of an event.
	longestNote = 1024
)

// Teller sends events. It is safe for use by several goroutines.
type Teller struct {
	recorder events.EventRecorder
	now      func() time.Time

	mu    sync.Mutex
	sizes map[types.NamespacedName]*sizes // by BatchRelease
}

// sizes are the writes of sizes of a release that no event has yet.
type sizes struct {
	sent  time.Time // when the last event was
	notes []string
	why   string
}

// New returns a Teller that sends through a recorder.
func New(recorder events.EventRecorder, now func() time.Time) *Teller {
	return &Teller{recorder: recorder, now: now, sizes: map[types.NamespacedName]*sizes{}}
}

// Tell sends an event of an object.
func (t *Teller) Tell(about client.Object, e engine.Event) {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	t.recorder.Eventf(about, nil, kind, e.Reason, "Release", "%s", shorten(e.Message))
}

// Decided sends the events of a decision on a release. Drift concerns the Deployment, too:
// culprit says who has changed what. Decided reports whether there was any.
func (t *Teller) Decided(release *v1alpha1.BatchRelease, d *appsv1.Deployment, decided []engine.Event, culprit string) (drifted bool) {
	for _, e := range decided {
		drift := e.Reason == v1alpha1.ReasonDriftCorrected
		if drift {
			e.Message += culprit
			t.Tell(d, e)
		}
		t.Tell(release, e)
		drifted = drifted || drift
	}
	return drifted
}

// shorten cuts a note that the API server would refuse.
func shorten(note string) string {
	const cut = "…"
	if len(note) <= longestNote {
		return note
	}
	return strings.ToValidUTF8(note[:longestNote-len(cut)], "") + cut
}

// Of returns the event of a write to a Deployment. There is none of records, labels and
// annotations: they repeat what another event says.
func Of(a engine.Action) (e engine.Event, ok bool) {
	e.Message = a.String() + ", " + a.Because()
	switch a := a.(type) {
	case engine.Hold:
		e.Reason = v1alpha1.ReasonHeld
	case engine.HandBack:
		e.Reason = v1alpha1.ReasonHandedBack
	case engine.Unlabel:
		e.Reason = v1alpha1.ReasonNotHeld
	case engine.CreateReplicaSet:
		e.Reason = v1alpha1.ReasonScalingReplicaSet
	case engine.Resize:
		if a.To == ptr.Deref(a.ReplicaSet.Spec.Replicas, 1) {
			return e, false
		}
		e.Reason = v1alpha1.ReasonScalingReplicaSet
	default:
		return e, false
	}
	return e, true
}

// Written tells of a write that a release has made to its Deployment. Sizes wait for
// [Teller.Sizes].
func (t *Teller) Written(release types.NamespacedName, d client.Object, a engine.Action) {
	e, ok := Of(a)
	if !ok {
		return
	}
	if e.Reason != v1alpha1.ReasonScalingReplicaSet {
		t.Tell(d, e)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sizes[release]
	if s == nil {
		s = &sizes{}
		t.sizes[release] = s
	}
	if s.why != "" && s.why != a.Because() {
		s.notes[len(s.notes)-1] += ", " + s.why
	}
	s.notes, s.why = append(s.notes, a.String()), a.Because()
}

// Sizes tells of the sizes that a release has written, in one event. It tells of the first ones
// of a step at once. If pods come one after another, the next ones wait for [sizesInterval], or
// until the step has ended.
func (t *Teller) Sizes(release types.NamespacedName, d client.Object, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.sizes[release]
	if s == nil || len(s.notes) == 0 || !ended && t.now().Sub(s.sent).Abs() < sizesInterval {
		return
	}
	t.Tell(d, engine.Event{Reason: v1alpha1.ReasonScalingReplicaSet, Message: strings.Join(s.notes, "; ") + ", " + s.why})
	if *s = (sizes{sent: t.now()}); ended {
		delete(t.sizes, release)
	}
}

// Forget removes what is kept of a BatchRelease.
func (t *Teller) Forget(release types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.sizes, release)
}
