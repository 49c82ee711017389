package requests

import (
	"context"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/notes"
	"github.com/tranche-dev/tranche/gitsync/writeback"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// NewDecision passes the few changes of a BatchRelease's status by which its source
// has more, or less, to write back or to report. It does not pass each pod that
// becomes ready.
var NewDecision = predicate.Funcs{
	CreateFunc:  func(event.CreateEvent) bool { return false }, // the source is synced anyway
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.BatchRelease)
		after, is := e.ObjectNew.(*v1alpha1.BatchRelease)
		return ok && is && (writeback.Mark(before) != writeback.Mark(after) || notes.Mark(before) != notes.Mark(after))
	},
}

// NewDecision is [NewDecision] without the end of an installation in whose sync there was no
// approval to judge. The source would find nothing new.
func (w *Watches) NewDecision() predicate.Predicate {
	p := NewDecision
	p.UpdateFunc = func(e event.UpdateEvent) bool {
		return NewDecision.UpdateFunc(e) && !w.ofInstallation(e)
	}
	return p
}

func (w *Watches) ofInstallation(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.BatchRelease)
	after, is := e.ObjectNew.(*v1alpha1.BatchRelease)
	if !ok || !is || before.Status.Phase != "" || after.Status.Phase != v1alpha1.PhaseCompleted || after.Spec.Approval != nil ||
		len(after.Status.History) > 0 || after.Status.FailedRevision != "" {
		return false
	}
	l := after.GetLabels()
	return w.Installing(types.NamespacedName{Namespace: l[v1alpha1.LabelSourceNamespace], Name: l[v1alpha1.LabelSource]})
}

// SourceOf maps a BatchRelease to the GitSource that applies it.
func (w *Watches) SourceOf(ctx context.Context, o client.Object) []reconcile.Request {
	name, namespace := o.GetLabels()[v1alpha1.LabelSource], o.GetLabels()[v1alpha1.LabelSourceNamespace]
	if name == "" {
		return nil
	}
	if len(name) < inventory.MaxLabelValue {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
	}
	var sources v1alpha1.GitSourceList // the label may be shortened
	if err := w.Client.List(ctx, &sources, client.InNamespace(namespace)); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Mapping a release to its source")
		return nil
	}
	for i := range sources.Items {
		if inventory.LabelValue(sources.Items[i].Name) == name {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(&sources.Items[i])}}
		}
	}
	return nil
}
