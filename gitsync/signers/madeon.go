package signers

import (
	"context"
	"regexp"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// maxSinceMade is how many commits an approval may have been rebased over.
const maxSinceMade = 200

// commitNames are the names of commits in a text.
var commitNames = regexp.MustCompile(`\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b`)

// madeOn reports whether the content of a file names the commit on top of which it was
// committed. No file in the history of that commit can have its name, in any encoding: the
// name is a hash over all these files. So nothing of that history was made into the
// content, and the signer has written it.
//
// After a rebase the content names an older commit. It counts if no file that came since
// has that name, or is in an encoding in which it might have it.
//
// It returns the place that stands for this. The place has the commit if it is the one
// right before. Then no attribute matters, by which git converts files that came since.
func madeOn(ctx context.Context, s storer.EncodedObjectStorer, at FileOrigin) ([]Place, error) {
	c, err := object.GetCommit(s, plumbing.NewHash(at.In))
	if err != nil {
		return nil, gittree.Missing("commit", plumbing.NewHash(at.In), err)
	}
	size, err := s.EncodedObjectSize(at.content)
	if err != nil {
		return nil, gittree.Missing("file", at.content, err)
	}
	if c.NumParents() != 1 || size > maxApproval {
		return nil, nil
	}
	text, err := gitobject.ReadBlob(s, at.content)
	if err != nil {
		return nil, err
	}
	names := map[plumbing.Hash]bool{}
	for _, name := range commitNames.FindAllString(string(text), -1) {
		names[plumbing.NewHash(name)] = true
	}
	parent := c.ParentHashes[0]
	if names[parent] {
		return []Place{{in: parent, is: own}}, nil
	}
	on, err := nearest(s, parent, names)
	if err != nil || on.IsZero() {
		return nil, err
	}
	if alone, err := isUnnamed(ctx, s, parent, on); err != nil || !alone {
		return nil, err
	}
	return []Place{{is: own}}, nil
}

// nearest returns the first of the named commits in the history of a commit; zero: there is
// none among the next ones.
func nearest(s storer.EncodedObjectStorer, commit plumbing.Hash, names map[plumbing.Hash]bool) (plumbing.Hash, error) {
	seen := map[plumbing.Hash]bool{commit: true}
	for queue := []plumbing.Hash{commit}; len(names) > 0 && len(queue) > 0 && len(seen) <= maxSinceMade; queue = queue[1:] {
		at := queue[0]
		if names[at] {
			return at, nil
		}
		c, err := object.GetCommit(s, at)
		if err != nil {
			return plumbing.ZeroHash, gittree.Missing("commit", at, err)
		}
		for _, p := range c.ParentHashes {
			if !seen[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return plumbing.ZeroHash, nil
}

// isUnnamed reports whether no file may have the name of a commit that a later one, or
// a commit between them, brought.
func isUnnamed(ctx context.Context, s storer.EncodedObjectStorer, later, commit plumbing.Hash) (bool, error) {
	older, err := ancestors(ctx, s, commit)
	if err != nil {
		return false, err
	}
	seen := map[plumbing.Hash]bool{later: true}
	for queue := []plumbing.Hash{later}; len(queue) > 0; queue = queue[1:] {
		if len(seen) > maxSinceMade {
			return false, nil
		}
		c, err := object.GetCommit(s, queue[0])
		if err != nil {
			return false, gittree.Missing("commit", queue[0], err)
		}
		if may, err := mayHave(ctx, s, c, commit.String()); err != nil || may {
			return false, err
		}
		for _, p := range c.ParentHashes {
			if !seen[p] && !older[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return true, nil
}

// mayHave reports whether a file that a commit brings has the name of another commit. A
// file in an encoding that is not known might have it.
func mayHave(ctx context.Context, s storer.EncodedObjectStorer, c *object.Commit, name string) (bool, error) {
	if err := ctx.Err(); err != nil || c.NumParents() == 0 {
		return true, err
	}
	for _, p := range c.ParentHashes {
		tree, err := gitobject.TreeHash(s, p)
		if err != nil {
			return false, err
		}
		changes, err := gitobject.Diff(s, tree, c.TreeHash)
		if err != nil {
			return false, err
		}
		for _, change := range changes {
			if !change.To.Mode.IsFile() {
				continue
			}
			if may, err := textMayHave(s, change.To.Hash, name); err != nil || may {
				return may, err
			}
		}
	}
	return false, nil
}

func textMayHave(s storer.EncodedObjectStorer, content plumbing.Hash, name string) (bool, error) {
	size, err := s.EncodedObjectSize(content)
	if err != nil {
		return false, gittree.Missing("file", content, err)
	}
	if size > sourceLimit(s) {
		return true, nil
	}
	raw, err := gitobject.ReadBlob(s, content)
	if err != nil {
		return false, err
	}
	text := normalized(raw)
	isASCII := !strings.ContainsFunc(text, func(r rune) bool { return r > 0x7f })
	return !isASCII || !isText(text) || strings.Contains(text, name), nil
}
