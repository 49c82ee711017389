package authors

import (
	"context"
	"errors"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/lineage"
)

// A search reads each commit once, however many merges there are. The length of the
// history adds nothing to the effort for the merge bases of young branches.
func TestLineage_ManyMerges(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	repo.Commit(map[string]string{"a": "a"})
	repo.Git("branch", "long")
	const old, merges = 2000, 100
	parents := gittest.Chain(old)
	for range merges {
		tip := len(parents) - 1
		parents = append(parents, []int{tip}, []int{tip, tip + 1})
	}
	commits := repo.Import("long", parents, func(i int) int { return 1_000_000 + i })
	store := gittest.OpenCounting(t, repo)
	o := &origins{branch: &Branch{}, lineage: lineage.New(store)}
	for i := old; i < len(commits); i += 2 {
		bases, err := o.mergeBases(t.Context(), commits[i-1], commits[i])
		if err != nil || len(bases) != 1 || bases[0] != commits[i-1] {
			t.Fatalf("%v, %v", bases, err)
		}
	}
	if all := len(commits) + 1; store.N > all || o.spent > 10*merges {
		t.Errorf("%d reads of %d commits, and an effort of %d for %d merges", store.N, all, o.spent, merges)
	}
	// A walk ends at the limit of the effort, and when its context is canceled.
	o.spent = maxEffort
	if _, err := o.mergeBases(t.Context(), commits[0], commits[len(commits)-1]); !IsUncounted(err) {
		t.Errorf("beyond the effort: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.spent = 0
	if _, err := o.mergeBases(ctx, commits[0], commits[len(commits)-1]); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
