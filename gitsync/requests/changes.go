package requests

import (
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// SpecChanged passes changes of the spec, of the annotations that ask for a sync or confirm
// one, and of the labels that select. It does not pass changes of the status, which is our
// own.
var SpecChanged = predicate.Or[client.Object](
	predicate.GenerationChangedPredicate{},
	predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return Asked(e.ObjectOld) != Asked(e.ObjectNew) || confirmed(e.ObjectOld) != confirmed(e.ObjectNew) ||
			!maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}},
)

// PushedElsewhere passes sources with a new push, of which another replica was notified.
var PushedElsewhere = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[v1alpha1.AnnotationPush] != e.ObjectNew.GetAnnotations()[v1alpha1.AnnotationPush]
	},
}

// Asked returns the annotation by which a user asks for a sync.
func Asked(o client.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationReconcile] }

// IsAsked reports whether a user has asked for a sync since the last one.
func IsAsked(gs *v1alpha1.GitSource) bool {
	return Asked(gs) != v1alpha1.AnnotationReconcileDisabled && Asked(gs) != gs.Status.LastHandledReconcileAt
}

func confirmed(o client.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationConfirmPrune] }
