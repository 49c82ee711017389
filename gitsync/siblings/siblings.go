package siblings

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Access is how a controller comes to the renderings and accounts of siblings.
type Access struct {
	// Own reads with the rights of the controller.
	Own client.Reader
	// Cached reads what the controller watches. It serves messages only.
	Cached client.Reader
	// As returns the client of a service account of a namespace.
	As     func(namespace, account string) (client.Client, error)
	Mapper meta.RESTMapper
	// Bases and Folders fetch and render as for each source of this sync.
	Bases   repository.FetchBase
	Folders desired.FolderRenderer
	// Rendered returns what the last sync of a source rendered; nil: it is not known here.
	Rendered func(types.NamespacedName) *desired.State
}

// OfBranch returns the other GitSources of the branch of a source, see [Shares].
func OfBranch(ctx context.Context, own client.Reader, gs *v1alpha1.GitSource) ([]*v1alpha1.GitSource, error) {
	sources, err := inventory.Sources(ctx, own)
	if err != nil {
		return nil, err
	}
	var list []*v1alpha1.GitSource
	for i := range sources.Items {
		if other := &sources.Items[i]; Shares(other, gs) {
			list = append(list, other)
		}
	}
	return list, nil
}

// Shares reports whether another source follows the branch of a source, and may have read it.
func Shares(other, gs *v1alpha1.GitSource) bool {
	return other.UID != gs.UID && other.DeletionTimestamp == nil && desired.SameBranch(other, gs) && !neverRead(other)
}

// neverRead reports whether a source has looked, and has never read its branch: it may be
// that of a tenant who lacks the right to.
func neverRead(gs *v1alpha1.GitSource) bool {
	return gs.Status.ObservedGeneration != 0 && gs.Status.ObservedCommit == ""
}

// Refusal is why another source does not let the commit of a snapshot be applied: its keys
// have not signed it. Only the reason is passed on: the source may be another tenant's.
func Refusal(ctx context.Context, own client.Reader, s *repository.Snapshot, other *v1alpha1.GitSource) (string, error) {
	by := signers.Policy{
		Now: time.Now(), Places: map[string][]signers.Place{}, Order: gitobject.Precedence{}, Seen: other.Status.Seen,
	}
	err := credentials.Reader{Client: own, Source: other}.Keys(ctx, &by)
	if err == nil {
		err = credentials.Verify(ctx, other, s, by)
	}
	p, ok := errors.AsType[*plan.Problem](err)
	if !ok {
		return "", err
	}
	return fmt.Sprintf("which has it now and refuses the commit (%s)", p.Reason), nil
}
