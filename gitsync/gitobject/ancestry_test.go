package gitobject_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// IsInHistory says of each two commits of a random graph what git says.
func TestIsInHistory(t *testing.T) {
	const commits = 40
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	repo := gittest.NewRepo(t)
	root := repo.Commit(map[string]string{"a": "x"})
	list := []string{root}
	for i := range commits {
		args := []string{"commit-tree", "-m", fmt.Sprint(i), root + "^{tree}"}
		parents := random.Perm(len(list))
		for _, p := range parents[:min(random.IntN(4), len(parents))] { // none: another root
			args = append(args, "-p", list[p])
		}
		list = append(list, repo.Git(args...))
	}
	store := filesystem.NewStorage(osfs.New(filepath.Join(repo.Work, ".git")), cache.NewObjectLRUDefault())
	for _, tip := range list {
		within := strings.Fields(repo.Git("rev-list", tip))
		for _, c := range list {
			got, err := gitobject.IsInHistory(t.Context(), store, plumbing.NewHash(c), plumbing.NewHash(tip))
			if err != nil {
				t.Fatal(err)
			}
			if want := slices.Contains(within, c); got != want {
				t.Errorf("%s in the history of %s: %t, want %t", c, tip, got, want)
			}
		}
	}
}
