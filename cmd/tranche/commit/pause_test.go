package commit

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// After a push that the server refused, the commit is in the clone alone. The command run again
// does not say that the branch has it.
func TestPause_NotPushed(t *testing.T) {
	st, _ := commandIn(t)
	s := clitest.Clone{TB: t, Dir: st.clone.Dir}
	bare := filepath.Join(t.TempDir(), "bare.git")
	s.Run("git", "clone", "--quiet", "--bare", ".", bare)
	s.Run("git", "remote", "add", "origin", bare)
	before := s.Run("git", "ls-remote", "origin", "main")
	again := func() (err error) {
		if st.ahead, err = st.clone.Ready(t.Context(), "main"); err != nil {
			t.Fatal(err)
		}
		return st.pause(true, false, true)
	}
	if err := again(); err != nil {
		t.Fatal(err)
	}
	if now := s.Run("git", "ls-remote", "origin", "main"); now != before {
		t.Fatalf("the server has %s", now)
	}
	if err := again(); err != nil || !strings.Contains(st.said(), "not pushed: 1.\nTo let it count: git push origin HEAD:main") {
		t.Errorf("%q, %v do not say that the commit is not pushed", st.said(), err)
	}
	st.push = true
	if err := again(); err != nil {
		t.Error(err)
	}
	if now := s.Run("git", "ls-remote", "origin", "main"); now == before {
		t.Errorf("the command run again with --push has not pushed, and says %q", st.said())
	}
	if err := again(); err != nil || !strings.HasSuffix(st.said(), "The branch says so already; there is nothing to commit.\n") {
		t.Errorf("%q, %v", st.said(), err)
	}
}

// Two sources have the same path, so a patch of its kustomization would pause both.
func TestPause_OverlayOfTwoSources(t *testing.T) {
	st, commits := commandIn(t, [2]string{"kustomization.yaml", "resources: [deployment.yaml, release.yaml]\n"})
	production := *st.source
	production.Name, production.UID = "production", "production"
	st.at = &cli.Connection{Client: sourcesOf{sources: []v1alpha1.GitSource{*st.source, production}}}
	err := st.pause(true, true, false)
	const want = "kustomization.yaml governs more than shop/web: GitSource shop/production (.); nothing was changed. Give --base"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if head, err := st.clone.Head(t.Context()); err != nil || head != commits[1] {
		t.Errorf("commit %s was made: %v", head, err)
	}
}

// Earlier commits of the clone are pushed, too, so the command shows what they are.
func TestPause_NamesWhatIsPushedWithIt(t *testing.T) {
	st, _, other := raced(t)
	other.Run("git", "pull", "--quiet") // the two clones are of one server
	own := clitest.Clone{TB: t, Dir: st.clone.Dir}
	own.Run("git", "commit", "--quiet", "--allow-empty", "-m", "work in progress")
	var err error
	if st.ahead, err = st.clone.Ready(t.Context(), "main"); err != nil {
		t.Fatal(err)
	}
	st.push = true
	if err := st.pause(true, false, true); err != nil {
		t.Fatal(err)
	}
	want := "pushed with it: 1.\n  " + own.Run("git", "rev-parse", "--short", "HEAD~1") + " work in progress\n"
	if !strings.Contains(st.said(), want) {
		t.Errorf("%q, not %q", st.said(), want)
	}
}
