package gitsync

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
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
	for _, s := range inventory.Secrets(&gs.Spec) {
		names = append(names, s.Name)
	}
	return names
}

// keepSecrets refuses a commit that brings a Secret which this GitSource names, or
// another one of the Secret's namespace. A committer would list own keys there as those
// of signers, or have another's credentials used. The controller reads the cluster
// after the dry run of the commit, which refuses what the account may not write. So an
// account learns nothing of another namespace.
func (l *look) keepSecrets(ctx context.Context, targets []*apply.Target) error {
	var ps plan.Problems
	for _, t := range targets {
		p, err := l.keepSecret(ctx, t)
		if err != nil {
			return err
		}
		if p != nil {
			t.Refused = true
			ps = append(ps, p)
		}
	}
	if len(ps) > 0 {
		return ps
	}
	return nil
}

// keepSecret returns why a target may not come from Git, since a GitSource names it; nil:
// it may.
func (l *look) keepSecret(ctx context.Context, t *apply.Target) (*plan.Problem, error) {
	if t.GroupKind() != inventory.SecretKind {
		return nil, nil
	}
	if p := credentials.NotFromGit(l.gs, t.Object); p != nil {
		return p, nil
	}
	// In all namespaces: the cache may be of some of them.
	var sources v1alpha1.GitSourceList
	if err := l.status.List(ctx, &sources, client.MatchingFields{indexSecret: t.GetName()}); err != nil {
		return nil, fmt.Errorf("listing the GitSources that name Secret %s/%s: %w", t.GetNamespace(), t.GetName(), err)
	}
	for i := range sources.Items {
		if p := credentials.NotFromGit(&sources.Items[i], t.Object); p != nil {
			return p, nil
		}
	}
	return nil, nil
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
