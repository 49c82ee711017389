package authors

import (
	"context"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/ownchanges"
)

// A line is its author's wherever the file has gone: another person may have moved it. Nor
// does it become another's by taking the file away for a commit. So a change is looked for
// at the path where the file is now, and is what differs from the file's earlier life. The
// path that it had then need not be one that was rendered.

const (
	// renameScore is git's: from half of the content on, a file is one that moved.
	renameScore = 50
	// maxRenames bounds the pairs of files that are compared.
	maxRenames = 1_000
	// maxEarlier is how many commits are looked at for the earlier life of a file.
	maxEarlier = 200
	// maxArriving bounds the effort for files that were never rendered where they were. Beyond it
	// those are found that have the same content now.
	maxArriving = 10_000_000
)

// effortOfRenames is that of a comparison of two trees with renames, and effortOfLookup that of
// finding a file in a tree.
const (
	effortOfRenames = 50_000
	effortOfLookup  = 20
)

// movedTo returns where the files that a commit changed are now, if they have moved.
func (d *dormancy) movedTo(
	ctx context.Context, c *object.Commit, changes map[string]gitobject.Change, r *rendering,
) (map[string][]string, error) {
	moved, err := filesGone(ctx, d, c, changes, r)
	if err != nil || len(moved) == 0 {
		return nil, err
	}
	renames, err := d.findRenames(ctx, c.TreeHash, r.commit.TreeHash)
	if err != nil {
		return nil, err
	}
	for _, ch := range renames {
		if _, gone := moved[ch.From.Name]; gone && ch.To.Name != "" && ch.To.Name != ch.From.Name {
			moved[ch.From.Name] = append(moved[ch.From.Name], ch.To.Name)
		}
	}
	return moved, nil
}

// filesGone returns the files that a commit changed and that may be elsewhere now.
func filesGone(
	ctx context.Context, d *dormancy, c *object.Commit, changes map[string]gitobject.Change, r *rendering,
) (map[string][]string, error) {
	found, unread := map[string][]string{}, map[string]bool{}
	for file, change := range changes {
		if !isText(change.To) {
			continue
		}
		e, err := gitobject.EntryAt(d.store, r.commit.TreeHash, file)
		if err != nil {
			return nil, err
		}
		switch {
		case e.Mode != filemode.Empty:
		case d.origins.matters(file, r) || d.reads.Includes(file) || isRead(d, change.To.Hash, r):
			found[file] = nil
		default:
			unread[file] = true
		}
	}
	if len(unread) == 0 {
		return found, ctx.Err()
	}
	arrived, err := haveArrived(d, c, r)
	if err != nil || !arrived {
		return found, err
	}
	for file := range unread {
		found[file] = nil
	}
	return found, ctx.Err()
}

// haveArrived reports whether a file is read that a commit did not have. It may have been
// elsewhere then. It reports false if that takes too much in all.
func haveArrived(d *dormancy, c *object.Commit, r *rendering) (bool, error) {
	if d.arriving > maxArriving {
		return false, nil
	}
	d.arriving += effortOfLookup * len(r.reads)
	for p, read := range r.reads {
		if read.Blob.IsZero() {
			continue
		}
		e, err := gitobject.EntryAt(d.store, c.TreeHash, strings.TrimPrefix(p, "/"))
		if err != nil {
			return false, err
		}
		if e.Mode == filemode.Empty {
			d.arriving += effortOfRenames
			return true, nil
		}
	}
	return false, nil
}

// isRead reports whether a content is read.
func isRead(d *dormancy, content plumbing.Hash, r *rendering) bool {
	if d.contents == nil {
		d.contents = map[plumbing.Hash]bool{}
		for _, read := range r.reads {
			d.contents[read.Blob] = true
		}
	}
	return d.contents[content]
}

// sinceEarlier returns a change of a file that was away, or was something else than a file,
// as one of its earlier life. That is in the history of the commit, or in what was released
// last, if that is older.
func (d *dormancy) sinceEarlier(
	ctx context.Context, c *object.Commit, file string, change gitobject.Change, at int32,
) (gitobject.Change, error) {
	if isText(change.From) || !isText(change.To) {
		return change, nil
	}
	for n := 0; n < maxEarlier && len(c.ParentHashes) > 0; n++ {
		if err := d.origins.spend(ctx, ownchanges.EffortOfFile); err != nil {
			return change, err
		}
		parent, err := object.GetCommit(d.store, c.ParentHashes[0])
		if err != nil {
			return change, gittree.Missing("commit", c.ParentHashes[0], err)
		}
		c = parent
		e, err := gitobject.EntryAt(d.store, c.TreeHash, file)
		if err != nil {
			return change, err
		}
		if isText(e) {
			change.From = e
			return change, nil
		}
	}
	if d.base.IsZero() || at < d.origins.past {
		return change, nil
	}
	if e, err := gitobject.EntryAt(d.store, d.base, file); err != nil || isText(e) {
		change.From = e
		return change, err
	}
	return change, nil
}

// isText reports whether an entry is a file that may have lines.
func isText(e object.TreeEntry) bool {
	return e.Mode == filemode.Regular || e.Mode == filemode.Executable
}
