package rollout_test

import (
	"encoding/json"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/native"
	"github.com/tranche-dev/tranche/rollout/engine/rolling"
)

// floor rolls the Deployments of a field as releases of one step do, by the least that a
// controller beside the native one can do. That is one write for the hold, a new ReplicaSet,
// sizes by the same bounds, and one write for the hand-back. It records nothing, tries
// nothing, tells no user, has no plan and no status, and guards no ReplicaSet. So it is no
// release: it says how much of the time of one the native controller and the API server take.
type floor struct {
	*roll
	queue workqueue.TypedInterface[string]

	mu    sync.Mutex
	rolls map[string]*floorRoll
}

type floorRoll struct {
	d         *appsv1.Deployment
	old, next *appsv1.ReplicaSet
	ended     bool
}

// bringHeld brings a tag so, and waits until all pods run it.
func (f *field) bringHeld(tag string) *roll {
	f.Helper()
	l := &floor{roll: f.observe(tag, false), queue: workqueue.NewTyped[string](), rolls: map[string]*floorRoll{}}
	for name, sets := range l.seen {
		l.rolls[name] = &floorRoll{}
		for _, rs := range sets {
			if *rs.Spec.Replicas > 0 {
				l.rolls[name].old = rs
			}
		}
	}
	l.changed = l.learn
	var workers sync.WaitGroup
	for range defaultConcurrent {
		workers.Go(l.work)
	}
	for i := range f.n {
		l.queue.Add(fmt.Sprintf("web-%04d", i))
	}
	l.wait()
	l.queue.ShutDownWithDrain()
	workers.Wait()
	return l.roll
}

// learn takes in what a ReplicaSet is now.
func (l *floor) learn(rs *appsv1.ReplicaSet) {
	name := rs.Labels["app"]
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, known := range []**appsv1.ReplicaSet{&l.rolls[name].old, &l.rolls[name].next} {
		if *known != nil && (*known).UID == rs.UID && newer(rs, *known) {
			*known = rs
			l.queue.Add(name)
		}
	}
}

func newer(a, b *appsv1.ReplicaSet) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}

func (l *floor) work() {
	for {
		name, over := l.queue.Get()
		if over {
			return
		}
		l.mu.Lock()
		r := *l.rolls[name]
		l.mu.Unlock()
		if err := l.step(name, &r); err != nil && !apierrors.IsConflict(err) {
			l.Errorf("%s: %v", name, err)
		}
		l.mu.Lock()
		kept := l.rolls[name]
		kept.d, kept.ended = r.d, r.ended
		for _, o := range []struct{ is, was **appsv1.ReplicaSet }{{&r.old, &kept.old}, {&r.next, &kept.next}} {
			if *o.is != nil && (*o.was == nil || newer(*o.is, *o.was)) {
				*o.was = *o.is
			}
		}
		l.mu.Unlock()
		l.queue.Done(name)
	}
}

// step makes the writes that are possible now.
func (l *floor) step(name string, r *floorRoll) error {
	if r.d == nil {
		r.d = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: l.ns}}
		strategy := map[string]any{"type": appsv1.RecreateDeploymentStrategyType, "rollingUpdate": nil}
		spec := map[string]any{"template": template(name, l.tag), "paused": true, "strategy": strategy}
		if err := l.merge(r.d, map[string]any{"spec": spec}); err != nil {
			return err
		}
	}
	sets := []rolling.Pods{l.pods(r.next, l.replicas), l.pods(r.old, 0)}
	sizes := rolling.Round{Replicas: l.replicas, Surge: 3, Unavailable: 2, Sets: sets}.Next()
	if r.next == nil {
		revision := &facts.Revision{Template: ptr.To(template(name, l.tag)), Hash: l.tag}
		r.next = native.NewReplicaSet(r.d, revision, facts.MaxRevision([]*appsv1.ReplicaSet{r.old})+1, sizes[0], l.replicas, l.replicas+3)
		return l.c.Client.Create(l.Context(), r.next)
	}
	for i, rs := range []**appsv1.ReplicaSet{&r.next, &r.old} {
		if facts.Size(*rs) == sizes[i] {
			continue
		}
		desired := l.replicas
		if i == 0 && sizes[0] == desired {
			desired++ // or the native controller would take all others away
		}
		sized := (*rs).DeepCopy()
		if err := l.merge(sized, map[string]any{
			"metadata": map[string]any{"annotations": native.SizeAnnotations(desired, l.replicas+3), "resourceVersion": sized.ResourceVersion},
			"spec":     map[string]any{"replicas": sizes[i]},
		}); err != nil {
			return err
		}
		*rs = sized
	}
	if r.ended || r.next.Status.AvailableReplicas < l.replicas || facts.Size(r.old) > 0 {
		return nil
	}
	r.ended = true
	strategy := map[string]any{"type": appsv1.RollingUpdateDeploymentStrategyType}
	return l.merge(r.d.DeepCopy(), map[string]any{"spec": map[string]any{"paused": nil, "strategy": strategy}})
}

func (l *floor) pods(rs *appsv1.ReplicaSet, want int32) rolling.Pods {
	if rs == nil {
		return rolling.Pods{Want: want, Observed: true}
	}
	return rolling.Pods{Size: facts.Size(rs), Ready: rs.Status.ReadyReplicas, Available: rs.Status.AvailableReplicas, Want: want,
		Observed: rs.Status.ObservedGeneration >= rs.Generation}
}

// merge writes a JSON merge patch, and sets the object to the answer.
func (l *floor) merge(o client.Object, patch map[string]any) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return l.c.Client.Patch(l.Context(), o, client.RawPatch(types.MergePatchType, text))
}
