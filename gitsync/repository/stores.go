package repository

import (
	"sync"
	"time"

	"github.com/go-git/go-git/v5/storage/filesystem"
)

const (
	// keptStores is how many stores of a clone are kept that no reader has. Each has an index of
	// all objects, and what was read.
	keptStores = 16
	// keptStoresFor is how long they are kept after the last reader.
	keptStoresFor = 20 * time.Second
)

// stores are the stores of a clone whose readers are done, for the next ones. A collection of
// garbage takes none away. A thousand sources that are synced one after the other would else
// read the index of the packs again and again.
type stores struct {
	mu   sync.Mutex
	free []*filesystem.Storage
	end  *time.Timer
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
	s.free = nil
}
