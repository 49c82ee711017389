package apply

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/lists"
	"github.com/tranche-dev/tranche/plan"
)

const (
	// requestsAtOnce is how many requests of a source wait for an answer at the same time.
	requestsAtOnce = 4
	// fewObjects is how many objects of a kind in a namespace are read one by one.
	fewObjects = 8
)

// liveRead is what the API server has of an object.
type liveRead struct {
	live *unstructured.Unstructured
	err  error
}

// ReadAhead reads the live objects of some that are observed next. Many of a kind in a namespace are
// read by a list, and others several at the same time: most of a read is waiting. It counts
// until done is called; a later look is about what is there then. A first sync reads few of its
// objects, and ReadAhead none of them.
func (o *Observer) ReadAhead(ctx context.Context, objects []plan.Object) (done func()) {
	if o.First != nil {
		return func() {}
	}
	var entries []inventory.Entry
	for _, object := range objects {
		if !o.isAbsent(object) {
			entries = append(entries, inventory.Of(object.Unstructured))
		}
	}
	o.ahead = make(map[string]liveRead, len(entries))
	single := readTogether(ctx, o, entries)
	reads := make([]liveRead, len(single))
	AtOnce(len(single), func(i int) { reads[i].live, reads[i].err = inventory.Get(ctx, o.As, single[i]) })
	for i, e := range single {
		o.ahead[e.ID()] = reads[i]
	}
	return func() { o.ahead = nil }
}

// readTogether reads objects of which there are many of a kind in a namespace. It returns those
// that are to be read one by one.
func readTogether(ctx context.Context, o *Observer, entries []inventory.Entry) (single []inventory.Entry) {
	if o.Lists == nil {
		return entries
	}
	type place struct {
		gvk       schema.GroupVersionKind
		namespace string
	}
	by := map[place][]inventory.Entry{}
	for _, e := range entries {
		at := place{e.GVK, e.Namespace}
		by[at] = append(by[at], e)
	}
	var many [][]inventory.Entry
	for _, of := range by {
		if len(of) <= fewObjects {
			single = append(single, of...)
		} else {
			many = append(many, of)
		}
	}
	found := make([]map[string]*unstructured.Unstructured, len(many))
	AtOnce(len(many), func(i int) {
		names := make(map[string]bool, len(many[i]))
		for _, e := range many[i] {
			names[e.Name] = true
		}
		found[i] = o.Lists.ObjectsIn(ctx, lists.Kind{GroupVersionKind: many[i][0].GVK, As: o.As, Account: o.Account}, many[i][0].Namespace, names)
	})
	for i, of := range many {
		if found[i] == nil {
			single = append(single, of...)
			continue
		}
		for _, e := range of {
			o.ahead[e.ID()] = liveRead{live: found[i][e.Name]}
		}
	}
	return single
}

// AtOnce calls f for each number below n, a few at the same time, and returns when all have
// ended. The caller can recover a panic of f.
func AtOnce(n int, f func(i int)) {
	var next atomic.Int64
	var running sync.WaitGroup
	panics := make(chan string, requestsAtOnce)
	for range min(requestsAtOnce, n) {
		running.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics <- fmt.Sprintf("%v\n%s", p, debug.Stack())
				}
			}()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	running.Wait()
	if len(panics) > 0 {
		panic(<-panics)
	}
}
