package turns

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// However many sources some namespaces have, there is a turn for those of others; and
// each source that waits gets its turn, once.
func TestTurns(t *testing.T) {
	turns := New(2)
	running := map[types.NamespacedName]bool{}
	begin := func(namespace string, i int) bool {
		name := types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}
		if !turns.Begin(name, func() {}) {
			return false
		}
		running[name] = true
		return true
	}
	for _, namespace := range []string{"a", "b", "c"} {
		for i := range 50 {
			begin(namespace, i)
		}
	}
	if !begin("d", 0) {
		t.Fatalf("no turn for a fourth namespace: %v", turns.of)
	}
	ended := map[types.NamespacedName]int{}
	for len(running) > 0 {
		for name := range running {
			delete(running, name)
			ended[name]++
			for _, next := range turns.End(name) {
				if !turns.Begin(next, func() {}) {
					continue // it waits again
				}
				running[next] = true
			}
			break
		}
		if len(running) > turns.Limit {
			t.Fatalf("%d run, and %d may", len(running), turns.Limit)
		}
	}
	if len(ended) != 151 || len(turns.waiting) > 0 || turns.total != 0 || len(turns.of) > 0 {
		t.Errorf("%d sources had a turn; left is %+v", len(ended), turns)
	}
	for name, n := range ended {
		if n != 1 {
			t.Errorf("%s had %d turns", name, n)
		}
	}
}

// However many syncs of one namespace work for ever, those of another namespace work at once. So
// do those of a fourth one beside three such.
func TestWorking_LeavesFree(t *testing.T) {
	for _, concurrent := range []int{1, 2, 10} {
		w := New(concurrent).work
		if busy := workNow(&w, "busy"); busy != concurrent {
			t.Errorf("%d syncs of a namespace work, and %d may", busy, concurrent)
		}
		if workNow(&w, "quiet") == 0 {
			t.Errorf("%d of a namespace work, and none of the other", concurrent)
		}
	}
	w := New(10).work
	for _, namespace := range []string{"a", "b", "c", "d"} {
		if workNow(&w, namespace) == 0 {
			t.Errorf("none of namespace %s works beside %v", namespace, w.working)
		}
	}
}

// workNow returns how many of fifty syncs of a namespace work at once.
func workNow(w *work, namespace string) (n int) {
	for range 50 {
		if begins(w.add(namespace)) {
			n++
		}
	}
	return n
}

// However many syncs of one namespace wait to work, one of another namespace waits for the end
// of one at most. The namespaces take turns, and none is kept waiting.
func TestWorking_Shares(t *testing.T) {
	for _, places := range []int{1, 2, 3} {
		order := workInOrder(t, places)
		last := map[string]int{}
		for i, namespace := range order {
			last[namespace] = i
		}
		// The busy one has its share before others come. After that each third turn is its own.
		if last["quiet"] > 12 || last["calm"] > 12 || last["busy"] != len(order)-1 || slices.Index(order, "quiet") > 4 {
			t.Errorf("%d work at the same time: the order is %v", places, order)
		}
	}
}

// workInOrder has syncs of three namespaces work, and returns the namespaces in the order in
// which they began.
func workInOrder(t *testing.T, places int) (order []string) {
	t.Helper()
	w := newWork(places)
	var waiting []*waiter
	for range 50 {
		waiting = append(waiting, w.add("busy"))
	}
	for range 3 {
		waiting = append(waiting, w.add("quiet"), w.add("calm"))
	}
	var working []*waiter // in the order in which they began
	for n := len(waiting); len(order) < n; {
		waiting = slices.DeleteFunc(waiting, func(one *waiter) bool {
			if begins(one) {
				working = append(working, one)
			}
			return begins(one)
		})
		if len(working) == 0 || len(working) > places {
			t.Fatalf("%d work, and %d wait", len(working), len(waiting))
		}
		order = append(order, working[0].namespace)
		w.leave(working[0])
		working = working[1:]
	}
	if w.free != places || len(w.working)+len(w.waiting)+len(w.began) > 0 {
		t.Errorf("left is %+v", w)
	}
	return order
}

func begins(w *waiter) bool {
	select {
	case <-w.begins:
		return true
	default:
		return false
	}
}

// A namespace of which a sync has worked for long is after one of which none works.
func TestWorking_Fewest(t *testing.T) {
	w := newWork(2)
	w.add("long")
	short := w.add("short")
	long, next := w.add("long"), w.add("short")
	w.leave(short)
	if begins(long) || !begins(next) {
		t.Error("two of one namespace work, and none of the other")
	}
}

// Two namespaces that come again and again keep a third one's second sync waiting for one of
// each.
func TestWorking_ComesAgain(t *testing.T) {
	w := newWork(1)
	first, second := w.add("waits"), w.add("waits")
	working := map[string]*waiter{"a": w.add("a"), "b": w.add("b")}
	w.leave(first)
	for range 4 {
		for _, name := range []string{"a", "b"} {
			if begins(working[name]) {
				w.leave(working[name])
				working[name] = w.add(name)
			}
		}
	}
	if !begins(second) {
		t.Error("the third one has no turn")
	}
}

// A sync that ends while it waits to work leaves its place to others.
func TestWorking_Ends(t *testing.T) {
	turns := New(1) // of a namespace
	_, done, err := turns.Working(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := turns.Working(ctx, "a"); err == nil {
		t.Error("it works, though another one does")
	}
	done()
	working, done, err := turns.Working(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	within, err := Exchange(working, func() (int, error) { return turns.work.free, nil })
	if err != nil || within != 2 || turns.work.free != 1 {
		t.Errorf("%d may work meanwhile, and %d afterwards: %v", within, turns.work.free, err)
	}
	done()
	if turns.work.free != 2 || len(turns.work.waiting)+len(turns.work.began) > 0 {
		t.Errorf("left is %+v", turns.work)
	}
}

// One of all syncs is alone at a time. A namespace with many that wait keeps another one
// waiting for one of them.
func TestAlone(t *testing.T) {
	turns := New(10)
	in := func(namespace string) context.Context {
		ctx, done, err := turns.Working(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(done)
		return ctx
	}
	begun, ended := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	alone := func(ctx context.Context, f func()) {
		wg.Go(func() {
			err := Alone(ctx, time.Hour, func(context.Context) error {
				f()
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	alone(in("many"), func() { close(begun); <-ended })
	<-begun
	order := make(chan string, 4)
	for i, namespace := range []string{"many", "many", "many", "other"} {
		// A server has had its time: that ends no wait.
		late, cancel := context.WithCancel(in(namespace))
		cancel()
		alone(late, func() { order <- namespace })
		for waiting := 0; waiting <= i; runtime.Gosched() {
			turns.mu.Lock()
			waiting = len(turns.alone.waiting)
			turns.mu.Unlock()
		}
	}
	sync, cancel := context.WithCancel(t.Context())
	ctx, done, err := turns.Working(sync, "many")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	cancel()
	if err := Alone(ctx, time.Hour, func(context.Context) error { return nil }); err == nil {
		t.Error("a sync that has ended is alone beside another one")
	}
	close(ended)
	wg.Wait()
	if first := <-order; first != "other" {
		t.Errorf("the next one is of namespace %s", first)
	}
	for name, ctx := range map[string]context.Context{"in": in("many"), "outside of": t.Context()} {
		late := Alone(ctx, time.Nanosecond, func(ctx context.Context) error { return ctx.Err() })
		if isLate := errors.Is(late, context.DeadlineExceeded); isLate != (name == "in") {
			t.Errorf("%s a sync, after its time: %v", name, late)
		}
	}
}

// A namespace whose wait has ended keeps its turn. Else others that come again sooner would keep
// it waiting for ever.
func TestAlone_KeepsATurn(t *testing.T) {
	t.Parallel()
	w := newLastingWork(1)
	begun := func(waits *waiter) bool {
		select {
		case <-waits.begins:
			return true
		default:
			return false
		}
	}
	if !begun(w.add("first")) {
		t.Fatal("the first one waits")
	}
	w.leave(w.add("patient"))
	hasty, patient := w.add("hasty"), w.add("patient")
	if w.end("first"); begun(hasty) || !begun(patient) {
		t.Error("the one that had waited before is not the next one")
	}
	again := w.add("patient")
	if w.end("patient"); !begun(hasty) || begun(again) {
		t.Error("its turn is kept although it had it")
	}
	w.leave(again)
	w.leave(w.add("gone"))
	for range keptTurns + 1 {
		w.add("hasty")
		w.end("hasty")
	}
	if _, kept := w.began["gone"]; kept {
		t.Error("a turn is kept for ever")
	}
}

// A sync is cut short when its source is deleted, and not when it deletes.
func TestTurns_Cut(t *testing.T) {
	turns := New(1)
	name := types.NamespacedName{Namespace: "a", Name: "a"}
	ctx, end := context.WithCancel(t.Context())
	turns.Begin(name, end)
	turns.Spare(name)
	turns.Cut(name)
	if ctx.Err() != nil {
		t.Error("the look at the deletion was cut short")
	}
	turns.End(name)
	turns.Begin(name, end)
	turns.Cut(name)
	if ctx.Err() == nil {
		t.Error("the look goes on")
	}
}
