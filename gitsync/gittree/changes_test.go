package gittree

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
)

// The differences of two trees say of no read that it is untouched whose answer has changed.
// The trees are random, and have links and submodules.
func TestChanges_AgainstTheTreesThemselves(t *testing.T) {
	spared, touched := 0, 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 7))
		store := memory.NewStorage()
		one := randomTree(t, store, random, 0)
		two := changedTree(t, store, random, one)
		before, err := OpenTree(store, one)
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + random.IntN(3) {
			readAtRandom(before, random)
		}
		after, err := OpenTree(store, two)
		if err != nil {
			t.Fatal(err)
		}
		same, err := before.Reads().Unchanged(after)
		if err != nil {
			t.Fatal(err)
		}
		var changes Changes
		if fits, err := changes.Add(store, one, two, nil); err != nil || !fits {
			t.Fatal(fits, err)
		}
		may := changes.MayTouch(before.Reads())
		if !same && !may {
			t.Fatalf("seed %d: reads %v have other answers, and the changes %v do not say so", seed, before.Reads(), changes)
		}
		if may {
			touched++
		} else if one != two {
			spared++
		}
	}
	if spared < 100 || touched < 100 {
		t.Errorf("%d are untouched by a change, and %d may be touched: the trees show too little", spared, touched)
	}
}

var randomNames = []string{"a", "b", "c"}

func randomPath(random *rand.Rand) string {
	p := ""
	for range 1 + random.IntN(3) {
		p += "/" + randomNames[random.IntN(len(randomNames))]
	}
	return p
}

func readAtRandom(t *Tree, random *rand.Rand) {
	switch p := randomPath(random); random.IntN(4) {
	case 0:
		t.Exists(p)
	case 1:
		_, _ = t.ReadFile(p) // a read that fails is one, too
	case 2:
		_, _ = t.ReadDir(p)
	case 3:
		_, _, _ = t.CleanedAbs(p)
	}
}

func randomTree(t *testing.T, s *memory.Storage, random *rand.Rand, depth int) plumbing.Hash {
	t.Helper()
	tree := &object.Tree{}
	for _, name := range randomNames {
		if random.IntN(3) > 0 {
			tree.Entries = append(tree.Entries, randomEntry(t, s, random, name, depth))
		}
	}
	return stored(t, s, tree)
}

func randomEntry(t *testing.T, s *memory.Storage, random *rand.Rand, name string, depth int) object.TreeEntry {
	t.Helper()
	kind := random.IntN(8)
	switch {
	case kind < 4 && depth < 3:
		return object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: randomTree(t, s, random, depth+1)}
	case kind == 4:
		target := []string{"a", "b", "../a", "../b/c", "b/c"}[random.IntN(5)]
		return object.TreeEntry{Name: name, Mode: filemode.Symlink, Hash: storedBlob(t, s, target)}
	case kind == 5:
		return object.TreeEntry{Name: name, Mode: filemode.Submodule, Hash: plumbing.NewHash(fmt.Sprintf("%040x", 1+random.IntN(3)))}
	default:
		return object.TreeEntry{Name: name, Mode: filemode.Regular, Hash: storedBlob(t, s, fmt.Sprint(random.IntN(3)))}
	}
}

// changedTree changes one entry of a tree, or none.
func changedTree(t *testing.T, s *memory.Storage, random *rand.Rand, of plumbing.Hash) plumbing.Hash {
	t.Helper()
	tree, err := object.GetTree(s, of)
	if err != nil {
		t.Fatal(err)
	}
	name := randomNames[random.IntN(len(randomNames))]
	entries := slices.Clone(tree.Entries)
	i := slices.IndexFunc(entries, func(e object.TreeEntry) bool { return e.Name == name })
	switch {
	case i < 0:
		entries = append(entries, randomEntry(t, s, random, name, 1))
		slices.SortFunc(entries, func(a, b object.TreeEntry) int { return int(a.Name[0]) - int(b.Name[0]) })
	case entries[i].Mode == filemode.Dir && random.IntN(4) > 0:
		entries[i].Hash = changedTree(t, s, random, entries[i].Hash)
	case random.IntN(3) == 0:
		entries = slices.Delete(entries, i, i+1)
	default:
		entries[i] = randomEntry(t, s, random, name, 2)
	}
	return stored(t, s, &object.Tree{Entries: entries})
}

func stored(t *testing.T, s *memory.Storage, tree *object.Tree) plumbing.Hash {
	t.Helper()
	o := s.NewEncodedObject()
	if err := tree.Encode(o); err != nil {
		t.Fatal(err)
	}
	h, err := s.SetEncodedObject(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func storedBlob(t *testing.T, s *memory.Storage, content string) plumbing.Hash {
	t.Helper()
	o := s.NewEncodedObject()
	o.SetType(plumbing.BlobObject)
	w, err := o.Writer()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write([]byte(content)) // into memory
	h, err := s.SetEncodedObject(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
