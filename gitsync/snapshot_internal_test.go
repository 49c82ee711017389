package gitsync

import (
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
)

// snapshotOf returns branch main of a repository that needs no credentials, as it is now.
func snapshotOf(t *testing.T, ms *mirrors, raw string) *snapshot {
	t.Helper()
	u, err := gitserver.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	r := gitserver.Remote{URL: u}
	s, err := ms.of(r).look(t.Context(), r, "main")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}
