package signers

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan"
)

// A commit that renames or copies a folder brings all files of the folder to their new
// paths. Its author need not have seen them: a committer may have put an approval there.
// Nor need the author of a revert have seen an approval that comes back with a feature. So
// a file counts as signed only if the same signer has brought its content wherever the
// history had it before. A user who wants what another one wrote changes the file.
//
// A merge can combine changes of two persons in one file into a content that neither of
// them wrote. So no file counts as signed that has its content from a merge. Nor does a
// change count that git makes by itself when a file is added, such as of line ends.

// Place is where the repository had the content of a file before.
type Place struct {
	path string
	in   plumbing.Hash // the commit that brought it there
}

// maxWalk is how many commits are looked at for places that are no longer there.
const maxWalk = 10_000

// maxPlaces bounds the places of one content that are looked at.
const maxPlaces = 16

// placesBefore returns where commits before a commit brought a content. It returns those
// that it finds from the parents of the commit, however old they are, and those that were
// removed since. More than maxPlaces are not looked for. The content names a commit of
// the history, which cannot have it, nor can older ones; zero: it names none.
func placesBefore(ctx context.Context, s storer.EncodedObjectStorer, commit, content, names plumbing.Hash) ([]Place, error) {
	f, err := newFinder(s, content)
	if err != nil {
		return nil, err
	}
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
				b, err := LastChange(s, parent, at, FileOrigin{})
				if err != nil {
					return nil, err
				}
				in := plumbing.NewHash(b.In)
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
	for looked := 0; len(queue) > 0 && looked <= maxWalk; looked++ {
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

// finder looks for the files of a content, or of one that git takes for the same.
type finder struct {
	store storer.EncodedObjectStorer
	text  string                     // of the content, as normalized returns it
	is    map[plumbing.Hash]bool     // by content
	in    map[plumbing.Hash][]string // by tree, the paths in it
}

func newFinder(s storer.EncodedObjectStorer, content plumbing.Hash) (*finder, error) {
	text, err := gitobject.ReadBlob(s, content)
	if err != nil {
		return nil, err
	}
	return &finder{s, normalized(text), map[plumbing.Hash]bool{content: true}, map[plumbing.Hash][]string{}}, nil
}

// has reports whether a file has the content, or one with the same text. Only files that
// may be approvals are read, and not those that are much larger than the text.
func (f *finder) has(name string, content plumbing.Hash) (bool, error) {
	is, known := f.is[content]
	if known || !slices.Contains(approvalExtensions, path.Ext(name)) {
		return is, nil
	}
	size, err := f.store.EncodedObjectSize(content)
	if err != nil {
		return false, gittree.Missing("file", content, err)
	}
	if n := int64(len(f.text)); size >= n && size <= 4*n+maxNormalized {
		text, err := gitobject.ReadBlob(f.store, content)
		if err != nil {
			return false, err
		}
		is = normalized(text) == f.text
	}
	f.is[content] = is
	return is, nil
}

// maxNormalized is how many bytes more than four times its text a file may have that is
// compared.
const maxNormalized = 64 << 10

var (
	approvalExtensions = []string{".yaml", ".yml", ".json"}

	trailingSpace = regexp.MustCompile(`[ \t\r]+(\n|$)`)
	expandedID    = regexp.MustCompile(`\$Id:[^$\n]*\$`)
)

// normalized returns a text without what git can change when a file is added. That is a
// byte order mark, line ends with the white space before them, and the values of $Id$.
func normalized(text []byte) string {
	text = trailingSpace.ReplaceAll(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), []byte("$1"))
	return string(bytes.TrimRight(expandedID.ReplaceAll(text, []byte("$$Id$$")), "\n"))
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
		case e.Mode.IsFile() && e.Mode != filemode.Symlink:
			is, err := f.has(e.Name, e.Hash)
			if err != nil {
				return nil, err
			}
			if is {
				paths = append(paths, e.Name)
			}
		}
	}
	f.in[tree] = paths
	return paths, nil
}

// placesBefore returns what the function of that name does. A source asks for the same
// ones at each sync.
func (p *Policy) placesBefore(ctx context.Context, store storer.EncodedObjectStorer, at FileOrigin, names plumbing.Hash) ([]Place, error) {
	key := strings.Join([]string{at.In, at.content.String()}, " ")
	if places, ok := p.Places[key]; ok {
		return places, nil
	}
	places, err := placesBefore(ctx, store, plumbing.NewHash(at.In), at.content, names)
	if err == nil && p.Places != nil {
		p.Places[key] = places
	}
	return places, err
}

const (
	hintSign     = "have it committed by a key that spec.approvals.signers of the GitSource lists (git commit -S)"
	hintOwnKey   = "let a person approve it"
	HintOwnFile  = "commit a change of the file, such as a comment"
	HintNoMerge  = "commit a change of the file, such as a comment, by a commit that is no merge"
	factMerged   = "it is a merge, and none of its parents has the file like this"
	factSpace    = "it changes only line ends, white space at line ends, or $Id$ in it"
	factByMerge  = "the repository had it at %s before, by merge %s, of which no parent had it"
	factPlanted  = "the repository had it at %s before, by commit %s of another than %s"
	factManyCopy = "the repository had its content in more than %d places before"
)

// SignerOfFile returns the signer who brought a file, or why that is none, and what to do.
// The file names a commit; zero: it names none.
func (p *Policy) SignerOfFile(ctx context.Context, store storer.EncodedObjectStorer, file string, at FileOrigin, names plumbing.Hash) (
	by signature.Signature, why, hint string, err error,
) {
	keys := p.Signers
	by, why, err = p.SignerOf(ctx, store, plumbing.NewHash(at.In), keys)
	switch {
	case err != nil || why != "":
		return by, why, hintSign, err
	case by.Key == p.Own:
		return by, errOwnKey.Error(), hintOwnKey, nil
	}
	if why, hint, err = unwritten(store, file, at); err != nil || why != "" {
		return by, why, hint, err
	}
	places, err := p.placesBefore(ctx, store, at, names)
	if err != nil {
		return by, "", "", err
	}
	if len(places) > maxPlaces {
		return by, fmt.Sprintf(factManyCopy, maxPlaces), HintOwnFile, nil
	}
	for _, before := range places {
		c, err := object.GetCommit(store, before.in)
		if err != nil {
			return by, "", "", gittree.Missing("commit", before.in, err)
		}
		if c.NumParents() > 1 {
			return by, fmt.Sprintf(factByMerge, before.path, plan.ShortCommit(before.in.String())), HintOwnFile, nil
		}
		other, why, err := p.SignerOf(ctx, store, before.in, keys)
		if err != nil {
			return by, "", "", err
		}
		if why != "" || !keys.Same(other, by) {
			return by, fmt.Sprintf(factPlanted, before.path, plan.ShortCommit(before.in.String()), by), HintOwnFile, nil
		}
	}
	return by, "", "", nil
}

// unwritten says why the signer of the commit that brought a file has not written it, and
// what to do. It is empty if the commit changes the file.
func unwritten(store storer.EncodedObjectStorer, file string, at FileOrigin) (why, hint string, err error) {
	c, err := object.GetCommit(store, plumbing.NewHash(at.In))
	if err != nil {
		return "", "", gittree.Missing("commit", plumbing.NewHash(at.In), err)
	}
	switch c.NumParents() {
	case 0:
		return "", "", nil
	case 1:
	default:
		return factMerged, HintNoMerge, nil
	}
	before, ok, err := gitobject.BlobAt(store, c.ParentHashes[0], file)
	if err != nil || !ok {
		return "", "", err
	}
	var text [2][]byte
	for i, content := range []plumbing.Hash{before, at.content} {
		if text[i], err = gitobject.ReadBlob(store, content); err != nil {
			return "", "", err
		}
	}
	if normalized(text[0]) == normalized(text[1]) {
		return factSpace, HintOwnFile, nil
	}
	return "", "", nil
}
