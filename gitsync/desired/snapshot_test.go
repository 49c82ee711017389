package desired

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/repository"
)

// snapshotOf returns branch main of a repository that needs no credentials, as it is now.
func snapshotOf(t *testing.T, ms *repository.Cache, raw string) *repository.Snapshot {
	t.Helper()
	u, err := gitserver.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	r := gitserver.Remote{URL: u}
	s, err := ms.Of(r).Fetch(t.Context(), r, "main")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
