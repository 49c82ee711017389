package gittest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pushed commits a change, pushes it, and asks git whether all is as git would have made it.
func pushed(t *testing.T, r *Repo, change map[string]string, message ...string) {
	t.Helper()
	r.Write(change)
	commit, err := r.commit(strings.Join(append([]string{"Change"}, message...), "\n\n"))
	if err == nil {
		err = r.push()
	}
	if err != nil {
		t.Fatal(err)
	}
	if at := Git(t, r.Bare, "rev-parse", "main"); at != commit {
		t.Errorf("main is %s after the push of %s", at, commit)
	}
	if left := r.Git("status", "--porcelain"); left != "" {
		t.Errorf("git finds changes after %s:\n%s", commit, left)
	}
	if got, want := r.Git("rev-parse", "HEAD^{tree}"), r.Git("write-tree"); got != want {
		t.Errorf("commit %s has tree %s, and git makes %s of the index", commit, got, want)
	}
	for file, content := range change {
		if content != "" && Git(t, r.Bare, "show", commit+":"+file) != strings.TrimSpace(content) {
			t.Errorf("commit %s has another %s", commit, file)
		}
	}
}

// TestCommitsAreGits asks git whether the commits and pushes of this process are as its own.
func TestCommitsAreGits(t *testing.T) {
	r, key := NewRepo(t), NewPersonsKey(t)
	pushed(t, r, map[string]string{"a.yaml": "a\n", "a/b/c.yaml": "c\n", "a-b/c.yaml": "c\n", "große Datei.yaml": "d\n"})
	pushed(t, r, map[string]string{"a.yaml": "b\n", "a/b/c.yaml": ""}, "Body", "Trailer: x")
	const want = "Change\n\nBody\n\nTrailer: x\n|Ada Example|ada@example.org|Ada Example|ada@example.org"
	if got := r.Git("log", "-1", "--format=%B|%an|%ae|%cn|%ce"); got != want {
		t.Errorf("the commit is %q", got)
	}
	pushed(t, r, nil) // an empty one
	if err := os.RemoveAll(filepath.Join(r.Work, "a-b")); err != nil {
		t.Fatal(err)
	}
	pushed(t, r, map[string]string{"a-b": "a folder that became a file\n"})
	r.Link("link", "a.yaml")
	if err := os.Chmod(filepath.Join(r.Work, "a.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.Author = "Grace <grace@example.org>"
	r.Sign(&key)
	pushed(t, r, nil)
	commit := r.Git("log", "-1", "--raw", "--no-abbrev", "--format=%an")
	for _, part := range []string{":000000 120000", ":100644 100755", "Grace"} {
		if !strings.Contains(commit, part) {
			t.Errorf("the commit has no %s: %s", part, commit)
		}
	}
	signers := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, []byte("ada@example.org "+key.Public+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Git("-c", "gpg.ssh.allowedSignersFile="+signers, "verify-commit", "HEAD")

	r.Sign(nil)
	r.Git("checkout", "-q", "-b", "side", "HEAD~2")
	r.Commit(map[string]string{"side.yaml": "s\n"})
	r.Push()
	r.Git("checkout", "-q", "main")
	r.Git("merge", "-q", "--no-edit", "side")
	pushed(t, r, nil)
	for _, dir := range []string{r.Bare, r.Work} {
		Git(t, dir, "fsck", "--strict", "--full")
	}
	if got := r.Git("rev-list", "--count", "origin/main", "origin/side"); got != "8" {
		t.Errorf("the branches have %s commits", got)
	}
}

// TestCommitSeesEachWrite sees a file of the same size that is written within a tick of the clock.
func TestCommitSeesEachWrite(t *testing.T) {
	r := NewRepo(t)
	for n := range 100 {
		r.Write(map[string]string{"a.yaml": fmt.Sprintf("%02d\n", n)})
		if _, err := r.commit("Change"); err != nil { // it is not left to git
			t.Fatal(err)
		}
	}
	trees := map[string]bool{}
	for tree := range strings.Lines(r.Git("log", "--format=%T")) {
		trees[tree] = true
	}
	if len(trees) != 100 {
		t.Errorf("100 commits of another content each have %d trees", len(trees))
	}
}

// TestPushesAreRefusedAsGitRefuses does not move a branch back, nor past what another has pushed.
func TestPushesAreRefusedAsGitRefuses(t *testing.T) {
	r := NewRepo(t)
	first := r.CommitAndPush(map[string]string{"a.yaml": "a\n"})
	second := r.CommitAndPush(map[string]string{"a.yaml": "b\n"})
	r.Git("reset", "-q", "--hard", first)
	r.Commit(map[string]string{"a.yaml": "c\n"})
	if err := r.push(); !errors.Is(err, errNeedsGit) {
		t.Errorf("a push that is no fast-forward: %v", err)
	}
	if err := move(filepath.Join(r.Bare, "refs", "heads", "main"), first, r.Head()); !errors.Is(err, errNeedsGit) {
		t.Errorf("a push of what another has pushed to meanwhile: %v", err)
	}
	if at := Git(t, r.Bare, "rev-parse", "main"); at != second {
		t.Errorf("main is %s", at)
	}
	r.Push("--force")
	if at := Git(t, r.Bare, "rev-parse", "main"); at != r.Head() {
		t.Errorf("main is %s after a push by force", at)
	}
}
