package gitsync

import (
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Tree is the tree of a commit, to be read and rendered. It is not safe for
// use by several goroutines.
type Tree interface {
	filesys.FileSystem
	// Err returns the first error of the storer, or nil. Exists and IsDir can
	// say only no, so it must be asked when all was read.
	Err() error
}

// TreeOf returns the tree of a commit, as the controller reads it.
func TreeOf(s storer.EncodedObjectStorer, commit plumbing.Hash) (Tree, error) {
	return newTreeFS(s, commit)
}
