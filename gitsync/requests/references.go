package requests

import (
	"context"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/dependencies"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/namedsecrets"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// SecretsOf returns the names under which [namedsecrets.Index] finds a source.
func SecretsOf(o client.Object) []string {
	gs, ok := o.(*v1alpha1.GitSource)
	if !ok {
		return nil
	}
	var names []string
	for _, s := range inventory.Secrets(&gs.Spec) {
		names = append(names, s.Name)
	}
	return names
}

// Dependents maps a source to those that depend on it.
func (w *Watches) Dependents(ctx context.Context, o client.Object) []reconcile.Request {
	var sources v1alpha1.GitSourceList
	on := client.MatchingFields{dependencies.Index: client.ObjectKeyFromObject(o).String()}
	if err := w.Client.List(ctx, &sources, on); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Mapping a GitSource to those that depend on it")
		return nil
	}
	return w.requestsFor(&sources)
}

// SourcesWith maps a Secret to the sources that refer to it.
func (w *Watches) SourcesWith(ctx context.Context, secret client.Object) []reconcile.Request {
	var sources v1alpha1.GitSourceList
	with := client.MatchingFields{namedsecrets.Index: secret.GetName()}
	if err := w.Client.List(ctx, &sources, client.InNamespace(secret.GetNamespace()), with); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "Mapping a Secret to its sources")
		return nil
	}
	return w.requestsFor(&sources)
}

// requestsFor are those for the sources of a list that this controller syncs.
func (w *Watches) requestsFor(sources *v1alpha1.GitSourceList) []reconcile.Request {
	var requests []reconcile.Request
	for i := range sources.Items {
		if gs := &sources.Items[i]; w.Selects(gs) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(gs)})
		}
	}
	return requests
}
