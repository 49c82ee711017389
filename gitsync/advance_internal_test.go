package gitsync

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A commit is taken for applied only if it, and each one since the applied commit, has the
// same in all that was read. What a push brought in between and took back again is found.
// A commit in between that cannot be read keeps no later one from being applied.
func TestAdvance(t *testing.T) {
	t.Parallel()
	const file, approval = "deploy/a.yaml", "deploy/approvals/web.yaml"
	commit := func(files map[string]string) func(r *gittest.Repo, from string) {
		return func(r *gittest.Repo, _ string) { r.Commit(files) }
	}
	there := func(files ...string) func(r *gittest.Repo, from string) {
		return func(r *gittest.Repo, _ string) {
			for _, name := range files {
				r.Commit(map[string]string{name: "other"})
				r.Git("revert", "-n", "HEAD")
				r.Git("commit", "-q", "-m", "Back")
			}
		}
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
		"there and back":           {make: there(file)},
		"an approval":              {make: commit(map[string]string{approval: "a: b"})},
		"an approval, and back":    {make: there(approval)},
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
			store := filesystem.NewStorage(osfs.New(filepath.Join(repo.Work, ".git")), cache.NewObjectLRUDefault())
			tip := plumbing.NewHash(repo.Head())
			tree, err := gittree.Open(store, tip)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tree.ReadFile(file); err != nil {
				t.Fatal(err)
			}
			gs := &v1alpha1.GitSource{Spec: v1alpha1.GitSourceSpec{Path: "deploy", Ref: tc.ref}}
			gs.Status.AppliedCommit, gs.Status.AppliedWith = from, apply.Digest(&gs.Spec)+tc.with
			l := &look{reconciler: &reconciler{}, gs: gs}
			d := &desired{commit: tip.String(), reads: tree.Reads(), hasBases: tc.hasBases}
			if err := l.advance(&repository.Snapshot{Storage: store, Commit: tip, Tip: tip}, d); err != nil {
				t.Fatal(err)
			}
			if at := gs.Status.AppliedCommit; (at == tip.String()) != tc.advances || at != from && !tc.advances {
				t.Errorf("at %s, from %s to %s; want to advance: %t", at, from, tip, tc.advances)
			}
		})
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
