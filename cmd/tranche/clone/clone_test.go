package clone

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is a bare repository with one commit, and a clone of it.
func repository(t *testing.T) (bare string, c *Clone, run func(args ...string) string) {
	t.Helper()
	for k, v := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org",
		"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org",
	} {
		t.Setenv(k, v)
	}
	dir := t.TempDir()
	bare = filepath.Join(dir, "bare.git")
	in := func(at string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = at
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	in(dir, "init", "--quiet", "--bare", "--initial-branch=main", bare)
	in(dir, "clone", "--quiet", bare, "clone")
	at := filepath.Join(dir, "clone")
	in(at, "checkout", "--quiet", "-B", "main")
	in(at, "commit", "--quiet", "--allow-empty", "-m", "first")
	in(at, "push", "--quiet", "origin", "main")
	c, err := Find(t.Context(), at, "file://"+bare)
	if err != nil {
		t.Fatal(err)
	}
	return bare, c, func(args ...string) string { t.Helper(); return in(at, args...) }
}

func TestChange(t *testing.T) {
	bare, c, run := repository(t)
	if ahead, err := c.Ready(t.Context(), "main"); err != nil || ahead != 0 {
		t.Fatal(ahead, err)
	}
	ch, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Write(t.Context(), "a/b.yaml", "x: 1\n"); err != nil {
		t.Fatal(err)
	}
	diff, err := ch.Diff(t.Context())
	if err != nil || !strings.Contains(diff, "+++ b/a/b.yaml\n") || !strings.Contains(diff, "+x: 1") {
		t.Fatal(diff, err)
	}
	if err := ch.Clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	commit, err := ch.Commit(t.Context(), "a change", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "a")); err == nil || run("log", "-1", "--format=%s") != "first" {
		t.Error("the clone has the commit before it was taken over")
	}
	if err := ch.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := ch.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Push(t.Context(), "HEAD", "main"); err != nil {
		t.Fatal(err)
	}
	if got := run("--git-dir", bare, "rev-parse", "main"); got != commit {
		t.Errorf("pushed %s, want %s", got, commit)
	}
	if got := run("worktree", "list"); strings.Contains(got, "\n") {
		t.Errorf("worktrees are left: %s", got)
	}
	if got := run("status", "--porcelain"); got != "" {
		t.Errorf("the clone is not clean: %s", got)
	}
}

// A clone in another state is refused, with the command that helps.
func TestRefused(t *testing.T) {
	bare, c, run := repository(t)
	want := func(err error, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want an error that says %q", err, text)
			}
		}
	}
	_, err := Find(t.Context(), t.TempDir(), "file://"+bare)
	want(err, "is not in a clone", "git clone")
	_, err = Here(t.Context(), t.TempDir())
	want(err, "is not in a clone")
	_, err = Find(t.Context(), c.Dir, "https://git.example.org/other.git")
	want(err, "no remote of the clone", "--source")
	if here, err := Here(t.Context(), c.Dir); err != nil || *here != *c {
		t.Errorf("here is %+v: %v; want %+v", here, err, c)
	}
	_, err = Find(t.Context(), c.Dir, "https://git.example.org/other.git")
	want(err, "no remote", bare)

	run("switch", "--quiet", "-c", "other")
	_, err = c.Ready(t.Context(), "main")
	want(err, "on other", "git switch main")
	run("switch", "--quiet", "--detach")
	_, err = c.Ready(t.Context(), "main")
	want(err, "on no branch")
	run("switch", "--quiet", "main")

	run("commit", "--quiet", "--allow-empty", "-m", "second")
	if ahead, err := c.Ready(t.Context(), "main"); err != nil || ahead != 1 {
		t.Error(ahead, err)
	}
	run("push", "--quiet")
	run("reset", "--quiet", "--hard", "HEAD~")
	_, err = c.Ready(t.Context(), "main")
	want(err, "lacks 1 commit of main;", "git pull --rebase origin main")
	run("pull", "--quiet", "--rebase", "origin", "main")

	ch, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := ch.Close(); err != nil {
			t.Error(err)
		}
	}()
	want(ch.Write(t.Context(), "../x", ""), "is not in the repository")
	if err := os.WriteFile(filepath.Join(c.Dir, "x.yaml"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ch.Write(t.Context(), "x.yaml", "ours\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Diff(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(ch.Clean(t.Context()), "x.yaml", "git stash push")
}

// A clone in which git has stopped in the middle is refused, with the command that ends that. It
// is idle afterwards.
func TestReady_GitIsUnderWay(t *testing.T) {
	_, c, run := repository(t)
	side := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.Dir, "a"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		run("add", "a")
		run("commit", "--quiet", "-m", text)
	}
	side("one")
	run("switch", "--quiet", "-c", "side")
	side("side")
	run("format-patch", "--quiet", "-1", "-o", filepath.Join(c.Dir, ".git"))
	run("switch", "--quiet", "main")
	side("two")
	side("three")
	run("push", "--quiet", "origin", "main")
	for _, tt := range []struct {
		name, ways, end string
		begin           []string
	}{
		{"a rebase", "git rebase --continue or git rebase --abort", "rebase --abort", []string{"rebase", "side"}},
		{"a rebase", "git rebase --continue or git rebase --abort", "rebase --abort", []string{"rebase", "--apply", "side"}},
		{"git am", "git am --continue or git am --abort", "am --abort", []string{"am", ".git/0001-side.patch"}},
		{"a merge", "git merge --continue or git merge --abort", "merge --abort", []string{"merge", "side"}},
		{"a cherry-pick", "git cherry-pick --continue or", "cherry-pick --abort", []string{"cherry-pick", "side"}},
		{"a revert", "git revert --continue or git revert --abort", "revert --abort", []string{"revert", "--no-edit", "HEAD~"}},
		{"a bisection", "; git bisect reset, and try again", "bisect reset", []string{"bisect", "start", "HEAD", "HEAD~2"}},
	} {
		cmd := exec.Command("git", tt.begin...)
		cmd.Dir = c.Dir
		out, _ := cmd.CombinedOutput() // it stops at the conflict
		_, err := c.Ready(t.Context(), "main")
		if err == nil || !strings.Contains(err.Error(), tt.name+" is under way in the clone") || !strings.Contains(err.Error(), tt.ways) {
			t.Errorf("git %v: %v\n%s", tt.begin, err, out)
		}
		run(strings.Fields(tt.end)...)
		if _, err := c.Ready(t.Context(), "main"); err != nil {
			t.Fatalf("after git %s: %v", tt.end, err)
		}
	}
}

// A file that git ignores is committed all the same, and a user's own one is kept.
func TestIgnored(t *testing.T) {
	_, c, run := repository(t)
	if err := os.WriteFile(filepath.Join(c.Dir, ".git", "info", "exclude"), []byte("approvals\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func() (ch *Change, clean error) {
		t.Helper()
		ch, err := c.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ch.Close() })
		if err := ch.Write(t.Context(), "approvals/web.yaml", "x: 1\n"); err != nil {
			t.Fatal(err)
		}
		if diff, err := ch.Diff(t.Context()); err != nil || !strings.Contains(diff, "+x: 1") {
			t.Fatal(diff, err)
		}
		return ch, ch.Clean(t.Context())
	}
	own := filepath.Join(c.Dir, "approvals")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(own, "web.yaml"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := write(); err == nil || !strings.Contains(err.Error(), "changes of its own") {
		t.Errorf("a file of the user's that git ignores: %v", err)
	}
	if err := os.RemoveAll(own); err != nil {
		t.Fatal(err)
	}
	ch, err := write()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Commit(t.Context(), "a change", false); err != nil {
		t.Fatal(err)
	}
	if err := ch.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := run("show", "HEAD:approvals/web.yaml"); got != "x: 1" {
		t.Errorf("committed %q", got)
	}
}

// Contains also knows what a tip contains that is in the remote only. The clone stays as
// it is.
func TestContains(t *testing.T) {
	bare, c, run := repository(t)
	run("commit", "--quiet", "--allow-empty", "-m", "asked for")
	asked := run("rev-parse", "HEAD")
	run("push", "--quiet", "origin", "HEAD:main")
	run("commit", "--quiet", "--allow-empty", "-m", "later")
	run("push", "--quiet", bare, "HEAD:main")
	tip := run("rev-parse", "HEAD")
	run("reset", "--quiet", "--hard", asked)
	run("reflog", "expire", "--expire=now", "--all")
	run("-c", "gc.pruneExpire=now", "gc", "--quiet", "--prune=now")
	if out, err := exec.Command("git", "-C", c.Dir, "cat-file", "-e", tip).CombinedOutput(); err == nil {
		t.Fatalf("the clone has the tip already: %s", out)
	}
	refs := run("for-each-ref")
	for _, tc := range []struct {
		tip, commit string
		want, known bool
	}{
		{tip, asked, true, true}, {tip, asked[:8], true, true}, {asked, asked, true, true}, {asked, tip, false, true},
		{tip, strings.Repeat("f", 40), false, false}, {strings.Repeat("e", 40), asked, false, false},
	} {
		if got, err := c.Contains(t.Context(), "main", tc.tip, tc.commit); got != tc.want || (err == nil) != tc.known {
			t.Errorf("%s in %s: %t, %v", tc.commit, tc.tip, got, err)
		}
	}
	if now := run("for-each-ref"); now != refs {
		t.Errorf("references were\n%s\nand are\n%s", refs, now)
	}
}

// The image of the controller has no git. A command that needs it says so.
func TestNoGit(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := At(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "git is not installed here") {
		t.Errorf("without git: %v", err)
	}
}

// A folder of the repository that looks like a bare one decides nothing: git would run a
// program that its configuration names.
func TestFind_PlantedBareRepository(t *testing.T) {
	bare, c, run := repository(t)
	planted, ran := filepath.Join(c.Dir, "docs"), filepath.Join(t.TempDir(), "ran")
	run("init", "--quiet", "--bare", planted)
	run("--git-dir", planted, "config", "core.bare", "false")
	run("--git-dir", planted, "config", "core.worktree", c.Dir)
	run("--git-dir", planted, "config", "remote.origin.url", "file://"+bare)
	run("--git-dir", planted, "config", "core.fsmonitor", "touch "+ran+"; false")
	for _, find := range []func() (*Clone, error){
		func() (*Clone, error) { return Find(t.Context(), planted, "file://"+bare) },
		func() (*Clone, error) { return Here(t.Context(), planted) },
		func() (*Clone, error) { return At(t.Context(), planted) },
	} {
		found, err := find()
		if err == nil || !strings.Contains(err.Error(), "is not in a clone") {
			t.Errorf("%+v: %v", found, err)
		}
	}
	if _, err := git(t.Context(), planted, "status"); err == nil {
		t.Error("git takes the folder for a repository")
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program of the repository has run")
	}
	at := filepath.Join(c.Dir, "deploy")
	if err := os.Mkdir(at, 0o750); err != nil {
		t.Fatal(err)
	}
	if found, err := Find(t.Context(), at, "file://"+bare); err != nil || *found != *c {
		t.Errorf("in another folder: %+v: %v", found, err)
	}
}
