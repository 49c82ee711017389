package gitsync

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

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
	if err := l.status.List(ctx, &sources, client.MatchingFields{requests.SecretIndex: t.GetName()}); err != nil {
		return nil, fmt.Errorf("listing the GitSources that name Secret %s/%s: %w", t.GetNamespace(), t.GetName(), err)
	}
	for i := range sources.Items {
		if p := credentials.NotFromGit(&sources.Items[i], t.Object); p != nil {
			return p, nil
		}
	}
	return nil, nil
}
