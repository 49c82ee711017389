package gitsync

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tranche-dev/tranche/gitsync/dependencies"
	"github.com/tranche-dev/tranche/gitsync/refwatch"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func TestNextRequest(t *testing.T) {
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	looked := time.Now().Add(-time.Minute)
	resting := cacheEntry{last: &lastSync{since: looked, interval: time.Minute, until: time.Now().Add(time.Hour)}}
	over := cacheEntry{last: &lastSync{since: looked, interval: time.Minute, until: time.Now().Add(-time.Second)}}
	for _, tc := range []struct {
		why    string
		keep   cacheEntry
		wishes []bool
		whole  bool
		since  time.Duration // before now, at least
	}{
		{why: "something is not over", keep: cacheEntry{}, whole: true},
		{why: "a push, and something is not over", keep: cacheEntry{}, wishes: []bool{false}, whole: true},
		{why: "a push, at rest", keep: resting, wishes: []bool{false}},
		{why: "a push and a change of the spec", keep: resting, wishes: []bool{true, false}, whole: true},
		{why: "a push when the interval is over", keep: over, wishes: []bool{false}, whole: true},
		{why: "other sources are waited for", keep: cacheEntry{awaiting: 6 * time.Second}, whole: true, since: 6 * time.Second},
		{why: "the interval is over", keep: over, whole: true, since: 6 * time.Second},
		{why: "something is not ready yet", keep: resting, since: time.Minute},
	} {
		r := &reconciler{pending: &requests.Pending{}}
		for _, whole := range tc.wishes {
			r.pending.Add(name, whole)
		}
		got := nextRequest(r.pending, name, tc.keep)
		if got.Whole != tc.whole || time.Since(got.Since) < tc.since {
			t.Errorf("%s: %+v", tc.why, got)
		}
	}
}

// Those that wait for another source share the answers of the server.
func TestWhoWaitsForOthersSharesAnswers(t *testing.T) {
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	r := &reconciler{pending: &requests.Pending{}}
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	src, res := newSource(t.Context(), &r.resources, gs, cacheEntry{}, time.Now()), &result{}
	res.outcome.Awaited = []string{"another one"}
	if result, err := nextSync(src, res, nil); err != nil || result.RequeueAfter == 0 {
		t.Fatal(result, err)
	}
	if w := nextRequest(r.pending, name, r.cache.load(name)); !w.Whole || time.Since(w.Since) < sharedFor(v1alpha1.DefaultInterval) {
		t.Errorf("the next look is %+v", w)
	}
}

// deaf is an API server that does not answer.
type deaf struct{ client.Client }

func (deaf) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("no answer")
}

// A sync request is not lost if the sync fails before it has begun.
func TestRequestIsNotLost(t *testing.T) {
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	r := &reconciler{resources: resources{own: deaf{}, status: deaf{}}, pending: &requests.Pending{}, turns: turns.New(1)}
	r.cache.store(name, cacheEntry{last: &lastSync{interval: time.Minute, until: time.Now().Add(time.Hour)}})
	r.pending.Add(name, true)
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name})
	if err == nil {
		t.Fatal("no error")
	}
	if result.Priority == nil || *result.Priority != 0 {
		t.Errorf("the next look is less urgent than others: %v", result.Priority)
	}
	if w := nextRequest(r.pending, name, r.cache.load(name)); !w.Whole {
		t.Errorf("the next look is %+v", w)
	}
}

// A decision of rollout while its plan was being changed counts for nothing before
// rollout has seen the change. Its source has to sync once more then.
func TestDecisionThatComesToCount(t *testing.T) {
	before := &v1alpha1.BatchRelease{
		ObjectMeta: metav1.ObjectMeta{Generation: 6},
		Spec:       v1alpha1.BatchReleaseSpec{Commit: "c"},
		Status:     v1alpha1.BatchReleaseStatus{ObservedGeneration: 5, Phase: v1alpha1.PhaseRollingUpdate, FailedRevision: "r", FailedCommit: "c"},
	}
	after := before.DeepCopy()
	after.Status.ObservedGeneration = 6
	if !requests.NewDecision.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("nobody looks at it")
	}
	undecided := before.DeepCopy()
	undecided.Status.FailedRevision = ""
	seen := undecided.DeepCopy()
	seen.Status.ObservedGeneration = 6
	if requests.NewDecision.Update(event.UpdateEvent{ObjectOld: undecided, ObjectNew: seen}) {
		t.Error("a look for nothing")
	}
}

// serving is a cache that has one source.
type serving struct {
	client.Client
	gs *v1alpha1.GitSource
}

func (s serving) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.gs.DeepCopyInto(o.(*v1alpha1.GitSource))
	return nil
}

// A source that waits for another one waits for its state with its present spec.
func TestReadyWithAFormerSpec(t *testing.T) {
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	gs.Status.ObservedGeneration = 1
	gs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	if dependencies.IsReady(gs) {
		t.Error("it is ready with a spec that nobody has looked at")
	}
	gs.Status.ObservedGeneration = 2
	if !dependencies.IsReady(gs) {
		t.Error("it is not ready")
	}
}

// A source that another controller has by now is not synced here.
func TestSkipUnaffected_AnothersSource(t *testing.T) {
	name := types.NamespacedName{Namespace: "shop", Name: "web"}
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Labels: map[string]string{"shard": "b"}, Finalizers: []string{finalizer}}}
	at := serving{gs: gs}
	watcher, err := refwatch.New(requests.NewPushes(&requests.Pending{}))
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	defer func() { _ = watcher.Start(ended) }() // which closes it
	r := &reconciler{turns: turns.New(1), pending: &requests.Pending{}, resources: resources{
		options: Options{Selector: labels.SelectorFromSet(labels.Set{"shard": "a"})}, own: at, status: at, watcher: watcher,
		mirrors: repository.NewCache(t.TempDir()),
	}}
	r.cache.store(name, cacheEntry{last: &lastSync{uid: "1", interval: time.Minute, until: time.Now().Add(time.Hour)}})
	r.pending.Add(name, false)
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name}); err != nil {
		t.Fatal(err)
	}
	if _, kept := r.cache.entries[name]; kept {
		t.Error("it is not forgotten")
	}
}
