package gitsync

import (
	"context"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// indexSecret finds sources by the names of the Secrets that they refer to.
const indexSecret = "tranche.dev/secret"

func secretsOf(o client.Object) []string {
	gs, ok := o.(*v1alpha1.GitSource)
	if !ok {
		return nil
	}
	var names []string
	if ref := gs.Spec.SecretRef; ref != nil {
		names = append(names, ref.Name)
	}
	if ref := gs.Spec.ProxySecretRef; ref != nil {
		names = append(names, ref.Name)
	}
	if v := gs.Spec.Verify; v != nil {
		names = append(names, v.SecretRef.Name)
	}
	if a := gs.Spec.Approvals; a != nil && a.Signers != nil {
		names = append(names, a.Signers.SecretRef.Name)
	}
	if w := gs.Spec.WriteBack; w != nil && w.SigningKey != nil {
		names = append(names, w.SigningKey.Name)
	}
	return names
}

// sourcesWith maps a Secret to the sources that refer to it.
func (r *reconciler) sourcesWith(ctx context.Context, secret client.Object) []reconcile.Request {
	var sources v1alpha1.GitSourceList
	if err := r.status.List(ctx, &sources, client.InNamespace(secret.GetNamespace()), client.MatchingFields{indexSecret: secret.GetName()}); err != nil {
		logr.FromContextOrDiscard(ctx).Error(err, "mapping a Secret to its sources")
		return nil
	}
	return r.requestsFor(&sources)
}

// requestsFor are those for the sources of a list that are looked at here.
func (r *reconciler) requestsFor(sources *v1alpha1.GitSourceList) []reconcile.Request {
	var requests []reconcile.Request
	for i := range sources.Items {
		if gs := &sources.Items[i]; r.isSelected(gs) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(gs)})
		}
	}
	return requests
}
