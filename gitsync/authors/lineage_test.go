package authors

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// countingStore counts the objects that are read.
type countingStore struct {
	storer.EncodedObjectStorer
	n int
}

func (s *countingStore) EncodedObject(t plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	s.n++
	return s.EncodedObjectStorer.EncodedObject(t, h)
}

// storeOf reads the repository as it is on disk.
func storeOf(t *testing.T, repo *gittest.Repo) *countingStore {
	t.Helper()
	r, err := git.PlainOpen(repo.Work)
	if err != nil {
		t.Fatal(err)
	}
	return &countingStore{EncodedObjectStorer: r.Storer}
}

func noStep() error { return nil }

// The best common ancestors are those that git finds, in any history, whatever the dates
// of the commits are. So are the commits that one side alone has.
func TestLineage_Fork(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	repo.Commit(map[string]string{"a": "a"})
	repo.Git("branch", "long")
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in each run
	parents := make([][]int, 120)
	for i := 1; i < len(parents); i++ {
		for range 1 + r.IntN(2) {
			if p := max(0, i-1-r.IntN(6)); !slices.Contains(parents[i], p) {
				parents[i] = append(parents[i], p)
			}
		}
	}
	commits := repo.Import("long", parents, func(int) int { return 1_000_000 + r.IntN(1000) })
	l := newLineage(storeOf(t, repo))
	several := 0
	for range 150 {
		i := r.IntN(len(commits))
		a, b := commits[i], commits[max(0, i-r.IntN(20))]
		var at [2]int32
		for n, c := range []plumbing.Hash{a, b} {
			var err error
			if at[n], err = l.add(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		bases, apart, err := l.fork(at[0], at[1], noStep)
		if err != nil {
			t.Fatal(err)
		}
		names := func(list []int32) string {
			var hashes []string
			for _, c := range list {
				hashes = append(hashes, l.commits[c].hash.String())
			}
			slices.Sort(hashes)
			return strings.Join(hashes, " ")
		}
		sorted := func(out string) string { return strings.Join(slices.Sorted(slices.Values(strings.Fields(out))), " ") }
		if got, want := names(bases), sorted(repo.Git("merge-base", "--all", a.String(), b.String())); got != want {
			t.Errorf("%s and %s: bases %s, want %s", a, b, got, want)
		}
		if got, want := names(slices.Collect(maps.Keys(apart))), sorted(repo.Git("rev-list", a.String()+"..."+b.String())); got != want {
			t.Errorf("%s and %s: apart %s, want %s", a, b, got, want)
		}
		if len(bases) > 1 {
			several++
		}
	}
	if several == 0 {
		t.Error("no two commits have more than one best common ancestor")
	}
}

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
	store := storeOf(t, repo)
	o := &origins{branch: &Branch{}, lineage: newLineage(store)}
	for i := old; i < len(commits); i += 2 {
		bases, err := o.mergeBases(t.Context(), commits[i-1], commits[i])
		if err != nil || len(bases) != 1 || bases[0] != commits[i-1] {
			t.Fatalf("%v, %v", bases, err)
		}
	}
	if all := len(commits) + 1; store.n > all || o.spent > 10*merges {
		t.Errorf("%d reads of %d commits, and an effort of %d for %d merges", store.n, all, o.spent, merges)
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

// A walk ends at its bound on the way down, and not once it is at the end of a deep history.
func TestLineage_Deep(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	repo.Commit(map[string]string{"a": "a"})
	repo.Git("branch", "long")
	commits := repo.Import("long", gittest.Chain(3*MaxWalk), func(i int) int { return i })
	store := storeOf(t, repo)
	l := newLineage(store)
	l.most = MaxWalk
	if _, err := l.add(t.Context(), commits[len(commits)-1]); !IsUncounted(err) || store.n > MaxWalk {
		t.Errorf("%v after %d commits", err, store.n)
	}
	l = newLineage(store)
	tip, err := l.add(t.Context(), commits[len(commits)-1])
	if err != nil {
		t.Fatal(err)
	}
	for reason, tt := range map[string]struct {
		within func(int32) bool
		want   int
		err    error
	}{
		"all of it":            {func(int32) bool { return true }, 0, errTooManyCommits},
		"one more than may be": {func(i int32) bool { return i >= tip-MaxWalk }, 0, errTooManyCommits},
		"as much as may be":    {func(i int32) bool { return i > tip-MaxWalk }, MaxWalk, nil},
	} {
		steps := 0
		list, err := l.below([]int32{tip}, tt.within, func() error { steps++; return nil })
		if len(list) != tt.want || !errors.Is(err, tt.err) || steps > MaxWalk+1 {
			t.Errorf("%s: %d commits, %v, after %d steps", reason, len(list), err, steps)
		}
		if len(list) > 0 && (list[0] != tip || list[len(list)-1] != tip-MaxWalk+1) {
			t.Errorf("%s: not in order", reason)
		}
	}
}

// A search that takes too much is not repeated at each sync. One that failed is.
func TestKnown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want int
	}{{nil, 1}, {errTooManyCommits, 1}, {errTooMuchHistory, 1}, {context.DeadlineExceeded, 2}} {
		k, n := Known{}, 0
		for range 2 {
			err := k.search("x", func() Found { n++; return Found{err: tt.err} }).err
			if !errors.Is(err, tt.err) {
				t.Errorf("%v, want %v", err, tt.err)
			}
		}
		if n != tt.want {
			t.Errorf("%v: %d searches, want %d", tt.err, n, tt.want)
		}
	}
}
