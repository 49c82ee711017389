package rollout

import (
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/failures"
	"github.com/tranche-dev/tranche/rollout/trials"
)

// A growth that needs no room is tried while it waits, and is refused again. That makes the
// wait no longer. Its own success ends the wait, and that of another ReplicaSet does not.
func TestGrowths(t *testing.T) {
	update := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: "update"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](4)}}
	stable := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: "stable"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](2)}}
	err := failures.OfSize(update, 6, apierrors.NewForbidden(schema.GroupResource{Resource: "replicasets"}, "web-2", errors.New("refused")))
	refused, ok := errors.AsType[*failures.GrowthRefused](err)
	if !ok {
		t.Fatal(err)
	}
	g := &growths{inVain: trials.New[*failures.GrowthRefused]()}
	br, now := &v1alpha1.BatchRelease{}, time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	growth := engine.Resize{ReplicaSet: update, To: 6}
	afterRoom := engine.Decision{Growth: &growth, Actions: []engine.Action{engine.Resize{ReplicaSet: stable, To: 0}, growth}}
	waits := func(after time.Duration) bool { return g.try(&actor{br: br}, afterRoom, now.Add(after)) != nil }
	for range 5 {
		g.note(br, refused, now)
	}
	if !waits(59 * time.Second) {
		t.Error("it does not wait for a minute")
	}
	if waits(time.Minute) {
		t.Error("it waits for longer than a minute")
	}
	g.passed(br, engine.Resize{ReplicaSet: stable, To: 4}, now)
	if !waits(time.Second) {
		t.Error("the growth of the stable revision ends the wait")
	}
	first := engine.Decision{Growth: &growth, Actions: []engine.Action{growth}}
	if err := g.try(&actor{br: br}, first, now); err != nil {
		t.Errorf("a growth that needs no room waits: %v", err)
	}
	again := update.DeepCopy()
	again.UID = "made again"
	other, _ := errors.AsType[*failures.GrowthRefused](failures.OfSize(again, 6, apierrors.NewForbidden(schema.GroupResource{}, "web-2", nil)))
	g.note(br, other, now)
	growthAgain := engine.Resize{ReplicaSet: again, To: 6}
	afterRoom.Growth = &growthAgain
	if !waits(time.Second) {
		t.Error("a ReplicaSet that was made again does not wait")
	}
	g.passed(br, growthAgain, now)
	if waits(time.Second) {
		t.Error("it waits after it has passed")
	}
}
