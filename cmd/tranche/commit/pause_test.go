package commit

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
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
