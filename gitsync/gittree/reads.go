package gittree

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Reads is what was read of a tree, by absolute path.
type Reads map[string]Read

// Read is the answer that a path gave.
type Read struct {
	// Exists is false for a lookup that found nothing.
	Exists bool
	// Dir is true for a folder.
	Dir bool
	// Real is the path without links.
	Real string
	// Linked is true if a symbolic link was followed on the way.
	Linked bool
	// Blob is the hash of the content, where it was read.
	Blob plumbing.Hash
	// Listing is a hash of the names and kinds in a folder, where they were read. PassedBy is
	// the name that does not count in it; empty: all count.
	Listing  plumbing.Hash
	PassedBy string
}

// Unchanged reports whether the same reads of another tree give the same
// answers, so that what was made of them would be the same again. The other
// tree remembers nothing of it.
func (r Reads) Unchanged(t *Tree) (bool, error) {
	for p, was := range r {
		is, err := t.reread(p, was)
		if err != nil {
			return false, err
		}
		if is != was {
			return false, nil
		}
	}
	return true, nil
}

// Includes reports whether the file at a path is one of those that were read, or a
// link on the way to one.
func (r Reads) Includes(p string) bool {
	p = "/" + p
	for asked, a := range r {
		if asked == p && !a.Dir || a.Real == p && !a.Dir || strings.HasPrefix(asked, p+"/") && a.Real != asked {
			return true
		}
	}
	return false
}

// Differ reports whether reads have other answers in one tree than in another.
func Differ(reads Reads, a, b *Tree) (bool, error) {
	for p, was := range reads {
		one, err := a.reread(p, was)
		if err != nil {
			return false, err
		}
		other, err := b.reread(p, was)
		if err != nil || one != other {
			return true, err
		}
	}
	return false, nil
}

// reread reads as much of a path as was read before.
func (t *Tree) reread(p string, was Read) (Read, error) {
	n, err := t.resolve(p, true)
	if t.err != nil {
		return Read{}, t.err
	}
	if err != nil {
		return Read{Linked: n.linked}, nil
	}
	is := Read{Exists: true, Dir: n.isDir(), Real: n.real, Linked: n.linked}
	if !was.Blob.IsZero() {
		is.Blob = n.hash
	}
	if !was.Listing.IsZero() && n.isDir() {
		entries, err := t.entries(n.real, n.hash)
		if err != nil {
			return Read{}, err
		}
		is.Listing, is.PassedBy = listingHash(entries, was.PassedBy), was.PassedBy
	}
	return is, nil
}

// listingHash is a hash of names and kinds, not of contents: a file that was not read
// may change. One name does not count.
func listingHash(entries []object.TreeEntry, passedBy string) plumbing.Hash {
	var b bytes.Buffer
	for _, e := range entries {
		if e.Name != passedBy {
			fmt.Fprintf(&b, "%o %s\x00", e.Mode, e.Name)
		}
	}
	return plumbing.ComputeHash(plumbing.TreeObject, b.Bytes())
}
