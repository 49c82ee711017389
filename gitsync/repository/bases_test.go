package repository

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Bases that are not used for long are removed from disk, and one that is read meanwhile
// stays until it is closed.
func TestBases_Room(t *testing.T) {
	base := gittest.NewRepo(t)
	server := gittest.Serve(t, filepath.Dir(base.Bare), gittest.ServeOptions{})
	dir := t.TempDir()
	bs := NewBases(dir, gittree.Limits{RepositorySize: 1 << 20})
	var held *Snapshot
	for n := range 40 {
		name := fmt.Sprintf("b%d", n)
		base.Git("checkout", "-q", "-b", name)
		files := map[string]string{}
		for f := range 4 {
			files[fmt.Sprintf("file%d", f)] = fmt.Sprintf("%x", gittest.PseudoRandom(4*n+f, 10<<10))
		}
		base.CommitAndPush(files)
		s, err := bs.Fetch(t.Context(), manifest.RemoteBase{URL: server.URL + "/repo.git", Ref: name}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			held = s
			continue
		}
		s.Close()
	}
	if _, err := gittree.Open(held, held.Commit); err != nil {
		t.Errorf("the base that is read: %v", err)
	}
	held.Close()
	clustertest.Wait(t, "the bases to leave the disk", func() error {
		if size := diskSize(dir); size > 1<<20+1<<19 {
			return fmt.Errorf("they take %d bytes", size)
		}
		return nil
	})
}
