package turns

import (
	"context"
	"fmt"
	"testing"

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
