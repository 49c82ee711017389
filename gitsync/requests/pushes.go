package requests

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Pushes takes reports of pushes, by webhooks and of local repositories, to the queue of
// the controller.
type Pushes struct {
	pending *Pending
	queued  chan event.TypedGenericEvent[*v1alpha1.GitSource]
}

// NewPushes returns pushes whose requests are added to those that wait.
func NewPushes(pending *Pending) *Pushes {
	return &Pushes{pending: pending, queued: make(chan event.TypedGenericEvent[*v1alpha1.GitSource], 64)}
}

// Source is where the controller gets the requests from.
func (p *Pushes) Source() source.Source {
	return source.Channel(p.queued, &handler.TypedEnqueueRequestForObject[*v1alpha1.GitSource]{})
}

// RequestSync asks for a sync of sources whose repository was pushed to. It returns early
// when ctx ends.
func (p *Pushes) RequestSync(ctx context.Context, sources ...types.NamespacedName) {
	for _, name := range sources {
		p.pending.Add(name, false)
	}
	for _, name := range sources {
		gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		select {
		case p.queued <- event.TypedGenericEvent[*v1alpha1.GitSource]{Object: gs}:
		case <-ctx.Done():
			return
		}
	}
}
