package namedsecrets

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Index finds sources by the names of the Secrets that they refer to.
const Index = "tranche.dev/secret"

// Check refuses a commit that brings a Secret which its GitSource names, or
// another one of the Secret's namespace. A committer would list own keys there as those
// of signers, or have another's credentials used. The controller reads the cluster
// after the dry run of the commit, which refuses what the account may not write. So an
// account learns nothing of another namespace.
func Check(ctx context.Context, cached client.Reader, gs *v1alpha1.GitSource, targets []*apply.Target) error {
	var ps plan.Problems
	for _, t := range targets {
		p, err := refused(ctx, cached, gs, t)
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

// refused returns why a target may not come from Git, since a GitSource names it; nil:
// it may.
func refused(ctx context.Context, cached client.Reader, gs *v1alpha1.GitSource, t *apply.Target) (*plan.Problem, error) {
	if t.GroupKind() != inventory.SecretKind {
		return nil, nil
	}
	if p := credentials.NotFromGit(gs, t.Object); p != nil {
		return p, nil
	}
	// In all namespaces: the cache may be of some of them.
	var sources v1alpha1.GitSourceList
	if err := cached.List(ctx, &sources, client.MatchingFields{Index: t.GetName()}); err != nil {
		return nil, fmt.Errorf("listing the GitSources that name Secret %s/%s: %w", t.GetNamespace(), t.GetName(), err)
	}
	for i := range sources.Items {
		if p := credentials.NotFromGit(&sources.Items[i], t.Object); p != nil {
			return p, nil
		}
	}
	return nil, nil
}
