package status

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A fetch that fails once is tried again: the tip may have the commit.
func TestAncestryAfterAFailedFetch(t *testing.T) {
	repo := gittest.NewRepo(t)
	asked := repo.Commit(map[string]string{"a": "1"})
	repo.Push()
	clone := filepath.Join(t.TempDir(), "clone")
	repo.Git("clone", "--quiet", repo.Bare, clone)
	t.Chdir(clone)
	tip := repo.CommitAndPush(map[string]string{"a": "2"})
	away := repo.Bare + ".away"
	if err := os.Rename(repo.Bare, away); err != nil {
		t.Fatal(err)
	}
	a := newAncestry(t.Context(), asked)
	if a.contains(repo.Bare, "main", tip) {
		t.Error("it is known of a remote that does not answer")
	}
	if err := os.Rename(away, repo.Bare); err != nil {
		t.Fatal(err)
	}
	a.again = time.Time{}
	if !a.contains(repo.Bare, "main", tip) {
		t.Error("it is not found once the remote answers")
	}
}
