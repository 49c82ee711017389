package gitsync

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
)

// parkingRenderer is a Renderer that notes for a sync that it has met no place. Then nothing
// is written of what the sync has made of that.
type parkingRenderer struct {
	desired.FolderRenderer
	look *look
}

func (p parkingRenderer) Render(tenant string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	objects, err := p.FolderRenderer.Render(tenant, fsys, dir, opts)
	if b, ok := errors.AsType[desired.Busy](err); ok {
		p.look.parked = b
	}
	return objects, err
}

// rendersIn is where a sync renders; nil: in this process.
func (l *look) rendersIn() desired.FolderRenderer {
	if l.options.Renderer == nil {
		return nil
	}
	return parkingRenderer{l.options.Renderer, l}
}

// park ends a sync that has met no place to render. The server need not be asked again
// for the next one.
func (l *look) park() {
	l.keep.awaiting = sharedFor(l.gs.Spec.IntervalOrDefault())
	l.remember(l.name, l.keep)
	l.log.V(1).Info("looking again", "because", l.parked.Error())
	free, request := l.parked.Free(), reconcile.Request{NamespacedName: l.name}
	go func() {
		<-free
		l.queue.Add(request)
	}()
}

// bases returns how a sync fetches remote bases. All renderings of the sync have the same
// bases. Together they wait no longer than repository.BasesFor, or slow servers would hold a
// worker for that long at each rendering.
func (l *look) bases(ctx context.Context) repository.FetchBase {
	if l.options.NoRemoteBases {
		return nil
	}
	if l.basesLeft == nil {
		l.basesLeft = new(min(l.gs.Spec.TimeoutOrDefault(), repository.BasesFor))
	}
	fetch := l.remoteBases.Within(ctx, l.basesLeft, l.since)
	return func(base manifest.RemoteBase) (*repository.Snapshot, error) {
		return turns.Exchange(ctx, func() (*repository.Snapshot, error) { return fetch(base) })
	}
}
