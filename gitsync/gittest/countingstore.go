package gittest

import (
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// CountingStore counts the objects that are read.
type CountingStore struct {
	storer.EncodedObjectStorer
	N int
}

func (s *CountingStore) EncodedObject(t plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	s.N++
	return s.EncodedObjectStorer.EncodedObject(t, h)
}

// OpenCounting reads the repository as it is on disk.
func OpenCounting(t *testing.T, repo *Repo) *CountingStore {
	t.Helper()
	r, err := gogit.PlainOpen(repo.Work)
	if err != nil {
		t.Fatal(err)
	}
	return &CountingStore{EncodedObjectStorer: r.Storer}
}
