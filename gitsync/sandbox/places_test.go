package sandbox_test

import (
	"errors"
	"sync"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/sandbox"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// held is a tree that says when it is read, and is read no further until it is let go.
type held struct {
	filesys.FileSystem
	read chan<- string
	of   string
	let  chan struct{}
}

func (h held) ReadFile(name string) ([]byte, error) {
	h.read <- h.of
	<-h.let
	return h.FileSystem.ReadFile(name)
}

// freed is the error of a rendering that has no place.
type freed interface {
	error
	Free() <-chan struct{}
}

func isBusy(err error) (freed, bool) { return errors.AsType[freed](err) }

// holder holds places of a pool.
type holder struct {
	t    *testing.T
	pool *sandbox.Pool
	read chan string
	wg   sync.WaitGroup
	errs chan error
}

func newHolder(t *testing.T, p *sandbox.Pool) *holder {
	h := &holder{t: t, pool: p, read: make(chan string, 100), errs: make(chan error, 100)}
	t.Cleanup(h.wg.Wait)
	return h
}

// holds begins a rendering of a tenant, and waits until it reads. It ends when it is let
// go.
func (h *holder) holds(tenant string) (let func()) {
	h.t.Helper()
	tree := held{plantest.Tree(h.t, trees["plain"]), h.read, tenant, make(chan struct{})}
	let = sync.OnceFunc(func() { close(tree.let) })
	h.t.Cleanup(let)
	h.wg.Go(func() {
		_, err := h.pool.Render(tenant, tree, ".", manifest.RenderOptions{})
		h.errs <- err
	})
	if of := <-h.read; of != tenant {
		h.t.Fatalf("%s renders, want %s", of, tenant)
	}
	return let
}

// render renders for a tenant until there is a place, as the controller does.
func (h *holder) render(tenant string) error {
	for {
		_, err := h.pool.Render(tenant, plantest.Tree(h.t, trees["plain"]), ".", manifest.RenderOptions{})
		b, ok := isBusy(err)
		if !ok {
			return err
		}
		<-b.Free()
	}
}

// A tenant whose renderings do not end gets no more places than it may have. Its further
// renderings do not wait: they return an error that says when a place is free. Another
// tenant's are rendered meanwhile.
func TestNoPlace(t *testing.T) {
	p := newPool(t, enough, long, 3)
	h := newHolder(t, p)
	let := h.holds("evil")
	h.holds("evil")
	var parked []freed
	for range 5 {
		_, err := p.Render("evil", plantest.Tree(t, trees["plain"]), ".", manifest.RenderOptions{})
		b, ok := isBusy(err)
		if !ok {
			t.Fatalf("it has more places than it may: %v", err)
		}
		parked = append(parked, b)
	}
	if err := h.render("shop"); err != nil {
		t.Error(err)
	}
	for _, b := range parked {
		select {
		case <-b.Free():
			t.Error("it is to try again, and has all the places that it may have")
		default:
		}
	}
	let()
	if err := <-h.errs; err != nil {
		t.Fatal(err)
	}
	<-parked[0].Free()
	if err := h.render("evil"); err != nil {
		t.Error(err)
	}
}

// Two tenants whose renderings do not end hold all places. A third one gets the second
// place of the one that has two. The rendering that is ended begins again later, and that
// is no fault of its folder.
func TestPlaceIsTakenAway(t *testing.T) {
	p := newPool(t, enough, long, 3)
	h := newHolder(t, p)
	for _, tenant := range []string{"evil", "other", "evil"} {
		begun := make(chan string, 100)
		tree := held{plantest.Tree(t, endless()), begun, tenant, make(chan struct{})}
		close(tree.let)
		h.wg.Go(func() {
			_, err := p.Render(tenant, tree, ".", manifest.RenderOptions{})
			h.errs <- err
		})
		<-begun
	}
	t.Cleanup(p.Close) // ends the others
	if err := h.render("shop"); err != nil {
		t.Fatal(err)
	}
	err := <-h.errs
	if _, ok := isBusy(err); !ok {
		t.Errorf("the rendering that was ended: %v", err)
	}
	select {
	case err := <-h.errs:
		t.Errorf("another one was ended: %v", err)
	default:
	}
}
