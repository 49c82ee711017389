package repository

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/tranche-dev/tranche/gitsync/gittree"
)

const (
	// keptStoreFor is how long the store of a clone is kept after its last reader.
	keptStoreFor = 20 * time.Second
	// openPacks is how many packs a store keeps open. To open one for each object that is read
	// takes a third of the time of reading.
	openPacks = maxPacks
)

// sharedStore is a store for all readers of a clone. It has an index of all objects. A thousand
// sources with one each would read it again and again, and keep many of them in memory. go-git's
// store changes while it answers, so it answers one reader at a time. It has open files until it
// is closed.
type sharedStore struct {
	*filesystem.Storage
	mu sync.Mutex
}

var _ storer.EncodedObjectStorer = (*sharedStore)(nil)

func newSharedStore(dir string) *sharedStore {
	return &sharedStore{Storage: filesystem.NewStorageWithOptions(osfs.New(dir), cache.NewObjectLRU(objectCache),
		filesystem.Options{MaxOpenDescriptors: openPacks})}
}

// EncodedObject returns an object that several readers may read.
func (s *sharedStore) EncodedObject(t plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.Storage.EncodedObject(t, h)
	if err != nil {
		return nil, err
	}
	if _, inMemory := o.(*plumbing.MemoryObject); inMemory {
		return o, nil
	}
	return &fileObject{o, &s.mu}, nil
}

// HasEncodedObject returns nil if there is an object.
func (s *sharedStore) HasEncodedObject(h plumbing.Hash) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Storage.HasEncodedObject(h)
}

// EncodedObjectSize returns the size of an object in bytes.
func (s *sharedStore) EncodedObjectSize(h plumbing.Hash) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Storage.EncodedObjectSize(h)
}

// IterEncodedObjects is not for readers of a clone.
func (*sharedStore) IterEncodedObjects(plumbing.ObjectType) (storer.EncodedObjectIter, error) {
	return nil, fmt.Errorf("listing all objects of a clone: %w", errors.ErrUnsupported)
}

// fileObject is a large object, which go-git reads from its file when it is asked for the
// content.
type fileObject struct {
	plumbing.EncodedObject
	mu *sync.Mutex // of its store
}

// Reader returns the content, which is in memory by then.
func (o *fileObject) Reader() (io.ReadCloser, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.EncodedObject.Reader()
	if err != nil {
		return nil, err
	}
	read := &plumbing.MemoryObject{}
	_, err = io.Copy(read, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	return read.Reader()
}

// reading is what the readers of a clone share. It is kept for a while after the last of them. A
// store does not see packs that come later: there is a new one after each fetch.
type reading struct {
	dir string

	mu      sync.Mutex
	readers int
	objects *sharedStore
	folders *gittree.Folders
	end     *time.Timer
}

// open returns what a reader reads from, until it calls close.
func (r *reading) open() (*sharedStore, *gittree.Folders) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers++
	if r.objects == nil {
		r.objects, r.folders = newSharedStore(r.dir), &gittree.Folders{}
	}
	return r.objects, r.folders
}

func (r *reading) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readers--; r.readers > 0 {
		return
	}
	if r.end == nil {
		r.end = time.AfterFunc(keptStoreFor, r.drop)
		return
	}
	r.end.Reset(keptStoreFor)
}

// drop closes the files, unless there is a reader again.
func (r *reading) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.readers > 0 || r.objects == nil {
		return
	}
	_ = r.objects.Close() // it was only read
	r.objects, r.folders = nil, nil
}
