package siblings

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// listed is a reader that has one GitSource.
type listed struct {
	client.Reader
	gs v1alpha1.GitSource
}

func (r listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.GitSourceList).Items = []v1alpha1.GitSource{r.gs}
	return nil
}

// patching is a client of an account that may patch, or may not.
type patching struct {
	client.Client
	err error
}

func (c patching) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return c.err
}

// countedRenders is a renderer that counts.
type countedRenders struct{ n *int }

func (r countedRenders) Render(string, filesys.FileSystem, string, manifest.RenderOptions) ([]plan.Object, error) {
	*r.n++
	return nil, nil
}

// Nothing is rendered for a source whose account may not write the objects that left the
// branch. The same holds for one that has synced and could not read the branch.
func TestHeirs_Renders(t *testing.T) {
	repo := gittest.NewRepo(t)
	tip := plumbing.NewHash(repo.Commit(map[string]string{"heavy/a.yaml": "kind: A\n"}))
	store := filesystem.NewStorage(osfs.New(filepath.Join(repo.Work, ".git")), cache.NewObjectLRUDefault())
	s := &repository.Snapshot{EncodedObjectStorer: store, Commit: tip, Tip: tip}
	source := func(name, path string) v1alpha1.GitSource {
		return v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)},
			Spec: v1alpha1.GitSourceSpec{URL: repo.URL(), Path: path, Ref: v1alpha1.GitReference{Branch: "main"},
				ServiceAccountName: "tenant"},
		}
	}
	leaves := source("leaves", "deploy")
	leaves.Status.Inventory = &v1alpha1.Inventory{Entries: []v1alpha1.InventoryEntry{{ID: "shop_b__ConfigMap", Version: "v1"}}}
	for _, tc := range []struct {
		why    string
		may    error
		status v1alpha1.GitSourceStatus
		want   int
	}{
		{"it may write the object", nil, v1alpha1.GitSourceStatus{ObservedGeneration: 1, ObservedCommit: tip.String()}, 1},
		{"it is new", nil, v1alpha1.GitSourceStatus{}, 1},
		{"it may not", errors.New("forbidden"), v1alpha1.GitSourceStatus{ObservedGeneration: 1, ObservedCommit: tip.String()}, 0},
		{"it has read nothing", nil, v1alpha1.GitSourceStatus{ObservedGeneration: 1}, 0},
	} {
		n := 0
		other := source("other", "heavy")
		other.Status = tc.status
		a := Access{
			Own: listed{gs: other}, Folders: countedRenders{&n}, Rendered: func(types.NamespacedName) *desired.State { return nil },
			As: func(namespace, account string) (client.Client, error) {
				if namespace != "shop" || account != "tenant" {
					t.Errorf("%s: asked as %s of %s", tc.why, account, namespace)
				}
				return patching{err: tc.may}, nil
			},
		}
		if _, err := a.HeirsOf(t.Context(), &leaves, s, inventory.Set{}); err != nil {
			t.Errorf("%s: %v", tc.why, err)
		}
		if n != tc.want {
			t.Errorf("%s: rendered %d times, want %d", tc.why, n, tc.want)
		}
	}
}
