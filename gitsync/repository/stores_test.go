package repository

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// openPacksIn returns how many packs of a folder the process has open. It is Linux that says so.
func openPacksIn(t *testing.T, dir string) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("there is no /proc")
	}
	n := 0
	for _, f := range files {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", f.Name()))
		if err == nil && strings.HasPrefix(to, dir) && strings.Contains(to, ".pack") {
			n++
		}
	}
	return n
}

// A reader keeps the packs open that it reads, within a bound, and the next one uses them. They
// are closed once no reader has come for a while.
func TestStores_ClosePacks(t *testing.T) {
	repo := gittest.NewRepo(t)
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("apps/%03d.yaml", i)] = "a: b\n"
	}
	tips := []string{repo.CommitAndPush(files)}
	repack := func(args ...string) {
		cmd := exec.Command("git", append([]string{"repack", "-q"}, args...)...)
		cmd.Dir = repo.Bare
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	repack("-ad")
	for i := range openPacks + 2 {
		tips = append(tips, repo.CommitAndPush(map[string]string{"apps/next.yaml": fmt.Sprintf("a: %d\n", i)}))
		repack("-d")
	}
	c := &clone{dir: repo.Bare, stores: &stores{}}
	readAll := func(s *Snapshot) {
		for _, tip := range tips {
			if _, err := object.GetCommit(s, plumbing.NewHash(tip)); err != nil {
				t.Fatal(err)
			}
		}
	}
	one, two := c.snapshot(plumbing.NewHash(tips[0])), c.snapshot(plumbing.NewHash(tips[0]))
	readAll(one)
	if n := openPacksIn(t, repo.Bare); n != openPacks {
		t.Errorf("%d packs are open, want %d", n, openPacks)
	}
	one.Close()
	again := c.snapshot(plumbing.NewHash(tips[1]))
	if again.Storage != one.Storage || again.Storage == two.Storage {
		t.Error("the next reader does not get the store of the one before")
	}
	readAll(again)
	again.Close()
	two.Close()
	c.stores.drop()
	if n := openPacksIn(t, repo.Bare); n != 0 {
		t.Errorf("%d packs are open in the end", n)
	}
}

// Readers of a clone decode a large folder once. One that has no such store reads it itself.
func TestSnapshot_Folders(t *testing.T) {
	repo := gittest.NewRepo(t)
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("apps/%03d.yaml", i)] = "a: b\n"
	}
	tip := plumbing.NewHash(repo.CommitAndPush(files))
	c := &clone{dir: repo.Bare, stores: &stores{}}
	s := c.snapshot(tip)
	defer s.Close()
	commit, err := object.GetCommit(s, tip)
	if err != nil {
		t.Fatal(err)
	}
	root, err := commit.Tree()
	if err != nil {
		t.Fatal(err)
	}
	apps, err := root.FindEntry("apps")
	if err != nil {
		t.Fatal(err)
	}
	first, err := gittree.Open(s, tip)
	if err != nil {
		t.Fatal(err)
	}
	if names, err := first.ReadDir("/apps"); err != nil || len(names) != 100 {
		t.Fatalf("%d names, %v", len(names), err)
	}
	if err := os.RemoveAll(filepath.Join(repo.Bare, "objects")); err != nil {
		t.Fatal(err)
	}
	other := c.snapshot(tip)
	defer other.Close()
	tree, err := gittree.OpenTree(other, apps.Hash)
	if err != nil {
		t.Fatalf("the folder that another reader has read: %v", err)
	}
	if names, err := tree.ReadDir("/"); err != nil || len(names) != 100 {
		t.Errorf("%d names, %v", len(names), err)
	}
	if _, err := gittree.OpenTree((&clone{dir: repo.Bare, stores: &stores{}}).snapshot(tip), apps.Hash); err == nil {
		t.Error("a reader of another clone has the folder")
	}
}
