package signers

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
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

// WrittenIn returns the commit that wrote what a file has, given the one that brought it there. They
// differ where a commit moved a file as it was, or copied one within a folder: that says nothing new.
// A file that was removed by an earlier commit is written again by the one that brings it back.
func WrittenIn(s storer.EncodedObjectStorer, file string, brought FileOrigin) (FileOrigin, error) {
	for {
		c, err := object.GetCommit(s, plumbing.NewHash(brought.In))
		if err != nil {
			return FileOrigin{}, gittree.Missing("commit", plumbing.NewHash(brought.In), err)
		}
		parent, before, err := movedFrom(s, c, file, brought.content)
		if err != nil || before == "" {
			return brought, err
		}
		if brought, err = LastChange(s, parent, before, FileOrigin{}); err != nil {
			return FileOrigin{}, err
		}
		file = before
	}
}

// movedFrom returns the first parent that has the content of a file elsewhere, and where. That is a file
// which the commit removes, or one of the same folder; "": there is none.
func movedFrom(s storer.EncodedObjectStorer, c *object.Commit, file string, content plumbing.Hash) (plumbing.Hash, string, error) {
	for _, parent := range c.ParentHashes {
		root, err := gitobject.TreeHash(s, parent)
		if err != nil {
			return plumbing.ZeroHash, "", err
		}
		changes, err := gitobject.Diff(s, root, c.TreeHash)
		if err != nil {
			return plumbing.ZeroHash, "", err
		}
		for _, at := range slices.Sorted(maps.Keys(changes)) {
			if change := changes[at]; change.To.Mode == filemode.Empty && change.From.Hash == content {
				return parent, at, nil
			}
		}
		if at, err := sibling(s, root, file, content); err != nil || at != "" {
			return parent, at, err
		}
	}
	return plumbing.ZeroHash, "", nil
}

// sibling returns a file with some content in the folder of a file; "": there is none.
func sibling(s storer.EncodedObjectStorer, root plumbing.Hash, file string, content plumbing.Hash) (string, error) {
	folder := path.Dir(file)
	if folder != "." {
		e, err := gitobject.EntryAt(s, root, folder)
		if err != nil || e.Mode != filemode.Dir {
			return "", err
		}
		root = e.Hash
	}
	t, err := object.GetTree(s, root)
	if err != nil {
		return "", gittree.Missing("tree", root, err)
	}
	for _, e := range t.Entries {
		if e.Hash == content {
			return path.Join(folder, e.Name), nil
		}
	}
	return "", nil
}
