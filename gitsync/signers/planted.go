package signers

import (
	"context"
	"fmt"
	"maps"
	"path"
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
//
// A revert combines changes as well. If others have written versions of an approval, it
// counts only with a line that no version before has. It does not count if a revert of
// another person's commit makes the same of the file before.
//
// All that is about contents which were in the history. A content that names the commit
// on top of which it was committed was in none, however it is encoded: see madeOn.

// Place is where the repository had a file before.
type Place struct {
	path string
	in   plumbing.Hash // the commit that brought it there
	is   likeness
}

// likeness is what a file is to an approval.
type likeness int

const (
	other likeness = iota
	// same: git takes its content for the same.
	same
	// version: it names the same release or plan, or git can have made the approval of it.
	version
	// unreadable: git can have made the approval of it, and it cannot be compared.
	unreadable
	// known stands for no file: each line of the approval is in a version.
	known
	// large stands for no file: there are more versions than are looked at.
	large
	// reverted: the revert of a commit that took this content away makes the approval.
	reverted
	// own stands for no file: the approval names the commit that it was made on.
	own
)

// maxWalk is how many commits are looked at for places that are no longer there.
const maxWalk = 10_000

const (
	// maxPlaces bounds the places of one content that are looked at.
	maxPlaces = 16
	// maxVersions bounds the places of versions whose signers are looked at.
	maxVersions = 64
	// maxApproval is how many bytes an approval has at most.
	maxApproval = 64 << 10
	// maxSource is how many bytes a file has at most that is compared with an approval
	// which git can have made of it.
	maxSource = 8*maxApproval + maxNormalized
)

// placesBefore returns where commits before a commit brought a content, or a version of it.
// It returns those that it finds from the parents of the commit, however old they are, and
// those that were removed since. More than maxPlaces are not looked for. The content names
// a commit of the history, which cannot have it, nor can older ones; zero: it names none.
func placesBefore(ctx context.Context, s storer.EncodedObjectStorer, file string, at FileOrigin, names plumbing.Hash) ([]Place, error) {
	if made, err := madeOn(ctx, s, at); err != nil || made != nil {
		return made, err
	}
	f, err := newFinder(ctx, s, file, at, names)
	if err != nil {
		return nil, err
	}
	var places []Place
	for _, find := range []func(context.Context) ([]Place, error){f.sources, f.present, f.removed, f.reverts} {
		found, err := find(ctx)
		if err != nil {
			return nil, err
		}
		for _, place := range found {
			if !slices.Contains(places, place) {
				places = append(places, place)
			}
		}
	}
	if len(f.unknown) == 0 {
		places = append(places, Place{is: known})
	}
	return places, nil
}

// bounded leaves out what is more than is looked at.
func bounded(places []Place) []Place {
	count := map[likeness]int{}
	return slices.DeleteFunc(places, func(p Place) bool {
		count[p.is]++
		return p.is == same && count[same] > maxPlaces+1 || p.is == version && count[version] > maxVersions
	})
}

// present returns where the parents of a commit have the content, or versions. From there
// on it adds the parents of the commits that brought the content to these places.
func (f *finder) present(ctx context.Context) ([]Place, error) {
	var found []Place
	seen := map[plumbing.Hash]bool{f.commit: true}
	for queue := []plumbing.Hash{f.commit}; len(queue) > 0; queue = queue[1:] {
		c, err := object.GetCommit(f.store, queue[0])
		if err != nil {
			return nil, gittree.Missing("commit", queue[0], err)
		}
		for _, parent := range c.ParentHashes {
			files, err := f.filesIn(ctx, parent)
			if err != nil {
				return nil, err
			}
			if len(files) > maxVersions {
				found = append(found, Place{is: large})
				files = files[:maxVersions]
			}
			for _, at := range files {
				b, err := LastChange(f.store, parent, at.path, FileOrigin{})
				if err != nil {
					return nil, err
				}
				in := plumbing.NewHash(b.In)
				found = append(found, Place{at.path, in, at.is})
				if at.is == same && !seen[in] && len(seen) <= maxPlaces {
					seen[in] = true
					queue = append(queue, in)
				}
			}
		}
	}
	return bounded(found), nil
}

// filesIn returns the files of a commit that have the content, or are versions.
func (f *finder) filesIn(ctx context.Context, commit plumbing.Hash) ([]found, error) {
	tree, err := gitobject.TreeHash(f.store, commit)
	if err != nil {
		return nil, err
	}
	return f.files(ctx, tree)
}

// removed returns where one of the maxWalk commits before a commit brought the content, or
// a version. The path of the approval is a place of versions, whatever they name.
func (f *finder) removed(ctx context.Context) ([]Place, error) {
	var places []Place
	seen := map[plumbing.Hash]bool{f.commit: true}
	queue := []plumbing.Hash{f.commit}
	for looked := 0; len(queue) > 0 && looked <= maxWalk; looked++ {
		c, err := object.GetCommit(f.store, queue[0])
		if err != nil {
			return nil, gittree.Missing("commit", queue[0], err)
		}
		queue = queue[1:]
		for _, p := range c.ParentHashes {
			if !seen[p] && !f.older[p] {
				seen[p] = true
				queue = append(queue, p)
			}
		}
		if c.Hash == f.commit {
			continue
		}
		files, err := f.brings(ctx, c)
		if err != nil {
			return nil, err
		}
		for _, at := range files {
			places = append(places, Place{at.path, c.Hash, at.is})
		}
		places = bounded(places)
	}
	return places, nil
}

// brings returns the files of a commit that have the content, or are versions, and that
// none of its parents has.
func (f *finder) brings(ctx context.Context, c *object.Commit) ([]found, error) {
	files, err := f.files(ctx, c.TreeHash)
	if err != nil {
		return nil, err
	}
	files = slices.Clone(files)
	own, err := f.ownPath(c.TreeHash)
	if err != nil {
		return nil, err
	}
	if own.is == version && !slices.ContainsFunc(files, func(at found) bool { return at.path == f.file }) {
		files = append(files, own)
	}
	for _, hash := range c.ParentHashes {
		if len(files) == 0 {
			return nil, nil
		}
		had, err := f.filesIn(ctx, hash)
		if err != nil {
			return nil, err
		}
		tree, err := gitobject.TreeHash(f.store, hash)
		if err != nil {
			return nil, err
		}
		before, err := f.ownPath(tree)
		if err != nil {
			return nil, err
		}
		files = slices.DeleteFunc(files, func(at found) bool {
			return at == before || slices.ContainsFunc(had, func(b found) bool {
				return b.path == at.path && b.is == at.is && (b.is == same || b.content == at.content)
			})
		})
	}
	if slices.Contains(files, own) {
		err = f.learn(own.content)
	}
	return files, err
}

// ownPath returns the file at the path of the approval.
func (f *finder) ownPath(tree plumbing.Hash) (found, error) {
	if at, ok := f.own[tree]; ok {
		return at, nil
	}
	e, err := gitobject.EntryAt(f.store, tree, f.file)
	if err != nil {
		return found{}, err
	}
	if f.own[tree] = (found{}); e.Mode.IsFile() {
		f.own[tree] = found{f.file, e.Hash, version}
	}
	return f.own[tree], nil
}

// found is a file of a tree.
type found struct {
	path    string
	content plumbing.Hash
	is      likeness
}

// finder looks for the files of a content, or of one that git takes for the same, and for
// versions of it.
type finder struct {
	store   storer.EncodedObjectStorer
	file    string
	commit  plumbing.Hash
	size    int64  // of the content
	text    string // of the content, as normalized returns it
	lines   []string
	names   tokens
	unknown map[string]bool            // lines that no version has
	is      map[plumbing.Hash]likeness // by content
	in      map[plumbing.Hash][]found  // by tree, the files in it
	own     map[plumbing.Hash]found    // by tree, the file at the path of the approval
	older   map[plumbing.Hash]bool     // commits that cannot have the content
}

func newFinder(ctx context.Context, s storer.EncodedObjectStorer, file string, at FileOrigin, names plumbing.Hash) (*finder, error) {
	text, err := gitobject.ReadBlob(s, at.content)
	if err != nil {
		return nil, err
	}
	f := &finder{
		store: s, file: file, commit: plumbing.NewHash(at.In), size: int64(len(text)), text: normalized(text),
		unknown: map[string]bool{}, is: map[plumbing.Hash]likeness{at.content: same}, in: map[plumbing.Hash][]found{},
		own: map[plumbing.Hash]found{}, older: map[plumbing.Hash]bool{},
	}
	f.names, _ = tokensOf(f.text)
	f.lines = linesOf(f.text)
	for _, l := range f.lines {
		f.unknown[l] = true
	}
	if names.IsZero() || s.HasEncodedObject(names) != nil {
		return f, nil
	}
	if f.older, err = ancestors(ctx, s, names); err != nil {
		return nil, err
	}
	c, err := object.GetCommit(s, names)
	if err != nil {
		return f, nil //nolint:nilerr // it names no commit
	}
	return f, f.leaveOut(ctx, c.TreeHash)
}

// ancestors returns a commit and the maxWalk commits before it.
func ancestors(ctx context.Context, s storer.EncodedObjectStorer, of plumbing.Hash) (map[plumbing.Hash]bool, error) {
	all := map[plumbing.Hash]bool{of: true}
	for queue := []plumbing.Hash{of}; len(queue) > 0 && len(all) <= maxWalk; queue = queue[1:] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := object.GetCommit(s, queue[0])
		if err != nil {
			return map[plumbing.Hash]bool{of: true}, nil //nolint:nilerr // no commit, or not in the mirror: more is looked at
		}
		for _, p := range c.ParentHashes {
			if !all[p] {
				all[p] = true
				queue = append(queue, p)
			}
		}
	}
	return all, nil
}

// leaveOut does not look into the folders of a tree that cannot have the content.
func (f *finder) leaveOut(ctx context.Context, tree plumbing.Hash) error {
	if _, ok := f.in[tree]; ok {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t, err := object.GetTree(f.store, tree)
	if err != nil {
		return gittree.Missing("tree", tree, err)
	}
	f.in[tree] = nil
	for _, e := range t.Entries {
		if e.Mode == filemode.Dir {
			if err := f.leaveOut(ctx, e.Hash); err != nil {
				return err
			}
		} else if _, ok := f.is[e.Hash]; !ok {
			f.is[e.Hash] = other
		}
	}
	return nil
}

// like returns what a file is to the content. Files that are much larger than the content
// are not read. The extensions of approvals are read up to a larger size.
func (f *finder) like(name string, content plumbing.Hash) (likeness, error) {
	if is, ok := f.is[content]; ok {
		return is, nil
	}
	size, err := f.store.EncodedObjectSize(content)
	if err != nil {
		return other, gittree.Missing("file", content, err)
	}
	most := 8*f.size + maxOther
	if slices.Contains(approvalExtensions, path.Ext(name)) {
		most += maxNormalized
	}
	if size > most || size > gittree.LimitsOf(f.store).FileSize {
		return other, nil
	}
	raw, err := gitobject.ReadBlob(f.store, content)
	if err != nil {
		return other, err
	}
	text, is := normalized(raw), other
	switch {
	case f.isSame(text):
		is = same
	case f.names.in(text):
		is = version
		f.learnText(text)
	}
	f.is[content] = is
	return is, nil
}

// learn takes the lines of a file for those of a version.
func (f *finder) learn(content plumbing.Hash) error {
	size, err := f.store.EncodedObjectSize(content)
	if err != nil {
		return gittree.Missing("file", content, err)
	}
	if size > sourceLimit(f.store) {
		clear(f.unknown) // they may all be in it
		return nil
	}
	raw, err := gitobject.ReadBlob(f.store, content)
	if err == nil {
		f.learnText(normalized(raw))
	}
	return err
}

func (f *finder) learnText(text string) {
	for _, l := range linesOf(text) {
		delete(f.unknown, l)
	}
}

const (
	// maxNormalized is how many bytes more than eight times the content a file may have
	// that is compared.
	maxNormalized = 64 << 10
	// maxOther is the same for a file that by its name is no approval.
	maxOther = 4 << 10
)

var approvalExtensions = []string{".yaml", ".yml", ".json"}

// files returns the files in a tree that have the content, or are versions.
func (f *finder) files(ctx context.Context, tree plumbing.Hash) ([]found, error) {
	if files, ok := f.in[tree]; ok {
		return files, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := object.GetTree(f.store, tree)
	if err != nil {
		return nil, gittree.Missing("tree", tree, err)
	}
	var files []found
	for _, e := range t.Entries {
		switch {
		case e.Mode == filemode.Dir:
			below, err := f.files(ctx, e.Hash)
			if err != nil {
				return nil, err
			}
			for _, b := range below {
				files = append(files, found{path.Join(e.Name, b.path), b.content, b.is})
			}
		case e.Mode.IsFile() && e.Mode != filemode.Symlink:
			is, err := f.like(e.Name, e.Hash)
			if err != nil {
				return nil, err
			}
			if is != other {
				files = append(files, found{e.Name, e.Hash, is})
			}
		}
	}
	count := map[likeness]int{}
	files = slices.DeleteFunc(files, func(b found) bool {
		count[b.is]++
		return count[b.is] > maxVersions+1
	})
	f.in[tree] = files
	return files, nil
}

// placesBefore returns what the function of that name does. A source asks for the same
// ones at each sync.
func (p *Policy) placesBefore(ctx context.Context, store storer.EncodedObjectStorer, file string, at FileOrigin, names plumbing.Hash) (
	[]Place, error,
) {
	key := strings.Join([]string{at.In, at.content.String(), names.String(), file}, " ")
	if places, ok := p.Places[key]; ok {
		return places, nil
	}
	places, err := placesBefore(ctx, store, file, at, names)
	if err == nil && p.Places != nil {
		p.Places[key] = places
	}
	return places, err
}

const (
	hintSign      = "have it committed by a key that spec.approvals.signers of the GitSource lists (git commit -S)"
	hintOwnKey    = "let a person approve it"
	hintOwnFile   = "commit a change of the file, such as a comment"
	hintNoMerge   = "commit a change of the file, such as a comment, by a commit that is no merge"
	hintByItself  = "give the approval by a commit that removes and renames no other file, or by tranche approve"
	hintAttribute = "take the attribute back, and then commit a change of the file; or give the approval by tranche approve"
	hintAnother   = "remove the file by one commit, and give the approval by the next one, or by tranche approve"
	hintPlain     = "write it as tranche approve does"
	factMerged    = "it is a merge, and none of its parents has the file like this"
	factSpace     = "it changes only line ends, white space at line ends, the encoding, or $Id$ in it"
	factByMerge   = "the repository had it at %s before, by merge %s, of which no parent had it"
	factPlanted   = "the repository had it at %s before, by commit %s of another than %s"
	factManyCopy  = "the repository had its content in more than %d places before"
	factKnown     = "each line of it is in a version that the repository had before, of which others have written one, " +
		"such as %s by commit %s"
	factMany     = "each line of it is in versions that the repository had before, which are too many to look at"
	factLarge    = "it has %d bytes, and an approval has at most %d"
	factConverts = "git converts the file when it is added, by the attribute %s"
	factUnread   = "%s, which commit %s of another than %s brought, is not readable as it was before the commit, " +
		"and git may have made the approval of it"
	factReverted = "git makes the same of the file before by a revert of what replaced %s, " +
		"which commit %s of another than %s brought"
	factPlain   = "it does not have the names of what it approves in plain text"
	factRemoves = "its commit also removes more than %d files, of each of which git may have made the approval"
)

// SignerOfFile returns the signer who brought a file, or why that is none, and what to do.
// The file names a commit; zero: it names none.
func (p *Policy) SignerOfFile(ctx context.Context, store storer.EncodedObjectStorer, file string, at FileOrigin, names plumbing.Hash) (
	by signature.Signature, why, hint string, err error,
) {
	by, why, err = p.SignerOf(ctx, store, plumbing.NewHash(at.In), p.Signers)
	switch {
	case err != nil || why != "":
		return by, why, hintSign, err
	case by.Key == p.Own:
		return by, errOwnKey.Error(), hintOwnKey, nil
	}
	if why, hint, err = unreadableAs(store, at); err != nil || why != "" {
		return by, why, hint, err
	}
	places, err := p.placesBefore(ctx, store, file, at, names)
	if err != nil || slices.ContainsFunc(places, func(b Place) bool { return b.is == own && !b.in.IsZero() }) {
		return by, "", "", err
	}
	if why, hint, err = unwritten(store, file, at); err != nil || why != "" {
		return by, why, hint, err
	}
	why, hint, err = p.planted(ctx, store, by, places)
	return by, why, hint, err
}

// planted says why places from which a file may have come keep it from counting as the
// signer's, and what to do; empty: none does.
func (p *Policy) planted(ctx context.Context, store storer.EncodedObjectStorer, by signature.Signature, places []Place) (
	why, hint string, err error,
) {
	counts := map[likeness]int{}
	for _, before := range places {
		counts[before.is]++
	}
	if counts[same] > maxPlaces {
		return fmt.Sprintf(factManyCopy, maxPlaces), hintOwnFile, nil
	}
	if counts[known] > 0 && (counts[large] > 0 || counts[version] >= maxVersions) {
		return factMany, hintOwnFile, nil
	}
	for _, before := range places {
		if before.is == known || before.is == large || before.is == own || before.is == version && counts[known] == 0 {
			continue
		}
		if before.in.IsZero() {
			return fmt.Sprintf(factRemoves, maxPlaces), hintByItself, nil
		}
		merge, own, err := p.isOwn(ctx, store, by, before.in)
		if err != nil {
			return "", "", err
		}
		if !own {
			why, hint = before.fact(by, merge)
			return why, hint, nil
		}
	}
	return "", "", nil
}

// fact says why a place of another person keeps a file from counting as the signer's, and
// what to do.
func (b Place) fact(by signature.Signature, merge bool) (why, hint string) {
	in := plan.ShortCommit(b.in.String())
	switch {
	case b.is == unreadable:
		return fmt.Sprintf(factUnread, b.path, in, by), hintAnother
	case b.is == version:
		return fmt.Sprintf(factKnown, b.path, in), hintOwnFile
	case b.is == reverted:
		return fmt.Sprintf(factReverted, b.path, in, by), hintOwnFile
	case merge:
		return fmt.Sprintf(factByMerge, b.path, in), hintOwnFile
	default:
		return fmt.Sprintf(factPlanted, b.path, in, by), hintOwnFile
	}
}

// isOwn reports whether a commit is of the same signer, and no merge.
func (p *Policy) isOwn(ctx context.Context, store storer.EncodedObjectStorer, by signature.Signature, commit plumbing.Hash) (
	merge, own bool, err error,
) {
	c, err := object.GetCommit(store, commit)
	if err != nil {
		return false, false, gittree.Missing("commit", commit, err)
	}
	if c.NumParents() > 1 {
		return true, false, nil
	}
	other, why, err := p.SignerOf(ctx, store, commit, p.Signers)
	return false, err == nil && why == "" && p.Signers.Same(other, by), err
}

// unreadableAs says why the commit that brought a file cannot be asked who wrote it, and
// what to do; empty: it can.
func unreadableAs(store storer.EncodedObjectStorer, at FileOrigin) (why, hint string, err error) {
	c, err := object.GetCommit(store, plumbing.NewHash(at.In))
	if err != nil {
		return "", "", gittree.Missing("commit", plumbing.NewHash(at.In), err)
	}
	if c.NumParents() > 1 {
		return factMerged, hintNoMerge, nil
	}
	size, err := store.EncodedObjectSize(at.content)
	if err != nil {
		return "", "", gittree.Missing("file", at.content, err)
	}
	if size > maxApproval {
		return fmt.Sprintf(factLarge, size, maxApproval), hintPlain, nil
	}
	return "", "", nil
}

// unwritten says why the signer of the commit that brought a file has not written it, and
// what to do. It is empty if the commit changes the file.
func unwritten(store storer.EncodedObjectStorer, file string, at FileOrigin) (why, hint string, err error) {
	c, err := object.GetCommit(store, plumbing.NewHash(at.In))
	if err != nil {
		return "", "", gittree.Missing("commit", plumbing.NewHash(at.In), err)
	}
	raw, err := gitobject.ReadBlob(store, at.content)
	if err != nil {
		return "", "", err
	}
	text := normalized(raw)
	trees := []plumbing.Hash{c.TreeHash}
	for _, parent := range c.ParentHashes {
		if is, err := hasText(store, parent, file, text); err != nil || is {
			return factSpace, hintOwnFile, err
		}
		tree, err := gitobject.TreeHash(store, parent)
		if err != nil {
			return "", "", err
		}
		trees = append(trees, tree)
	}
	for _, tree := range trees {
		if name, err := converted(store, tree, file); err != nil || name != "" {
			return fmt.Sprintf(factConverts, name), hintAttribute, err
		}
	}
	if _, ok := tokensOf(text); !ok {
		return factPlain, hintPlain, nil
	}
	return "", "", nil
}

// sourceLimit is how many bytes a file has at most of which git can have made an approval.
func sourceLimit(s storer.EncodedObjectStorer) int64 {
	return min(maxSource, gittree.LimitsOf(s).FileSize)
}

// hasText reports whether a commit has a file that git takes for the same as a text.
func hasText(store storer.EncodedObjectStorer, commit plumbing.Hash, file, text string) (bool, error) {
	before, ok, err := gitobject.BlobAt(store, commit, file)
	if err != nil || !ok {
		return false, err
	}
	size, err := store.EncodedObjectSize(before)
	if err != nil {
		return false, gittree.Missing("file", before, err)
	}
	if size > sourceLimit(store) {
		return false, nil // see sources
	}
	raw, err := gitobject.ReadBlob(store, before)
	return err == nil && normalized(raw) == text, err
}

// sources returns the files of which git can have made the content by the commit itself,
// as versions, and those that cannot be compared. That is the file before, and those that
// the commit removes, since git can convert a file that is renamed.
func (f *finder) sources(context.Context) ([]Place, error) {
	c, err := object.GetCommit(f.store, f.commit)
	if err != nil {
		return nil, gittree.Missing("commit", f.commit, err)
	}
	if c.NumParents() != 1 {
		return nil, nil
	}
	parent := c.ParentHashes[0]
	tree, err := gitobject.TreeHash(f.store, parent)
	if err != nil {
		return nil, err
	}
	changes, err := gitobject.Diff(f.store, tree, c.TreeHash)
	if err != nil {
		return nil, err
	}
	added := map[plumbing.Hash]bool{}
	for _, change := range changes {
		added[change.To.Hash] = true
	}
	var places []Place
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		from := changes[name].From
		removed := changes[name].To.Mode == filemode.Empty && !added[from.Hash] // else it is renamed as it is
		if !from.Mode.IsFile() || from.Mode == filemode.Symlink || !removed && name != f.file {
			continue
		}
		if len(places) > maxPlaces {
			return append(places, Place{is: unreadable}), nil
		}
		is, err := f.source(name, from.Hash)
		if err != nil {
			return nil, err
		}
		b, err := LastChange(f.store, parent, name, FileOrigin{})
		if err != nil {
			return nil, err
		}
		places = append(places, Place{name, plumbing.NewHash(b.In), is})
	}
	return places, nil
}

// source returns what a file is of which git can have made the content.
func (f *finder) source(name string, content plumbing.Hash) (likeness, error) {
	size, err := f.store.EncodedObjectSize(content)
	if err != nil {
		return other, gittree.Missing("file", content, err)
	}
	if size > sourceLimit(f.store) {
		return unreadable, nil
	}
	raw, err := gitobject.ReadBlob(f.store, content)
	if err != nil {
		return other, err
	}
	text := normalized(raw)
	f.learnText(text)
	_, isApproval := approvalIn(text)
	switch {
	case f.isSame(text):
		return same, nil
	case name == f.file && !isApproval || !isText(text):
		return unreadable, nil
	default:
		return version, nil
	}
}
