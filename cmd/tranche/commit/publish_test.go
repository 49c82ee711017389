package commit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// raced is a command in a clone, and another person's clone of the same server.
func raced(t *testing.T) (st *commitCommand, own, other clitest.Clone) {
	t.Helper()
	st, _ = commandIn(t)
	own = clitest.Clone{TB: t, Dir: st.clone.Dir}
	bare := filepath.Join(t.TempDir(), "bare.git")
	own.Run("git", "clone", "--quiet", "--bare", ".", bare)
	own.Run("git", "remote", "add", "origin", bare)
	other = clitest.Clone{TB: t, Dir: filepath.Join(t.TempDir(), "other")}
	own.Run("git", "clone", "--quiet", bare, other.Dir)
	other.Run("git", "config", "user.name", "Bea")
	st.push = true
	return st, own, other
}

// pausedBy lets another person pause the release first.
func pausedBy(other clitest.Clone) {
	other.Replace("release.yaml", "spec:\n", "spec:\n  paused: true\n")
	other.Run("git", "commit", "--quiet", "--all", "--author=Bea <bea@example.org>", "-m", "Pause it")
	other.Run("git", "push", "--quiet", "origin", "main")
}

// Two people decide the same at once. The error of the second says who was first, whether the clone was
// behind from the start or the server refuses the push. The clone stays as it was.
func TestCommit_AnotherWasFirst(t *testing.T) {
	for _, tt := range []struct {
		reason string
		atPush bool
		other  func(clitest.Clone)
		want   []string
	}{
		{"the same before", false, pausedBy, []string{"spec.paused of shop/web is true already, by Bea <bea@example.org> in commit"}},
		{"the same meanwhile", true, pausedBy, []string{
			"main of origin has moved on meanwhile, and nothing of this is left in the clone: spec.paused of shop/web is true already, by Bea",
		}},
		{"something else meanwhile", true, func(other clitest.Clone) {
			other.Run("git", "commit", "--quiet", "--allow-empty", "-m", "other")
			other.Run("git", "push", "--quiet", "origin", "main")
		}, []string{"nothing of this is left in the clone: the clone lacks 1 commit of main"}},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			st, own, other := raced(t)
			before := own.Run("git", "rev-parse", "HEAD")
			if !tt.atPush {
				tt.other(other)
			}
			_, err := st.clone.Ready(t.Context(), "main")
			if (err == nil) != tt.atPush {
				t.Fatal(err)
			}
			_ = errors.As(err, &st.behind)
			st.decide = func(*commitCommand, string) error { tt.other(other); return nil }
			err = st.pause(true, false, true)
			for _, want := range append(tt.want, "git pull --rebase origin main") {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want an error with %q", err, want)
				}
			}
			if now := own.Run("git", "rev-parse", "HEAD"); now != before {
				t.Errorf("the clone is left at another commit:\n%s", own.Run("git", "log", "--oneline", "-3"))
			}
			if status := own.Run("git", "status", "--porcelain"); status != "" {
				t.Errorf("the clone is not clean: %s", status)
			}
		})
	}
}

// A clone that is behind, and has what was to be committed, names no author: no commit that it lacks
// brought it.
func TestCommit_CloneHasItAlready(t *testing.T) {
	st, _, other := raced(t)
	other.Run("git", "commit", "--quiet", "--allow-empty", "-m", "other")
	other.Run("git", "push", "--quiet", "origin", "main")
	_, err := st.clone.Ready(t.Context(), "main")
	_ = errors.As(err, &st.behind)
	err = st.pause(false, false, true)
	const want = "spec.paused of shop/web is false already. The clone lacks 1 commit of main"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want an error with %q", err, want)
	}
}

// A server that refuses for another reason leaves the commit in the clone, with both ways out. One
// that takes the push and does not say so has it all the same.
func TestCommit_ServerRefuses(t *testing.T) {
	hook := func(own clitest.Clone, name, text string) {
		own.Write("hook", "#!/bin/sh\n"+text+"\n")
		at := filepath.Join(own.Run("git", "remote", "get-url", "origin"), "hooks", name)
		if err := os.Rename(filepath.Join(own.Dir, "hook"), at); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, 0o700); err != nil { //nolint:gosec // a hook has to be executable
			t.Fatal(err)
		}
	}
	st, own, _ := raced(t)
	before := own.Run("git", "rev-parse", "--short=7", "HEAD")
	hook(own, "pre-receive", "echo signed commits only; exit 1")
	err := st.pause(true, false, true)
	for _, want := range []string{"signed commits only", "git push origin HEAD:main once the cause is gone", "git reset --keep " + before} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
	if got := own.Run("git", "log", "-1", "--format=%s"); got != "Pause web" {
		t.Errorf("the clone is at %q", got)
	}

	st, own, _ = raced(t)
	hook(own, "post-receive", "kill -9 $PPID") // after the branch has moved
	if err := st.pause(true, false, true); err != nil {
		t.Errorf("a push of which the answer was lost: %v", err)
	}
	if head, pushed := own.Run("git", "rev-parse", "HEAD"), own.Run("git", "ls-remote", "origin", "main"); !strings.HasPrefix(pushed, head) {
		t.Errorf("the clone is at %s, and the server at %s", head, pushed)
	}
}

// The error of the second of two people who approve the same gate says that it is approved.
func TestApprove_AnotherWasFirst(t *testing.T) {
	st, own, other := raced(t)
	st.release.Spec.Strategy.Steps = make([]v1alpha1.Step, 2)
	first := *st
	first.clone = &clone.Clone{Dir: other.Dir, Remote: "origin"}
	if err := first.approve(0); err != nil {
		t.Fatal(err)
	}
	before := own.Run("git", "rev-parse", "HEAD")
	t.Setenv("GIT_AUTHOR_NAME", "Bea")
	err := st.approve(0) // the clone was not behind when it was looked at
	if err == nil || !strings.Contains(err.Error(), "approval of step 0 of shop/web already, by Ada <ada@example.org> in commit ") {
		t.Error(err)
	}
	if now := own.Run("git", "rev-parse", "HEAD"); now != before {
		t.Errorf("the clone is at %s", now)
	}
}
