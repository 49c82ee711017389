package clustertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest/invariants"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// NativeManager is the field manager of the native Deployment controller.
const NativeManager = invariants.NativeManager

// Watcher watches the Deployments, ReplicaSets, pods and BatchReleases of a namespace
// from outside the controller. It fails the test with the timeline if an invariant
// breaks. It checks I1, I2, I3, I5, I7, I8 and I10 at every event; [invariants.Judge]
// says what each means. It counts the writes, too.
//
// Events of several kinds come by several watches, in no order. They are judged in the
// order in which the API server made them, by resourceVersion. An event is judged only
// once every watch has come up to the same point. Events from while one of the watches
// was down are printed and not judged: what led to them is not known.
type Watcher struct {
	c         *Cluster
	namespace string
	streams   []*stream

	judging  sync.Mutex // and all below
	judge    *invariants.Judge
	timeline []line
	writes   map[string]int
	sizes    map[types.UID]seen
}

// line is of the timeline, about a Deployment.
type line struct{ deployment, text string }

// seen is what the timeline last said about an object.
type seen struct {
	generation int64
	size       int32
	state      string
	counts     string // of a ReplicaSet, what its annotations say of sizes
	fields     []metav1.ManagedFieldsEntry
}

// Watch starts a watcher that ends with the test.
func (c *Cluster) Watch(t testing.TB, namespace string) *Watcher {
	t.Helper()
	w := &Watcher{c: c, namespace: namespace, judge: invariants.New(), writes: map[string]int{}, sizes: map[types.UID]seen{}}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	kinds := []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &corev1.PodList{}, &v1alpha1.BatchReleaseList{}}
	for _, list := range kinds {
		s := newStream(c.Client, namespace, list)
		events, err := s.begin(ctx)
		if err != nil {
			stop()
			t.Fatalf("watching %T: %v", list, err)
		}
		w.streams = append(w.streams, s)
		running.Go(func() { s.run(ctx, events) })
	}
	t.Cleanup(func() {
		w.catchUp(t)
		stop()
		running.Wait()
		if len(w.judge.Broken()) > 0 {
			t.Errorf("%s", w.verdict())
		}
	})
	return w
}

// Unguarded says that no policy keeps other users from ReplicaSets. Their writes are then no
// breach.
func (w *Watcher) Unguarded() {
	w.judging.Lock()
	defer w.judging.Unlock()
	w.judge.Unguarded()
}

// Older says that a version leads that does not know the label of a hold on ReplicaSets.
func (w *Watcher) Older() {
	w.judging.Lock()
	defer w.judging.Unlock()
	w.judge.Older()
}

// Writes returns how often objects of a kind, by a manager, have changed.
func (w *Watcher) Writes(kind, manager string) int {
	w.catchUp(nil)
	w.judging.Lock()
	defer w.judging.Unlock()
	return w.writes[kind+" "+manager]
}

// Fights returns how often the native controller has resized a ReplicaSet of a
// held Deployment (I10).
func (w *Watcher) Fights() int {
	w.catchUp(nil)
	w.judging.Lock()
	defer w.judging.Unlock()
	return w.judge.Fights()
}

// Judged returns how often an invariant has been put to the test, by its name.
func (w *Watcher) Judged(invariant string) int {
	w.catchUp(nil)
	w.judging.Lock()
	defer w.judging.Unlock()
	return w.judge.Judged(invariant)
}

// Timeline returns what has been seen.
func (w *Watcher) Timeline() string {
	w.catchUp(nil)
	w.judging.Lock()
	defer w.judging.Unlock()
	return w.timelineOf(nil)
}

// timelineOf returns the timeline of these Deployments; of all, if there are none.
func (w *Watcher) timelineOf(deployments []string) string {
	var b strings.Builder
	for _, l := range w.timeline {
		if len(deployments) == 0 || slices.Contains(deployments, l.deployment) {
			b.WriteString(l.text + "\n")
		}
	}
	return b.String()
}

// verdict is what the test fails with.
func (w *Watcher) verdict() string {
	var whats, deployments []string
	for _, breach := range w.judge.Broken() {
		whats, deployments = append(whats, breach.What), append(deployments, breach.Deployment)
	}
	return fmt.Sprintf("invariants broken:\n%s\ntimeline:\n%s", strings.Join(whats, "\n"), w.timelineOf(deployments))
}

// catchUp judges everything that has happened up to now.
func (w *Watcher) catchUp(t testing.TB) {
	upTo := ^uint64(0)
	for _, s := range w.streams {
		version, err := s.catchUp()
		if err != nil {
			if t != nil {
				t.Errorf("watching namespace %s: %v", w.namespace, err)
			}
			return
		}
		upTo = min(upTo, version)
	}
	w.judging.Lock()
	defer w.judging.Unlock()
	var changes []change
	for _, s := range w.streams {
		changes = append(changes, s.take(upTo)...)
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	for _, c := range changes {
		c.Found = c.Found || slices.ContainsFunc(w.streams, func(s *stream) bool { return s.missed(c.version) })
		before := len(w.judge.Broken())
		w.tell(c)
		w.judge.See(c.Change)
		for _, breach := range w.judge.Broken()[before:] {
			w.timeline = append(w.timeline, line{breach.Deployment, "    BROKEN " + breach.What})
		}
	}
}

// tell adds a line to the timeline, where there is something to say.
func (w *Watcher) tell(c change) {
	old, known := w.sizes[c.Object.GetUID()]
	now, kind, what := outlineOf(c.Object)
	if br, ok := c.Object.(*v1alpha1.BatchRelease); ok && (!known || old.generation != now.generation) {
		what += given(br)
	}
	if rs, ok := c.Object.(*appsv1.ReplicaSet); ok {
		what = fmt.Sprintf("%d → %d", old.size, *rs.Spec.Replicas)
	}
	w.sizes[c.Object.GetUID()] = now
	by := invariants.Writer(c.Object, old.fields)
	switch {
	case c.Gone:
		what = "gone"
		delete(w.sizes, c.Object.GetUID())
	case known && old.same(now):
		if old.counts != now.counts {
			text := fmt.Sprintf("%s %s %s: %s, by %s", c.At.Format("15:04:05.000"), kind, c.Object.GetName(), now.counts, by)
			w.timeline = append(w.timeline, line{w.judge.WorkloadOf(c.Object), text})
		}
		return
	case kind != "Pod" && !c.Found:
		w.writes[kind+" "+by]++
	}
	text := fmt.Sprintf("%s %s %s: %s", c.At.Format("15:04:05.000"), kind, c.Object.GetName(), what)
	if kind != "Pod" && !c.Gone {
		text += ", by " + by
	}
	w.timeline = append(w.timeline, line{w.judge.WorkloadOf(c.Object), text})
}

// same reports whether the timeline has nothing to say of another event of the object.
func (s seen) same(now seen) bool {
	return s.generation == now.generation && s.size == now.size && s.state == now.state
}

// outlineOf returns what the timeline says of an object, and of which kind it is.
func outlineOf(object client.Object) (now seen, kind, what string) {
	now = seen{generation: object.GetGeneration(), fields: object.GetManagedFields()}
	switch o := object.(type) {
	case *appsv1.Deployment:
		kind = "Deployment"
		what = fmt.Sprintf("N=%d paused=%t strategy=%s held=%t", *o.Spec.Replicas, o.Spec.Paused, o.Spec.Strategy.Type, invariants.Held(o))
	case *appsv1.ReplicaSet:
		kind, now.size = "ReplicaSet", *o.Spec.Replicas
		now.counts = fmt.Sprintf("desired-replicas %s, max-replicas %s",
			o.Annotations[engine.AnnotationDesiredReplicas], o.Annotations[engine.AnnotationMaxReplicas])
	case *v1alpha1.BatchRelease:
		s := &o.Status
		kind, what = "BatchRelease", fmt.Sprintf("step %d %s %s: %s", s.CurrentStepIndex, s.CurrentStepState, s.Reason, s.Message)
		now.state = what
	case *corev1.Pod:
		kind, what = "Pod", invariants.PodState(o)
		now.state = what
	}
	return now, kind, what
}

// given is what users gave to a release, in short.
func given(br *v1alpha1.BatchRelease) string {
	var b strings.Builder
	fmt.Fprintf(&b, "; spec: commit %.12q, paused %t, steps", br.Spec.Commit, br.Spec.Paused)
	for _, s := range br.Spec.Strategy.Steps {
		b.WriteString(" " + s.Replicas.String())
		if s.Pause != nil {
			b.WriteString(" (" + s.Pause.Duration.Duration.String() + ")")
		}
	}
	if t := br.Spec.Template; t != nil {
		for _, c := range t.Spec.Containers {
			b.WriteString(", image " + c.Image)
		}
	}
	if a := br.Spec.Approval; a != nil {
		fmt.Fprintf(&b, ", approval of step %d of %s by commit %.12q", a.Step, a.Revision, a.Commit)
	}
	return b.String()
}

// stream is the watch of one kind. It goes on where a watch has ended, with
// what a list shows then.
type stream struct {
	client    client.WithWatch
	namespace string
	list      client.ObjectList

	mu      sync.Mutex
	changes []change                    // not yet taken
	there   map[types.UID]client.Object // as last seen
	gone    map[types.UID]bool
	latest  uint64 // the version up to which it has seen everything
	gaps    []gap
}

// change is an event at a version of the API server's store.
type change struct {
	version uint64
	invariants.Change
}

// gap is a time when a watch was down. It has seen only the outcome of versions above
// after, up to that of the list with which it went on.
type gap struct{ after, upTo uint64 }

// missed reports whether a version is in one of the gaps.
func (s *stream) missed(version uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.gaps, func(g gap) bool { return g.after < version && version <= g.upTo })
}

func newStream(c client.WithWatch, namespace string, list client.ObjectList) *stream {
	return &stream{client: c, namespace: namespace, list: list, there: map[types.UID]client.Object{}, gone: map[types.UID]bool{}}
}

// begin lists, and watches from there.
func (s *stream) begin(ctx context.Context) (watch.Interface, error) {
	objects, version, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.gaps = append(s.gaps, gap{after: s.latest, upTo: version})
	s.latest = version
	listed := map[types.UID]bool{}
	for _, o := range objects {
		listed[o.GetUID()] = true
		if last := s.there[o.GetUID()]; last == nil || versionOf(last) != versionOf(o) {
			s.add(change{versionOf(o), invariants.Change{Object: o, Found: true}})
		}
	}
	for uid, o := range s.there {
		if !listed[uid] {
			s.add(change{version, invariants.Change{Object: o, Gone: true, Found: true}})
		}
	}
	s.mu.Unlock()
	return s.client.Watch(ctx, s.list.DeepCopyObject().(client.ObjectList), client.InNamespace(s.namespace),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: strconv.FormatUint(version, 10)}})
}

// run takes events until the context ends.
func (s *stream) run(ctx context.Context, events watch.Interface) {
	for {
		for e := range events.ResultChan() {
			if o, ok := e.Object.(client.Object); ok {
				s.mu.Lock()
				s.add(change{versionOf(o), invariants.Change{Object: o, Gone: e.Type == watch.Deleted}})
				s.mu.Unlock()
			}
		}
		for err := error(errEnded); err != nil; events, err = s.begin(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

var errEnded = errors.New("the watch has ended")

func (s *stream) add(c change) {
	c.At = time.Now()
	if p, ok := c.Object.(*corev1.Pod); ok {
		c.Object = sketch(p)
	}
	s.changes = append(s.changes, c)
	s.latest = max(s.latest, c.version)
	if c.Gone {
		delete(s.there, c.Object.GetUID())
		s.gone[c.Object.GetUID()] = true
	} else {
		s.there[c.Object.GetUID()] = c.Object
	}
}

// sketch is what the invariants look at of a pod: a long test has many.
func sketch(p *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion,
			OwnerReferences: p.OwnerReferences, DeletionTimestamp: p.DeletionTimestamp,
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase, Conditions: p.Status.Conditions},
	}
}

// catchUp waits until everything has been seen that there is now, and returns
// the version up to which that is so.
func (s *stream) catchUp() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Within)
	defer cancel()
	objects, version, err := s.read(ctx)
	if err != nil {
		return 0, err
	}
	for !s.hasSeen(objects, version) {
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the watch of %T has not come up to version %d within %s", s.list, version, Within)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return version, nil
}

func (s *stream) hasSeen(objects []client.Object, version uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := map[types.UID]bool{}
	for _, o := range objects {
		listed[o.GetUID()] = true
		if last := s.there[o.GetUID()]; !s.gone[o.GetUID()] && (last == nil || versionOf(last) < versionOf(o)) {
			return false
		}
	}
	for uid, o := range s.there {
		if !listed[uid] && versionOf(o) <= version {
			return false
		}
	}
	return true
}

// take returns the changes up to a version, once.
func (s *stream) take(upTo uint64) []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	var taken, left []change
	for _, c := range s.changes {
		if c.version <= upTo {
			taken = append(taken, c)
		} else {
			left = append(left, c)
		}
	}
	s.changes = left
	return taken
}

// read lists what there is, at a version.
func (s *stream) read(ctx context.Context) ([]client.Object, uint64, error) {
	list := s.list.DeepCopyObject().(client.ObjectList)
	if err := s.client.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
		return nil, 0, fmt.Errorf("listing: %w", err)
	}
	version, err := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("reading the version of a list: %w", err)
	}
	var objects []client.Object
	err = meta.EachListItem(list, func(o runtime.Object) error {
		objects = append(objects, o.(client.Object))
		return nil
	})
	return objects, version, err
}

// versionOf is an object's place in the order of all writes: the API server
// keeps these kinds in one etcd, whose revisions are their resourceVersions.
func versionOf(o client.Object) uint64 {
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		panic("reading a resourceVersion: " + err.Error()) // etcd's are numbers
	}
	return version
}
