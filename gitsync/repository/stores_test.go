package repository

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// Readers share a store, which keeps the packs open that they read. They are closed once no
// reader has come for a while.
func TestStores_ClosePacks(t *testing.T) {
	repo := gittest.NewRepo(t)
	tips := []string{repo.CommitAndPush(map[string]string{"apps/a.yaml": "a: b\n"})}
	const packs = 4
	for i := range packs - 1 {
		repack(t, repo)
		tips = append(tips, repo.CommitAndPush(map[string]string{"apps/next.yaml": fmt.Sprintf("a: %d\n", i)}))
	}
	repack(t, repo)
	c := newClone(repo.Bare, gittree.DefaultLimits())
	one, two := c.snapshot(plumbing.NewHash(tips[0])), c.snapshot(plumbing.NewHash(tips[0]))
	for _, s := range []*Snapshot{one, two} {
		for _, tip := range tips {
			if _, err := object.GetCommit(s, plumbing.NewHash(tip)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := openPacksIn(t, repo.Bare); n != packs {
		t.Errorf("%d packs are open, want %d", n, packs)
	}
	one.Close()
	c.reading.drop()
	if n := openPacksIn(t, repo.Bare); n != packs {
		t.Errorf("%d packs are open while there is a reader, want %d", n, packs)
	}
	two.Close()
	c.reading.drop()
	if n := openPacksIn(t, repo.Bare); n != 0 {
		t.Errorf("%d packs are open in the end", n)
	}
	again := c.snapshot(plumbing.NewHash(tips[0]))
	defer again.Close()
	if _, err := object.GetCommit(again, plumbing.NewHash(tips[packs-1])); err != nil {
		t.Errorf("after the store was closed: %v", err)
	}
}

// repack makes a pack of what the repository has received since the last one.
func repack(t *testing.T, repo *gittest.Repo) {
	t.Helper()
	cmd := exec.Command("git", "repack", "-q", "-d")
	cmd.Dir = repo.Bare
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Readers at the same time have what git has, of small and of large files, as they are and as
// differences to each other.
func TestStores_ManyReaders(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	var tip string
	for version := range 3 {
		files := map[string]string{}
		for i := range 20 {
			line := fmt.Sprintf("file %d, version %d\n", i, version)
			files[fmt.Sprintf("small-%d", i)] = line
			files[fmt.Sprintf("large-%d", i)] = strings.Repeat("the same line\n", 2000) + strings.Repeat(line, 100*i)
		}
		tip = repo.CommitAndPush(files)
	}
	repack(t, repo)
	want := map[string]plumbing.Hash{}
	for _, line := range strings.Split(strings.TrimSpace(repo.Git("ls-tree", "-r", tip)), "\n") {
		of, name, _ := strings.Cut(line, "\t")
		want[name] = plumbing.NewHash(strings.Fields(of)[2])
	}
	c := newClone(repo.Bare, gittree.DefaultLimits())
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			s := c.snapshot(plumbing.NewHash(tip))
			defer s.Close()
			tree, err := gittree.Open(s, plumbing.NewHash(tip))
			if err != nil {
				t.Error(err)
				return
			}
			for name, hash := range want {
				content, err := tree.ReadFile(name)
				if err != nil || plumbing.ComputeHash(plumbing.BlobObject, content) != hash {
					t.Errorf("%s: %d bytes, which are not those of %s: %v", name, len(content), hash, err)
				}
			}
		})
	}
	readers.Wait()
	if len(want) != 40 {
		t.Errorf("%d files were read", len(want))
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
	c := newClone(repo.Bare, gittree.DefaultLimits())
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
	if _, err := gittree.OpenTree(newClone(repo.Bare, gittree.DefaultLimits()).snapshot(tip), apps.Hash); err == nil {
		t.Error("a reader of another clone has the folder")
	}
}
