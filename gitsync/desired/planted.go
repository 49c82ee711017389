package desired

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan"
)

// A commit that renames or copies a folder brings all files of the folder to their new
// paths. Its author need not have seen them: a committer may have put an approval there.
// Nor need the author of a revert have seen an approval that comes back with a feature. So
// a file counts as signed only if the same signer has brought its content wherever the
// history had it before. A user who wants what another one wrote changes the file.

// Place is where the repository had the content of a file before.
type Place struct {
	path string
	in   plumbing.Hash // the commit that brought it there
}

// maxPlaces bounds the places of one content that are looked at.
const maxPlaces = 16

// placesBefore returns where commits before a commit brought a content. It returns those
// that it finds from the parents of the commit, however old they are, and those that were
// removed since. More than maxPlaces are not looked for. The content names a commit of
// the history, which cannot have it, nor can older ones; zero: it names none.
func placesBefore(ctx context.Context, s storer.EncodedObjectStorer, commit, content, names plumbing.Hash) ([]Place, error) {
	f := &finder{store: s, content: content, in: map[plumbing.Hash][]string{}}
	found, err := f.present(ctx, commit)
	if err != nil || len(found) > maxPlaces {
		return found, err
	}
	removed, err := f.removed(ctx, commit, names)
	return append(found, removed...), err
}

// present returns where the parents of a commit have the content. From there on it adds
// the parents of the commits that brought it to these places.
func (f *finder) present(ctx context.Context, commit plumbing.Hash) ([]Place, error) {
	s := f.store
	var found []Place
	seen := map[plumbing.Hash]bool{commit: true}
	for queue := []plumbing.Hash{commit}; len(queue) > 0; queue = queue[1:] {
		c, err := object.GetCommit(s, queue[0])
		if err != nil {
			return nil, gittree.Missing("commit", queue[0], err)
		}
		for _, parent := range c.ParentHashes {
			p, err := object.GetCommit(s, parent)
			if err != nil {
				return nil, gittree.Missing("commit", parent, err)
			}
			paths, err := f.paths(ctx, p.TreeHash)
			if err != nil {
				return nil, err
			}
			for _, at := range paths {
				b, err := bringer(s, parent, at, Brought{})
				if err != nil {
					return nil, err
				}
				in := plumbing.NewHash(b.in)
				found = append(found, Place{at, in})
				if len(found) > maxPlaces {
					return found, nil
				}
				if !seen[in] {
					seen[in] = true
					queue = append(queue, in)
				}
			}
		}
	}
	return found, nil
}

// removed returns where one of the maxWalk commits before a commit brought the content.
func (f *finder) removed(ctx context.Context, commit, names plumbing.Hash) ([]Place, error) {
	var found []Place
	seen := map[plumbing.Hash]bool{commit: true}
	queue := []plumbing.Hash{commit}
	for looked := 0; len(queue) > 0 && looked <= MaxWalk; looked++ {
		c, err := object.GetCommit(f.store, queue[0])
		if err != nil {
			return nil, gittree.Missing("commit", queue[0], err)
		}
		queue = queue[1:]
		for _, p := range c.ParentHashes {
			if !seen[p] && p != names {
				seen[p] = true
				queue = append(queue, p)
			}
		}
		if c.Hash == commit {
			continue
		}
		paths, err := f.brings(ctx, c)
		if err != nil {
			return nil, err
		}
		for _, at := range paths {
			found = append(found, Place{at, c.Hash})
		}
		if len(found) > maxPlaces {
			return found, nil
		}
	}
	return found, nil
}

// brings returns the paths at which a commit has the content, and none of its parents.
func (f *finder) brings(ctx context.Context, c *object.Commit) ([]string, error) {
	paths, err := f.paths(ctx, c.TreeHash)
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	paths = slices.Clone(paths)
	for _, hash := range c.ParentHashes {
		p, err := object.GetCommit(f.store, hash)
		if err != nil {
			return nil, gittree.Missing("commit", hash, err)
		}
		had, err := f.paths(ctx, p.TreeHash)
		if err != nil {
			return nil, err
		}
		paths = slices.DeleteFunc(paths, func(at string) bool { return slices.Contains(had, at) })
	}
	return paths, nil
}

// finder looks for the files of a content.
type finder struct {
	store   storer.EncodedObjectStorer
	content plumbing.Hash
	in      map[plumbing.Hash][]string // by tree, the paths in it
}

// paths returns the paths in a tree that have the content, and not many more of them than
// are looked at.
func (f *finder) paths(ctx context.Context, tree plumbing.Hash) ([]string, error) {
	if paths, ok := f.in[tree]; ok {
		return paths, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := object.GetTree(f.store, tree)
	if err != nil {
		return nil, gittree.Missing("tree", tree, err)
	}
	var paths []string
	for _, e := range t.Entries {
		switch {
		case len(paths) > maxPlaces:
		case e.Mode == filemode.Dir:
			below, err := f.paths(ctx, e.Hash)
			if err != nil {
				return nil, err
			}
			for _, p := range below {
				paths = append(paths, path.Join(e.Name, p))
			}
		case e.Hash == f.content && e.Mode.IsFile() && e.Mode != filemode.Symlink:
			paths = append(paths, e.Name)
		}
	}
	f.in[tree] = paths
	return paths, nil
}

// placesBefore returns what the function of that name does. A source asks for the same
// ones at each sync.
func (h *History) placesBefore(ctx context.Context, b Brought, names plumbing.Hash) ([]Place, error) {
	key := strings.Join([]string{b.in, b.content.String()}, " ")
	if places, ok := h.Signatures.Places[key]; ok {
		return places, nil
	}
	places, err := placesBefore(ctx, h.Snapshot, plumbing.NewHash(b.in), b.content, names)
	if err == nil && h.Signatures.Places != nil {
		h.Signatures.Places[key] = places
	}
	return places, err
}

const (
	hintSign     = "have it committed by a key that spec.approvals.signers of the GitSource lists (git commit -S)"
	hintOwnKey   = "let a person approve it"
	hintOwnFile  = "commit a change of the file, such as a comment"
	factPlanted  = "the repository had it at %s before, by commit %s of another than %s"
	factManyCopy = "the repository had its content in more than %d places before"
)

// signerOfFile returns the signer who brought a file, or why that is none, and what to do.
// The file names a commit; zero: it names none.
func (h *History) signerOfFile(ctx context.Context, b Brought, names plumbing.Hash) (by signature.Signature, why, hint string, err error) {
	keys := h.Signatures.Signers
	by, why, err = h.Signatures.SignerOf(ctx, h.Snapshot, plumbing.NewHash(b.in), keys)
	switch {
	case err != nil || why != "":
		return by, why, hintSign, err
	case by.Key == h.Signatures.Own:
		return by, errOwnKey.Error(), hintOwnKey, nil
	}
	places, err := h.placesBefore(ctx, b, names)
	if err != nil {
		return by, "", "", err
	}
	if len(places) > maxPlaces {
		return by, fmt.Sprintf(factManyCopy, maxPlaces), hintOwnFile, nil
	}
	for _, p := range places {
		other, why, err := h.Signatures.SignerOf(ctx, h.Snapshot, p.in, keys)
		if err != nil {
			return by, "", "", err
		}
		if why != "" || !keys.Same(other, by) {
			return by, fmt.Sprintf(factPlanted, p.path, plan.ShortCommit(p.in.String()), by), hintOwnFile, nil
		}
	}
	return by, "", "", nil
}
