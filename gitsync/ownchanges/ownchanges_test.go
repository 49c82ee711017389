package ownchanges

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A merge has changed the files that git would have merged in another way, and no others. A
// commit with one parent has changed all that differs from the parent.
func TestFinder_Own(t *testing.T) {
	t.Parallel()
	const lines = "1\n2\n3\n4\n5\n6\n"
	for because, tt := range map[string]struct {
		edit map[string]string // of what git merges
		own  string
	}{
		"git has merged it":            {nil, ""},
		"another text of both sides":   {map[string]string{"both": "mine\n"}, "both"},
		"another text of one side":     {map[string]string{"main": "mine\n"}, "main"},
		"a file that neither side has": {map[string]string{"new": "mine\n"}, "new"},
		"a file that neither changed":  {map[string]string{"same": "mine\n"}, "same"},
	} {
		t.Run(because, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewRepo(t)
			base := repo.Commit(map[string]string{"both": lines, "main": "a\n", "side": "a\n", "same": "a\n"})
			repo.Git("checkout", "-q", "-b", "side")
			repo.Commit(map[string]string{"both": strings.Replace(lines, "1", "side", 1), "side": "b\n"})
			repo.Git("checkout", "-q", "-")
			one := repo.Commit(map[string]string{"both": strings.Replace(lines, "6", "main", 1), "main": "b\n"})
			repo.Git("merge", "-q", "--no-ff", "--no-commit", "side")
			merge := repo.Commit(tt.edit)

			store := gitobject.NewStore(gittest.OpenCounting(t, repo))
			f := &Finder{
				Store: store,
				Bases: func(context.Context, plumbing.Hash, plumbing.Hash) ([]plumbing.Hash, error) {
					return []plumbing.Hash{plumbing.NewHash(base)}, nil
				},
				Spend: func(context.Context, int) error { return nil },
			}
			for commit, want := range map[string]string{merge: tt.own, one: "both main"} {
				c, err := object.GetCommit(store, plumbing.NewHash(commit))
				if err != nil {
					t.Fatal(err)
				}
				own, err := f.Own(t.Context(), store, c)
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(slices.Sorted(maps.Keys(own)), " "); got != want {
					t.Errorf("commit %s has changed %q, want %q", commit, got, want)
				}
			}
		})
	}
}
