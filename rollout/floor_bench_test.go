package rollout_test

import (
	"encoding/json"
	"errors"
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

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/native"
	"github.com/tranche-dev/tranche/rollout/engine/rolling"
)

// floor rolls the Deployments of a field as releases of one step do, by the least that a
// controller beside the native one can do. That is one write for the hold, a new ReplicaSet,
// sizes by the same bounds, and one write for the hand-back. It is no release: it tries
// nothing, records nothing and tells no user. It says how much of the time of one the native
// controller and the API server take.
//
// A guarded one labels what is held, so that the policies guard it, and writes a status four
// times. A release of one pod does no less.
type floor struct {
	*roll
	client.Client // the controller's
	guarded       bool
	queue         workqueue.TypedInterface[string]

	mu    sync.Mutex
	rolls map[string]*floorRoll
}

type floorRoll struct {
	d         *appsv1.Deployment
	old, next *appsv1.ReplicaSet
	br        *v1alpha1.BatchRelease
	ended     bool
}

// bringHeld brings a tag so, and waits until all pods run it. A guarded one needs plans.
func (f *field) bringHeld(tag string, guarded bool) *roll {
	f.Helper()
	c, err := client.New(f.c.Controller, client.Options{Scheme: f.c.Scheme})
	f.must(err)
	l := &floor{roll: f.observe(tag, false), Client: c, guarded: guarded, queue: workqueue.NewTyped[string](), rolls: map[string]*floorRoll{}}
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
		kept.d, kept.br, kept.ended = r.d, r.br, r.ended
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
		if err := l.merge(r.d, map[string]any{"metadata": l.label(true), "spec": spec}); err != nil {
			return err
		}
		if err := l.tell(r, name, v1alpha1.ReasonTakingHold); err != nil {
			return err
		}
	}
	sets := []rolling.Pods{l.pods(r.next, l.replicas), l.pods(r.old, 0)}
	sizes := rolling.Round{Replicas: l.replicas, Surge: 3, Unavailable: 2, Sets: sets}.Next()
	if r.next == nil {
		revision := &facts.Revision{Template: ptr.To(template(name, l.tag)), Hash: l.tag}
		r.next = native.NewReplicaSet(r.d, revision, facts.MaxRevision([]*appsv1.ReplicaSet{r.old})+1, sizes[0], l.replicas, l.replicas+3)
		if l.guarded {
			r.next.Labels[v1alpha1.LabelHeld] = "true"
		}
		return errors.Join(l.Create(l.Context(), r.next), l.tell(r, name, v1alpha1.ReasonUpgrading))
	}
	for i, rs := range []**appsv1.ReplicaSet{&r.next, &r.old} {
		if facts.Size(*rs) == sizes[i] {
			continue
		}
		desired := l.replicas
		if i == 0 && sizes[0] == desired {
			desired++ // or the native controller would take all others away
		}
		if err := l.size(rs, sizes[i], desired, sizes[i] > 0); err != nil {
			return err
		}
	}
	if r.ended || r.next.Status.AvailableReplicas < l.replicas || facts.Size(r.old) > 0 {
		return nil
	}
	return l.handBack(name, r)
}

func (l *floor) handBack(name string, r *floorRoll) error {
	if l.guarded {
		if err := l.size(&r.next, l.replicas, l.replicas, false); err != nil {
			return err
		}
	}
	r.ended = true
	strategy := map[string]any{"type": appsv1.RollingUpdateDeploymentStrategyType}
	spec := map[string]any{"paused": nil, "strategy": strategy}
	return errors.Join(l.tell(r, name, v1alpha1.ReasonHandingBack),
		l.merge(r.d.DeepCopy(), map[string]any{"metadata": l.label(false), "spec": spec}),
		l.tell(r, name, v1alpha1.ReasonReleaseCompleted))
}

// size writes a size, with the annotations and, if it is guarded, the label.
func (l *floor) size(rs **appsv1.ReplicaSet, to, desired int32, held bool) error {
	sized := (*rs).DeepCopy()
	meta := l.label(held)
	meta["annotations"], meta["resourceVersion"] = native.SizeAnnotations(desired, l.replicas+3), sized.ResourceVersion
	if err := l.merge(sized, map[string]any{"metadata": meta, "spec": map[string]any{"replicas": to}}); err != nil {
		return err
	}
	*rs = sized
	return nil
}

// label is metadata that gives the label of a hold, or takes it off.
func (l *floor) label(held bool) map[string]any {
	switch {
	case !l.guarded:
		return map[string]any{}
	case held:
		return map[string]any{"labels": map[string]any{v1alpha1.LabelHeld: "true"}}
	default:
		return map[string]any{"labels": map[string]any{v1alpha1.LabelHeld: nil}}
	}
}

// tell writes a status.
func (l *floor) tell(r *floorRoll, name, reason string) error {
	if !l.guarded {
		return nil
	}
	if r.br == nil {
		r.br = &v1alpha1.BatchRelease{}
		if err := l.Get(l.Context(), client.ObjectKey{Namespace: l.ns, Name: name}, r.br); err != nil {
			return err
		}
	}
	r.br.Status.Reason, r.br.Status.Message = reason, fmt.Sprintf("%d pods are to run %s", l.replicas, l.tag)
	return l.Status().Update(l.Context(), r.br)
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
	owner := client.FieldOwner("floor")
	if l.guarded {
		owner = v1alpha1.ManagerRollout // the policies know the hold by it
	}
	return l.Patch(l.Context(), o, client.RawPatch(types.MergePatchType, text), owner)
}
