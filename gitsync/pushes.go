package gitsync

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// pushes takes reports of pushes, by webhooks and of local repositories, to the queue of
// the controller.
type pushes struct {
	wishes *wishes
	queued chan event.TypedGenericEvent[*v1alpha1.GitSource]
}

func newPushes(wishes *wishes) *pushes {
	return &pushes{wishes: wishes, queued: make(chan event.TypedGenericEvent[*v1alpha1.GitSource], 64)}
}

// source is where the controller gets the requests from.
func (p *pushes) source() source.Source {
	return source.Channel(p.queued, &handler.TypedEnqueueRequestForObject[*v1alpha1.GitSource]{})
}

// RequestSync asks for a sync of sources whose repository was pushed to. It returns early
// when ctx ends.
func (p *pushes) RequestSync(ctx context.Context, sources ...types.NamespacedName) {
	for _, name := range sources {
		p.wishes.add(name, false)
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
