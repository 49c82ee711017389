package repository

import (
	"sync"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/tranche-dev/tranche/gitsync/gittree"
)

const (
	// keptStores is how many stores of a clone are kept that no reader has. Each has an index of
	// all objects, and what was read.
	keptStores = 16
	// keptStoresFor is how long they are kept after the last reader.
	keptStoresFor = 20 * time.Second
	// openPacks is how many packs a reader keeps open. To open one for each object that is read
	// takes a third of the time of reading.
	openPacks = 8
)

// newReaderStore returns a store for one reader at a time. It has open files until it is closed.
func newReaderStore(dir string) *filesystem.Storage {
	return filesystem.NewStorageWithOptions(osfs.New(dir), cache.NewObjectLRU(objectCache),
		filesystem.Options{MaxOpenDescriptors: openPacks})
}

// stores are the stores of a clone whose readers are done, for the next ones. A collection of
// garbage takes none away. A thousand sources that are synced one after the other would else
// read the index of the packs again and again.
type stores struct {
	mu      sync.Mutex
	free    []*filesystem.Storage
	folders *gittree.Folders
	end     *time.Timer
}

// shared returns the large folders that readers of the clone have read.
func (s *stores) shared() *gittree.Folders {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folders == nil {
		s.folders = &gittree.Folders{}
	}
	return s.folders
}

// get returns a store; nil: there is none.
func (s *stores) get() *filesystem.Storage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return nil
	}
	last := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return last
}

func (s *stores) put(store *filesystem.Storage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) < keptStores {
		s.free = append(s.free, store)
	} else {
		_ = store.Close() // it was only read
	}
	if s.end == nil {
		s.end = time.AfterFunc(keptStoresFor, s.drop)
		return
	}
	s.end.Reset(keptStoresFor)
}

func (s *stores) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, store := range s.free {
		_ = store.Close() // it was only read
	}
	s.free, s.folders = nil, nil
}
