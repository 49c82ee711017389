package gitsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// history answers what the branch says about a release.
type history struct {
	*renderer
	desired *desired
}

// releaseCommit returns the commit that names a release, together with its
// revision: the first of the present run of commits that render its template.
// A release that is in the cluster already keeps its commit, since a docs
// commit on top of it is no other release.
func (h *history) releaseCommit(ctx context.Context, r *plan.Release, live *v1alpha1.BatchRelease) (string, error) {
	switch {
	case live == nil:
		return h.desired.commit, nil
	case live.Spec.Commit != "" && plan.EqualTemplate(live.Spec.Template, r.Template):
		return live.Spec.Commit, nil
	}
	first, err := h.runStart(ctx, r)
	return first.String(), err
}

// runStart walks from the tip along first parents, for as long as the parent
// renders an equal template and was not synced before.
func (h *history) runStart(ctx context.Context, r *plan.Release) (plumbing.Hash, error) {
	synced := plumbing.NewHash(h.gs.Status.AppliedCommit)
	reads := h.desired.reads
	for at := h.snapshot.commit; ; {
		if err := ctx.Err(); err != nil {
			return plumbing.ZeroHash, err
		}
		c, err := object.GetCommit(h.snapshot, at)
		if err != nil {
			return plumbing.ZeroHash, missing("commit", at, err)
		}
		if len(c.ParentHashes) == 0 || c.ParentHashes[0] == synced {
			return at, nil
		}
		parent := c.ParentHashes[0]
		same, next, err := h.rendersSame(parent, reads, r)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if !same {
			return at, nil
		}
		at, reads = parent, next
	}
}

// rendersSame reports whether a commit renders the release's template, and
// what was read for the answer. Most commits change nothing that was read for
// the one after them, and are not rendered.
func (h *history) rendersSame(commit plumbing.Hash, reads Reads, r *plan.Release) (bool, Reads, error) {
	t, err := newTreeFS(h.snapshot, commit)
	if err != nil {
		return false, nil, err
	}
	if !h.remote {
		unchanged, err := reads.Unchanged(t)
		if err != nil || unchanged {
			return unchanged, reads, err
		}
	}
	template, err := h.template(t, r)
	if err != nil {
		return false, nil, err
	}
	return template != nil && plan.EqualTemplate(template, r.Template), t.Reads(), nil
}

// errNoFile says that a file is not there in a commit.
var errNoFile = errors.New("no such file")

// brought says which commit brought a file's content, seen from a tip.
type brought struct {
	tip, content plumbing.Hash
	in, by       string
}

// bringer returns the commit that brought a file's content as it is at the
// tip, and its author. A merge brings only what none of its parents has: what
// counts is the commit of the person who wrote it, not of the forge that
// merged it. Where the walk comes upon an earlier answer, that one is good.
func bringer(s storer.EncodedObjectStorer, tip plumbing.Hash, file string, last brought) (brought, error) {
	c, err := object.GetCommit(s, tip)
	if err != nil {
		return brought{}, missing("commit", tip, err)
	}
	content, ok, err := blobAt(s, tip, file)
	if err == nil && !ok {
		err = fmt.Errorf("%s in %s: %w", file, shortCommit(tip.String()), errNoFile)
	}
	if err != nil {
		return brought{}, err
	}
	for {
		if c.Hash == last.tip && content == last.content {
			return brought{tip, content, last.in, last.by}, nil
		}
		from, err := parentWith(s, c, file, content)
		if err != nil {
			return brought{}, err
		}
		if from == nil {
			return brought{tip, content, c.Hash.String(), author(c)}, nil
		}
		c = from
	}
}

// parentWith returns the first parent that has the file with that content.
func parentWith(s storer.EncodedObjectStorer, c *object.Commit, file string, content plumbing.Hash) (*object.Commit, error) {
	for _, parent := range c.ParentHashes {
		h, ok, err := blobAt(s, parent, file)
		if err != nil {
			return nil, err
		}
		if !ok || h != content {
			continue
		}
		p, err := object.GetCommit(s, parent)
		if err != nil {
			return nil, missing("commit", parent, err)
		}
		return p, nil
	}
	return nil, nil
}

func blobAt(s storer.EncodedObjectStorer, commit plumbing.Hash, file string) (plumbing.Hash, bool, error) {
	t, err := newTreeFS(s, commit)
	if err != nil {
		return plumbing.ZeroHash, false, err
	}
	return t.Blob(file)
}

// author is a commit's author as people write it.
func author(c *object.Commit) string {
	s := c.Author.Name + " <" + c.Author.Email + ">"
	if r := []rune(s); len(r) > maxAuthor {
		s = string(r[:maxAuthor-1]) + "…"
	}
	return s
}

// maxAuthor is the length that the BatchRelease has for it.
const maxAuthor = 512
