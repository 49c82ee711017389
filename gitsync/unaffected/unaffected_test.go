package unaffected

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-logr/logr"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/commitrange"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A commit is taken for applied only if it, and each one since the applied commit, has the
// same in all that was read. A change that a push brought in between and took back again
// is found. A commit in between that cannot be read keeps no later one from being applied.
func TestAdvance(t *testing.T) {
	t.Parallel()
	const file, approval = "deploy/a.yaml", "deploy/approvals/web.yaml"
	commit := func(files map[string]string) func(r *gittest.Repo, from string) {
		return func(r *gittest.Repo, _ string) { r.Commit(files) }
	}
	for why, tc := range map[string]struct {
		make     func(r *gittest.Repo, from string)
		ref      v1alpha1.GitReference
		with     string // another spec that was applied with
		hasBases bool
		advances bool
	}{
		"docs":                     {make: docs(3), advances: true},
		"a change":                 {make: commit(map[string]string{file: "two"})},
		"there and back":           {make: thereAndBack(file)},
		"an approval":              {make: commit(map[string]string{approval: "a: b"})},
		"an approval, and back":    {make: thereAndBack(approval)},
		"a pinned tag":             {make: docs(1), ref: v1alpha1.GitReference{Tag: "v1"}},
		"another spec":             {make: docs(1), with: "another"},
		"remote bases":             {make: docs(1), hasBases: true},
		"the branch was rewritten": {make: rewritten},
		"the applied commit came by a merge": {make: func(r *gittest.Repo, from string) {
			r.Git("checkout", "-q", "-b", "side", from+"~1")
			r.Git("merge", "-q", "--no-ff", "-m", "Merge", from)
			r.Git("checkout", "-q", "-B", "main")
		}},
		"a tree that cannot be read": {make: badTree},
	} {
		t.Run(why, func(t *testing.T) {
			repo := gittest.NewRepo(t)
			repo.Commit(map[string]string{file: "one", "README.md": "docs"})
			from := repo.Commit(map[string]string{"README.md": "first"})
			tc.make(repo, from)
			s, reads := readAt(t, repo, file)
			gs := &v1alpha1.GitSource{Spec: v1alpha1.GitSourceSpec{Path: "deploy", Ref: tc.ref}}
			gs.Status.AppliedCommit, gs.Status.AppliedWith = from, apply.Digest(&gs.Spec)+tc.with
			tip := s.Commit.String()
			if err := (&Checker{}).Advance(logr.Discard(), s, gs, &desired.State{Commit: tip, Reads: reads, HasBases: tc.hasBases}); err != nil {
				t.Fatal(err)
			}
			if at := gs.Status.AppliedCommit; (at == tip) != tc.advances || at != from && !tc.advances {
				t.Errorf("at %s, from %s to %s; want to advance: %t", at, from, tip, tc.advances)
			}
		})
	}
}

// A short sync is enough only if no commit of a push has other answers. With releases,
// no merge may have brought approvals that it left out, either.
func TestIsUntouched(t *testing.T) {
	t.Parallel()
	const file = "deploy/a.yaml"
	leftOut := func(r *gittest.Repo, from string) {
		beside(r, from, map[string]string{"deploy/approvals/web.yaml": "a"})
		r.Git("merge", "-q", "--no-ff", "-s", "ours", "-m", "Merge", "side")
	}
	for why, tc := range map[string]struct {
		make      func(r *gittest.Repo, from string)
		releases  int
		untouched bool
	}{
		"no commit":                         {make: func(*gittest.Repo, string) {}, releases: 1, untouched: true},
		"docs":                              {make: docs(3), releases: 1, untouched: true},
		"there and back":                    {make: thereAndBack(file)},
		"the branch was rewritten":          {make: rewritten},
		"an approval left out, no release":  {make: leftOut, untouched: true},
		"an approval left out, one release": {make: leftOut, releases: 1},
		"more commits than a glance takes": {make: func(r *gittest.Repo, from string) {
			tree, at := r.Git("rev-parse", from+"^{tree}"), from
			for range commitrange.MaxShort + 1 {
				at = r.Git("commit-tree", "-m", "Nothing", "-p", at, tree)
			}
			r.Git("update-ref", "refs/heads/main", at)
		}},
	} {
		t.Run(why, func(t *testing.T) {
			repo := gittest.NewRepo(t)
			repo.Commit(map[string]string{file: "one", "README.md": "docs"})
			from := repo.Commit(map[string]string{"README.md": "first"})
			tc.make(repo, from)
			s, reads := readAt(t, repo, file)
			set := &plan.Set{Releases: make([]plan.Release, tc.releases)}
			state := &desired.State{Set: set, Reads: reads}
			gs := &v1alpha1.GitSource{Spec: v1alpha1.GitSourceSpec{Path: "deploy"}}
			got, err := (&Checker{}).IsUntouched(s, gs, state, nil, plumbing.NewHash(from))
			if err != nil || got != tc.untouched {
				t.Errorf("untouched %t, %v", got, err)
			}
		})
	}
}

// readAt returns what a checked-out commit has, and what was read of one file.
func readAt(t *testing.T, repo *gittest.Repo, file string) (*repository.Snapshot, gittree.Reads) {
	t.Helper()
	store := filesystem.NewStorage(osfs.New(filepath.Join(repo.Work, ".git")), cache.NewObjectLRUDefault())
	tip := plumbing.NewHash(repo.Head())
	tree, err := gittree.Open(store, tip)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	return &repository.Snapshot{EncodedObjectStorer: store, Commit: tip, Tip: tip}, tree.Reads()
}

// thereAndBack commits another content of a file, and takes it back.
func thereAndBack(file string) func(r *gittest.Repo, from string) {
	return func(r *gittest.Repo, _ string) {
		r.Commit(map[string]string{file: "other"})
		r.Git("revert", "--no-edit", "HEAD")
	}
}

// rewritten sets the branch back, and leaves the commit that was applied out.
func rewritten(r *gittest.Repo, _ string) {
	r.Git("reset", "-q", "--hard", "HEAD~1")
	r.Commit(map[string]string{"README.md": "another past"})
}

// badTree commits a tree with a name that is none, as git itself does not, and then the one
// from before.
func badTree(r *gittest.Repo, from string) {

	hash := plumbing.ComputeHash(plumbing.BlobObject, nil)
	tree := "100644 ..\x00" + string(hash[:])
	cmd := exec.Command("git", "hash-object", "-t", "tree", "--literally", "-w", "--stdin")
	cmd.Dir, cmd.Stdin = r.Work, strings.NewReader(tree)
	out, err := cmd.CombinedOutput()
	if err != nil {
		panic(string(out))
	}
	bad := r.Git("commit-tree", "-m", "Bad", "-p", from, strings.TrimSpace(string(out)))
	r.Git("update-ref", "refs/heads/main", r.Git("commit-tree", "-m", "Good", "-p", bad, from+"^{tree}"))
}

func docs(n int) func(*gittest.Repo, string) {
	return func(r *gittest.Repo, _ string) {
		for i := range n {
			r.Commit(map[string]string{"README.md": fmt.Sprint(i)})
		}
	}
}

// beside commits files on a branch beside the main one.
func beside(r *gittest.Repo, from string, files map[string]string) {
	r.Git("checkout", "-q", "-b", "side", from)
	r.Commit(files)
	r.Git("checkout", "-q", "main")
}
