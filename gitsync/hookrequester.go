package gitsync

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// hookRequester takes the requests of the webhook receiver to the reconciler.
type hookRequester struct {
	reconciler *reconciler
	elected    <-chan struct{} // closed when this process leads
}

func (h hookRequester) Syncs(source client.Object) bool {
	select {
	case <-h.elected:
		return h.reconciler.options.selects(source)
	default:
		return false
	}
}

func (h hookRequester) RequestSync(ctx context.Context, sources ...types.NamespacedName) {
	h.reconciler.pushes.RequestSync(ctx, sources...)
}
