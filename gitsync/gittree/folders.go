package gittree

import (
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Folders are large folders that were read of some tree, by their hash. A thousand sources
// with paths beside each other compare the same one after a push, and to decode it takes
// most of the time. The zero value is empty and ready for several goroutines.
type Folders struct {
	mu sync.Mutex
	by map[plumbing.Hash][]object.TreeEntry
}

const (
	// largeFolder is how many entries a folder has that is kept.
	largeFolder = 64
	// keptEntries bounds the entries of all that are kept, of about a hundred bytes each.
	keptEntries = 100_000
)

func (f *Folders) get(h plumbing.Hash) ([]object.TreeEntry, bool) {
	if f == nil {
		return nil, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.by[h]
	return e, ok
}

func (f *Folders) put(h plumbing.Hash, entries []object.TreeEntry) {
	if f == nil || len(entries) < largeFolder || len(entries) > keptEntries {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := len(entries)
	for _, e := range f.by {
		kept += len(e)
	}
	if f.by == nil || kept > keptEntries {
		f.by = map[plumbing.Hash][]object.TreeEntry{}
	}
	f.by[h] = entries
}
