package preview

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Probe fetches the repository of a source as the controller will, but from here. It
// uses the data of its Secret, and a mirror in a folder. It returns the tip of the
// branch, and what it renders. Errors are a [plan.Problem], or [plan.Problems], where
// they are about repository or manifests.
func Probe(
	ctx context.Context, gs *v1alpha1.GitSource, secret map[string][]byte, dir string, mapper meta.RESTMapper,
) (tip string, set *plan.Set, err error) {
	u, err := gitserver.ParseURL(gs.Spec.URL)
	if err != nil {
		return "", nil, err
	}
	timeout := gs.Spec.TimeoutOrDefault()
	r := gitserver.Remote{URL: u, Secret: credentials.SecretName(gs)}
	if r.Access, err = gitserver.NewAccess(u, r.Secret, secret, timeout); err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	apps := gitserver.NewGitHubApps()
	if err := apps.Authenticate(ctx, &r); err != nil {
		return "", nil, err
	}
	ref := gs.Spec.Ref
	ref.Branch = cmp.Or(ref.Branch, "main")
	s, err := repository.NewCache(dir).Of(r).FetchReference(ctx, r, ref, time.Now())
	if err != nil {
		return "", nil, err
	}
	defer s.Close()
	t, err := gittree.Open(s, s.Commit)
	if err != nil {
		return "", nil, err
	}
	set, err = (&desired.Reader{Snapshot: s, Source: gs, Mapper: mapper}).Render(t)
	return s.Commit.String(), set, err
}
