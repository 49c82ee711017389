package rendering

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Rendering is where one sync renders, and how it fetches remote bases.
type Rendering struct {
	renderer desired.FolderRenderer
	bases    *repository.Bases
	// left is the time that is left for remote bases.
	left time.Duration
	busy desired.Busy
}

// New returns the rendering of a sync of a source. The renderer is nil if this process renders,
// and the bases are nil if there may be none.
func New(gs *v1alpha1.GitSource, renderer desired.FolderRenderer, bases *repository.Bases) *Rendering {
	return &Rendering{renderer: renderer, bases: bases, left: min(gs.Spec.TimeoutOrDefault(), repository.BasesFor)}
}

// Busy returns the error of a renderer that had no place for a folder of this sync; nil: each
// had a place. Then nothing is written of what the sync has made of that.
func (r *Rendering) Busy() desired.Busy { return r.busy }

// Folders returns where the sync renders; nil: in this process.
func (r *Rendering) Folders() desired.FolderRenderer {
	if r.renderer == nil {
		return nil
	}
	return busyRenderer{r.renderer, r}
}

// busyRenderer notes for a sync that the renderer has no place.
type busyRenderer struct {
	desired.FolderRenderer
	sync *Rendering
}

func (b busyRenderer) Render(tenant string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	objects, err := b.FolderRenderer.Render(tenant, fsys, dir, opts)
	busy, ok := errors.AsType[desired.Busy](err)
	switch {
	case !ok:
	case b.sync.busy == nil:
		b.sync.busy = busy
	default:
		busy.Leave() // the sync is repeated as a whole
	}
	return objects, err
}

// Bases returns how a sync fetches remote bases; nil: they are refused. An answer of a server
// from before the given time is too old. All renderings of the sync have the same bases.
// Together they wait no longer than repository.BasesFor, or slow servers would hold a worker
// for that long at each rendering.
func (r *Rendering) Bases(ctx context.Context, since time.Time) repository.FetchBase {
	if r.bases == nil {
		return nil
	}
	fetch := r.bases.Within(ctx, &r.left, since)
	return func(base manifest.RemoteBase) (*repository.Snapshot, error) {
		return turns.Exchange(ctx, func() (*repository.Snapshot, error) { return fetch(base) })
	}
}
