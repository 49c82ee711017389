package gittree

import (
	"path"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// Changes are the paths at which trees that follow each other differ. They answer for many
// sources at once whether what they have read may have another answer now. The zero value
// is that of no difference.
type Changes struct {
	// contents are the files that only have another content. It is false for what was added or
	// removed, and for links, submodules, and what is of another kind than before.
	contents map[string]bool
	// listings are the folders with other names or kinds of entries than before.
	listings map[string]bool
}

// MaxChanges is how many paths a Changes has at most. Beyond that it answers no faster than the
// trees themselves.
const MaxChanges = 5000

// Add adds the differences of two trees. It returns false if there are more than
// [MaxChanges].
func (c *Changes) Add(s storer.EncodedObjectStorer, from, to plumbing.Hash, shared *Folders) (bool, error) {
	a, err := OpenShared(s, from, shared)
	if err != nil {
		return false, err
	}
	b, err := OpenShared(s, to, shared)
	if err != nil {
		return false, err
	}
	if c.contents == nil {
		c.contents, c.listings = map[string]bool{}, map[string]bool{}
	}
	return c.compare(a, b, "/", from, to)
}

func (c *Changes) compare(a, b *Tree, dir string, from, to plumbing.Hash) (bool, error) {
	if from == to {
		return true, nil
	}
	was, err := a.byName(dir, from)
	if err != nil {
		return false, err
	}
	after, err := b.entries(dir, to)
	if err != nil {
		return false, err
	}
	for _, e := range after {
		old, there := was[e.Name]
		delete(was, e.Name)
		switch {
		case there && old.Mode == e.Mode && old.Hash == e.Hash:
		case there && areFolders(old, e):
			if fits, err := c.compare(a, b, path.Join(dir, e.Name), old.Hash, e.Hash); !fits {
				return false, err
			}
		default:
			c.note(path.Join(dir, e.Name), there && arePlainFiles(old, e))
			c.listings[dir] = c.listings[dir] || !there || old.Mode != e.Mode
		}
	}
	for name := range was {
		c.note(path.Join(dir, name), false)
		c.listings[dir] = true
	}
	return len(c.contents) <= MaxChanges, nil
}

// byName returns the entries of a folder.
func (t *Tree) byName(dir string, hash plumbing.Hash) (map[string]object.TreeEntry, error) {
	entries, err := t.entries(dir, hash)
	by := make(map[string]object.TreeEntry, len(entries))
	for _, e := range entries {
		by[e.Name] = e
	}
	return by, err
}

func areFolders(a, b object.TreeEntry) bool { return a.Mode == filemode.Dir && b.Mode == filemode.Dir }

func arePlainFiles(a, b object.TreeEntry) bool { return isPlainFile(a.Mode) && isPlainFile(b.Mode) }

func isPlainFile(m filemode.FileMode) bool { return m.IsFile() && m != filemode.Symlink }

func (c *Changes) note(at string, onlyContent bool) {
	was, noted := c.contents[at]
	c.contents[at] = onlyContent && (was || !noted)
}

// MayTouch reports whether one of the reads may have another answer after the changes. If it
// returns false, none has. A read on whose way there was a link may always have one, unless
// nothing has changed.
func (c *Changes) MayTouch(reads Reads) bool {
	if len(c.contents) == 0 {
		return false
	}
	for p, r := range reads {
		if r.Linked || !r.Listing.IsZero() && c.listings[p] {
			return true
		}
		for at := p; at != "/"; at = path.Dir(at) {
			if onlyContent, changed := c.contents[at]; changed && (!onlyContent || at == p && !r.Blob.IsZero()) {
				return true
			}
		}
	}
	return false
}
