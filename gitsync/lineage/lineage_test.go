package lineage

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

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
	l := New(gittest.OpenCounting(t, repo))
	several := 0
	for range 150 {
		i := r.IntN(len(commits))
		a, b := commits[i], commits[max(0, i-r.IntN(20))]
		var at [2]int32
		for n, c := range []plumbing.Hash{a, b} {
			var err error
			if at[n], err = l.Add(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		bases, apart, err := l.Fork(at[0], at[1], noStep)
		if err != nil {
			t.Fatal(err)
		}
		names := func(list []int32) string {
			var hashes []string
			for _, c := range list {
				hashes = append(hashes, l.Hash(c).String())
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

// A walk ends at its bound on the way down, and not once it is at the end of a deep history.
func TestLineage_Deep(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	repo.Commit(map[string]string{"a": "a"})
	repo.Git("branch", "long")
	const most = 10_000
	errMore := errors.New("more than may be")
	commits := repo.Import("long", gittest.Chain(3*most), func(i int) int { return i })
	store := gittest.OpenCounting(t, repo)
	l := New(store)
	l.Limit(Bound{most, errMore})
	if _, err := l.Add(t.Context(), commits[len(commits)-1]); !errors.Is(err, errMore) || store.N > most {
		t.Errorf("%v after %d commits", err, store.N)
	}
	l = New(store)
	tip, err := l.Add(t.Context(), commits[len(commits)-1])
	if err != nil {
		t.Fatal(err)
	}
	for reason, tt := range map[string]struct {
		within func(int32) bool
		want   int
		err    error
	}{
		"all of it":            {func(int32) bool { return true }, 0, errMore},
		"one more than may be": {func(i int32) bool { return i >= tip-most }, 0, errMore},
		"as much as may be":    {func(i int32) bool { return i > tip-most }, most, nil},
	} {
		steps := 0
		list, err := l.Below([]int32{tip}, Bound{most, errMore}, tt.within, func() error { steps++; return nil })
		if len(list) != tt.want || !errors.Is(err, tt.err) || steps > most+1 {
			t.Errorf("%s: %d commits, %v, after %d steps", reason, len(list), err, steps)
		}
		if len(list) > 0 && (list[0] != tip || list[len(list)-1] != tip-most+1) {
			t.Errorf("%s: not in order", reason)
		}
	}
}
