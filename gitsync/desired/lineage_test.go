package desired

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
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

// importCommits makes commits on top of the head of a branch, each with the parents that
// are given by their place; none: the head. It returns them.
func importCommits(t *testing.T, repo *gittest.Repo, branch string, parents [][]int, when func(i int) int) []plumbing.Hash {
	t.Helper()
	var in strings.Builder
	head := repo.Git("rev-parse", branch)
	for i, of := range parents {
		fmt.Fprintf(&in, "commit refs/heads/%s\nmark :%d\ncommitter t <t@example.org> %d +0000\ndata 0\n", branch, i+1, when(i))
		if len(of) == 0 {
			fmt.Fprintf(&in, "from %s\n", head)
		}
		for n, p := range of {
			fmt.Fprintf(&in, "%s :%d\n", []string{"from", "merge"}[min(n, 1)], p+1)
		}
		in.WriteString("\n")
	}
	marks := filepath.Join(t.TempDir(), "marks")
	cmd := exec.CommandContext(t.Context(), "git", "fast-import", "--quiet", "--force", "--export-marks="+marks)
	cmd.Dir, cmd.Stdin = repo.Work, strings.NewReader(in.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(marks)
	if err != nil {
		t.Fatal(err)
	}
	list := make([]plumbing.Hash, len(parents))
	for line := range strings.Lines(string(data)) {
		var n int
		var hash string
		if _, err := fmt.Sscanf(line, ":%d %s", &n, &hash); err != nil {
			t.Fatal(err)
		}
		list[n-1] = plumbing.NewHash(hash)
	}
	return list
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

// chain is n commits, each the parent of the next.
func chain(n int) [][]int {
	list := make([][]int, n)
	for i := 1; i < n; i++ {
		list[i] = []int{i - 1}
	}
	return list
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
	commits := importCommits(t, repo, "long", parents, func(int) int { return 1_000_000 + r.IntN(1000) })
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
	parents := chain(old)
	for range merges {
		tip := len(parents) - 1
		parents = append(parents, []int{tip}, []int{tip, tip + 1})
	}
	commits := importCommits(t, repo, "long", parents, func(i int) int { return 1_000_000 + i })
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
	commits := importCommits(t, repo, "long", chain(3*maxWalk), func(i int) int { return i })
	store := storeOf(t, repo)
	l := newLineage(store)
	l.most = maxWalk
	if _, err := l.add(t.Context(), commits[len(commits)-1]); !IsUncounted(err) || store.n > maxWalk {
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
		"one more than may be": {func(i int32) bool { return i >= tip-maxWalk }, 0, errTooManyCommits},
		"as much as may be":    {func(i int32) bool { return i > tip-maxWalk }, maxWalk, nil},
	} {
		steps := 0
		list, err := l.below([]int32{tip}, tt.within, func() error { steps++; return nil })
		if len(list) != tt.want || !errors.Is(err, tt.err) || steps > maxWalk+1 {
			t.Errorf("%s: %d commits, %v, after %d steps", reason, len(list), err, steps)
		}
		if len(list) > 0 && (list[0] != tip || list[len(list)-1] != tip-maxWalk+1) {
			t.Errorf("%s: not in order", reason)
		}
	}
}

// A merge of a long side branch can combine more commits than the search may visit. Then
// the approval does not count, and its problem has the reason.
func TestDistinctAuthor_LongSideBranch(t *testing.T) {
	t.Parallel()
	m := newTeam(t)
	v1 := m.by(nil, webAt("v1"))
	m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1", "yy": "v1"})))
	m.Git("checkout", "-q", "-b", "side")
	m.by(&m.forge, componentised("x", map[string]string{"yy": "v666"}))
	m.Git("checkout", "-q", "main")
	importCommits(t, m.Repo, "side", chain(maxWalk+1), func(i int) int { return 1_000_000 + i })
	m.by(&m.ada, componentised("yy", nil))
	m.merge(&m.forge, "side")
	m.by(&m.grace, approvalOf(m.Head()))
	if got, ignored := m.approve(t, v1, true); got != nil || !strings.Contains(ignored, errTooManyCommits.Error()) {
		t.Errorf("approved: %+v; ignored: %s", got, ignored)
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
