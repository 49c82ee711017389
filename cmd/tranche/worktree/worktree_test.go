package worktree_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/cmd/tranche/worktree"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// seen is all that a tree says of a path, and of those below it.
func seen(tree *gittree.Tree, path string, says map[string]string) {
	content, err := tree.ReadFile(path)
	dir, file, notThere := tree.CleanedAbs(path)
	says[path] = fmt.Sprintf("%t %t %q %v; %s %s %v", tree.Exists(path), tree.IsDir(path), content, err, dir, file, notThere)
	names, err := tree.ReadDir(path)
	says[path] += fmt.Sprintf("; %q %v", names, err)
	for _, name := range names {
		if strings.Count(path, "/") < 4 { // links lead in circles
			seen(tree, path+"/"+name, says)
		}
	}
}

// A worktree says of each path what the commit of it says, which git makes. Submodules are no
// folders, checked out or not.
func TestOpen_IsTheCommit(t *testing.T) {
	base := t.TempDir()
	other, dir := filepath.Join(base, "other"), filepath.Join(base, "clone")
	for _, d := range []string{other, dir} {
		write(t, d, map[string]string{"cm.yaml": "kind: ConfigMap\n"})
		run(t, d, "git", "init", "--quiet")
	}
	run(t, other, "git", "add", ".")
	run(t, other, "git", "commit", "--quiet", "-m", "x")
	write(t, dir, map[string]string{
		"a/b/c.yaml": "c\n", "a/run.sh": "#!/bin/sh\n", "a.b/x": "sorted before a/", "empty": "",
		"lfs.yaml":   "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
		"lists.yaml": "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: [*b, *b, *b, *b, *b, *b, *b, *b, *b]\n",
	})
	if err := os.Chmod(filepath.Join(dir, "a/run.sh"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"inside": "a/b/c.yaml", "folder": "a/b", "a/up": "..", "out": "../other/cm.yaml", "absolute": "/etc/passwd",
		"own": filepath.Join(dir, "empty"), "nowhere": "none", "circle": "circle", "a/b/out": "../../../other",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range []string{"sub", "a/gone"} {
		run(t, dir, "git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", other, at)
	}
	run(t, dir, "git", "add", ".")
	run(t, dir, "git", "commit", "--quiet", "-m", "x")
	run(t, dir, "git", "submodule", "--quiet", "deinit", "--force", "a/gone")
	repository, err := gogit.PlainOpen(dir)
	if err != nil {
		t.Fatal(err)
	}
	committed, err := gittree.Open(repository.Storer, plumbing.NewHash(run(t, dir, "git", "rev-parse", "HEAD")))
	if err != nil {
		t.Fatal(err)
	}
	tree, root, at, err := worktree.Open(filepath.Join(dir, "a"))
	if err != nil || at != "a" || filepath.Base(root) != "clone" {
		t.Fatalf("%s in %s: %v", at, root, err)
	}
	want, got := map[string]string{}, map[string]string{}
	seen(committed, "", want)
	seen(tree, "", got)
	if diff := cmp.Diff(want, got); diff != "" || len(got) < 20 || tree.Err() != nil {
		t.Errorf("%v; it says of %d paths (-commit +worktree):\n%s", tree.Err(), len(got), diff)
	}
}

// Without a clone all of the disk is the worktree. A link to the folder that is named leads there,
// and a file that is a link stays one.
func TestOpen_NoClone(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, map[string]string{"real/a.yaml": "a"})
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "real"), link); err != nil {
		t.Fatal(err)
	}
	tree, root, at, err := worktree.Open(link)
	if err != nil || root != "/" || "/"+at != filepath.Join(dir, "real") {
		t.Fatalf("%s in %s: %v", at, root, err)
	}
	if content, err := tree.ReadFile(at + "/a.yaml"); string(content) != "a" {
		t.Errorf("%q: %v", content, err)
	}
	t.Chdir(dir)
	if _, _, at, err = worktree.Open("link/a.yaml"); err != nil || "/"+at != filepath.Join(dir, "real/a.yaml") {
		t.Errorf("%s: %v", at, err)
	}
}
