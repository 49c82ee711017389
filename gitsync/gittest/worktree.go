package gittest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Worktree is a repository without a server, of which a test makes every file: links,
// submodules, and objects that are lost.
type Worktree struct {
	// T is the test that fails where git does.
	T *testing.T
	// Dir has the files, and the objects in .git.
	Dir string
}

// Git runs git in the worktree and returns what it prints.
func (r *Worktree) Git(args ...string) string {
	r.T.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.Dir
	cmd.Env = append(os.Environ(), "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t",
		"GIT_COMMITTER_EMAIL=t@example.org", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.T.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(bytes.TrimSpace(out))
}

// Write writes a file.
func (r *Worktree) Write(name, content string) {
	r.T.Helper()
	p := filepath.Join(r.Dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o644)); err != nil {
		r.T.Fatal(err)
	}
}

// Link makes a symbolic link.
func (r *Worktree) Link(name, target string) {
	r.T.Helper()
	if err := os.Symlink(target, filepath.Join(r.Dir, name)); err != nil {
		r.T.Fatal(err)
	}
}

// Chmod makes a file executable.
func (r *Worktree) Chmod(name string) {
	r.T.Helper()
	if err := os.Chmod(filepath.Join(r.Dir, name), 0o755); err != nil {
		r.T.Fatal(err)
	}
}

// Remove removes a file or folder.
func (r *Worktree) Remove(name string) {
	r.T.Helper()
	if err := os.RemoveAll(filepath.Join(r.Dir, name)); err != nil {
		r.T.Fatal(err)
	}
}

// Submodule makes a submodule at a commit that does not exist.
func (r *Worktree) Submodule(name string) {
	r.Git("update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("5", 40)+","+name)
	if err := os.Mkdir(filepath.Join(r.Dir, name), 0o755); err != nil {
		r.T.Fatal(err)
	}
}

// Commit commits all files.
func (r *Worktree) Commit(subject string) plumbing.Hash {
	r.T.Helper()
	r.Git("add", "--all", ".")
	r.Git("commit", "--quiet", "--allow-empty", "-m", subject)
	return plumbing.NewHash(r.Git("rev-parse", "HEAD"))
}

// Bare returns the folder of a bare clone with loose objects.
func (r *Worktree) Bare() string {
	r.T.Helper()
	to := filepath.Join(r.T.TempDir(), "bare.git")
	r.Git("clone", "--quiet", "--bare", "--no-hardlinks", ".", to)
	return to
}

// Lose deletes an object from a bare clone.
func (r *Worktree) Lose(bare, object string) {
	r.T.Helper()
	h := r.Git("rev-parse", object)
	if err := os.Remove(filepath.Join(bare, "objects", h[:2], h[2:])); err != nil {
		r.T.Fatal(err)
	}
}

// NewWorktree makes a repository with branch main and no commit.
func NewWorktree(t *testing.T) *Worktree {
	r := &Worktree{t, t.TempDir()}
	r.Git("init", "--quiet", "--initial-branch=main")
	return r
}

// Objects returns the objects in the folder of a repository.
func Objects(gitDir string) storer.EncodedObjectStorer {
	return filesystem.NewStorage(osfs.New(gitDir), cache.NewObjectLRU(8*cache.MiByte))
}

// ErrorSays reports whether err says want, or is nil where want is empty.
func ErrorSays(err error, want string) bool {
	if err == nil || want == "" {
		return err == nil && want == ""
	}
	return strings.Contains(err.Error(), want)
}
