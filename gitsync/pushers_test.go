package gitsync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// tryGit runs git, and returns what it says where it fails.
func tryGit(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git %v: %w: %s", args, err, out)
	}
	return nil
}

// pushAll makes commits, one after the other, and pushes each until it is there.
func pushAll(ctx context.Context, url, dir, name string, n int) error {
	if err := tryGit(ctx, ".", "clone", "-q", url, dir); err != nil {
		return err
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d", name, i)), nil, 0o600); err != nil {
			return err
		}
		if err := errors.Join(tryGit(ctx, dir, "add", "."), tryGit(ctx, dir, "commit", "-q", "-m", fmt.Sprintf("%s %d", name, i))); err != nil {
			return err
		}
		for tryGit(ctx, dir, "push", "-q", "origin", "main") != nil {
			if err := tryGit(ctx, dir, "pull", "-q", "--rebase", "origin", "main"); err != nil && ctx.Err() != nil {
				return err
			}
		}
	}
	return nil
}

// Ten push while the controller commits back: every commit of everyone is
// there, in one line of history, and none is there twice.
func TestWriteBackAmongPushers(t *testing.T) {
	t.Parallel()
	const pushers, each, steps = 10, 4, 6
	s := newIdleEnv(t)
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{})
	t.Cleanup(s.startController(andRollout))
	url := server.URL + "/" + filepath.Base(s.repo.Bare)
	plan := strings.Replace(webPlan, "    - replicas: 1\n", strings.Repeat("    - replicas: 1\n", steps-1), 1)
	s.applied2(s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v1"), "deploy/plan.yaml": plan}, "web: v1"),
		writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.URL = url })
	s.isAt("web", "ReleaseCompleted", steps-1)
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v2")}, "web: v2")
	s.lookNow()

	var wg sync.WaitGroup
	errs := make([]error, pushers)
	for i := range pushers {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		wg.Go(func() { errs[i] = pushAll(t.Context(), url, dir, fmt.Sprintf("pusher-%d", i), each) })
	}
	for step := range steps - 1 {
		s.isAt("web", "WaitingForApproval", int32(step))
		s.approve("web")
	}
	s.isAt("web", "ReleaseCompleted", steps-1)
	wg.Wait()
	s.must(errors.Join(errs...))
	last := fmt.Sprintf("Approve step %d of web", steps-2)
	clustertest.Wait(t, "the last approval", func() error {
		if got := s.subjects("main"); !slices.Contains(got, last) {
			return withSource(s, fmt.Errorf("%d commits", len(got)))
		}
		return nil
	})
	s.lookNow()

	count := map[string]int{}
	for _, subject := range s.subjects("main") {
		count[subject]++
	}
	for i := range pushers {
		for j := range each {
			if subject := fmt.Sprintf("pusher-%d %d", i, j); count[subject] != 1 {
				t.Errorf("%q is there %d times", subject, count[subject])
			}
		}
	}
	for subject, n := range count {
		if n != 1 {
			t.Errorf("%q is there %d times", subject, n)
		}
	}
	if merges := s.inBare("rev-list", "--count", "--merges", "main"); merges != "0" {
		t.Errorf("%s merges", merges)
	}
	if lost := s.inBare("fsck", "--strict", "--no-reflogs"); strings.Contains(lost, "dangling commit") {
		t.Logf("pushed and not in the branch: %s", lost)
	}
	t.Logf("%d commits, %d of them ours", len(s.subjects("main")), len(s.subjects("main"))-2-pushers*each)
}
