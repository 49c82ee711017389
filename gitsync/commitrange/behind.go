package commitrange

import (
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// mostBehind bounds how many commits are counted.
const mostBehind = 1000

// Behind is how many commits a tip is ahead of one that was applied, as far as its history
// can be read.
func Behind(s storer.EncodedObjectStorer, tip, applied plumbing.Hash) int {
	c, err := object.GetCommit(s, tip)
	if err != nil || applied.IsZero() || applied == tip {
		return 0
	}
	n := 0
	walk := object.NewCommitPreorderIter(c, nil, []plumbing.Hash{applied})
	defer walk.Close()
	_ = walk.ForEach(func(*object.Commit) error { // as far as it goes
		if n++; n == mostBehind {
			return storer.ErrStop
		}
		return nil
	})
	return n
}
