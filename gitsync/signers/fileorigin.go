package signers

import (
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
)

// errNoFile says that a file is not there in a commit.
var errNoFile = errors.New("no such file")

// FileOrigin says which commit brought a file's content, seen from a tip.
type FileOrigin struct {
	tip, content plumbing.Hash
	// In is the commit, and By is its author.
	In, By string
}

// LastChange returns the commit that brought a file's content as it is at the tip, and
// its author. A merge brings only what none of its parents has. So the commit of the
// person who wrote the content counts, not that of the forge that merged it. If the
// walk comes upon an earlier answer, that one is good.
func LastChange(s storer.EncodedObjectStorer, tip plumbing.Hash, file string, last FileOrigin) (FileOrigin, error) {
	c, err := object.GetCommit(s, tip)
	if err != nil {
		return FileOrigin{}, gittree.Missing("commit", tip, err)
	}
	content, ok, err := gitobject.BlobAt(s, tip, file)
	if err == nil && !ok {
		err = fmt.Errorf("%s in %s: %w", file, plan.ShortCommit(tip.String()), errNoFile)
	}
	if err != nil {
		return FileOrigin{}, err
	}
	for {
		if c.Hash == last.tip && content == last.content {
			return FileOrigin{tip, content, last.In, last.By}, nil
		}
		from, err := gitobject.ParentWith(s, c, file, content)
		if err != nil {
			return FileOrigin{}, err
		}
		if from == nil {
			return FileOrigin{tip, content, c.Hash.String(), gitobject.AuthorOf(c)}, nil
		}
		c = from
	}
}
