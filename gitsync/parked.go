package gitsync

import (
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// busy is an error of a [Renderer] that has no place for a folder now. A sync that meets
// it ends, so that it does not hold the goroutine of another source. It is repeated once
// there is a place.
type busy interface {
	error
	// Free returns a channel that is closed when there may be a place.
	Free() <-chan struct{}
}

// parkingRenderer is a Renderer that notes for a sync that it has met no place. Then nothing
// is written of what the sync has made of that.
type parkingRenderer struct {
	Renderer
	look *look
}

func (p parkingRenderer) Render(tenant string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	objects, err := p.Renderer.Render(tenant, fsys, dir, opts)
	if b, ok := errors.AsType[busy](err); ok {
		p.look.parked = b
	}
	return objects, err
}

// rendersIn is where a sync renders; nil: in this process.
func (l *look) rendersIn() Renderer {
	if l.options.Renderer == nil {
		return nil
	}
	return parkingRenderer{l.options.Renderer, l}
}

// park ends a sync that has met no place to render. The server need not be asked again
// for the next one.
func (l *look) park() {
	l.keep.awaiting = sharedFor(l.interval())
	l.remember(l.name, l.keep)
	l.log.V(1).Info("looking again", "because", l.parked.Error())
	free, request := l.parked.Free(), reconcile.Request{NamespacedName: l.name}
	go func() {
		<-free
		l.queue.Add(request)
	}()
}

// isPassing reports whether a rendering has failed for no reason of the commit's. The
// next one may go well, so nothing may be concluded of the commit.
func isPassing(err error) bool {
	if _, ok := errors.AsType[busy](err); ok {
		return true
	}
	p, ok := errors.AsType[*plan.Problem](err)
	return ok && p.Reason == v1alpha1.ReasonRendererFailed
}
