package signers

import (
	"context"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

const (
	// maxReverts bounds the contents that reverts of several commits make.
	maxReverts = 64
	// maxReplaced is how many commits are looked at for what they replaced.
	maxReplaced = 2_000
	// maxRenames bounds the files of one commit of which each may be renamed to another.
	maxRenames = 8
)

// replacement is a file that a commit put in the place of another one.
type replacement struct {
	path    string        // of the other one
	parent  plumbing.Hash // has it
	was, is []byte
}

// reverts looks for commits whose reverts make the approval of the file before. It returns
// where the history has the contents that these bring back. Git does so at any path: it
// takes a similar file for a renamed one.
//
// A line that names the release or the plan is in no file that is not a version. If no
// version has the line, no revert made it.
func (f *finder) reverts(ctx context.Context) ([]Place, error) {
	for l := range f.unknown {
		if f.names.in(l) {
			return nil, nil
		}
	}
	from, err := f.revertible()
	if err != nil || len(from) == 0 {
		return nil, err
	}
	all, err := f.replacements(ctx, from)
	if err != nil || !f.hasAllLines(from, all) {
		return nil, err
	}
	type state struct {
		text   []byte
		places []replacement
	}
	var states []state
	seen := map[string]bool{}
	for _, text := range from {
		states = append(states, state{text: text})
		seen[normalized(text)] = true
	}
	for ; len(states) > 0; states = states[1:] {
		at := states[0]
		for _, r := range all {
			text, ok := gitobject.Merge3(r.is, at.text, r.was)
			key := normalized(text)
			if !ok || seen[key] {
				continue
			}
			next := state{text, append(slices.Clone(at.places), r)}
			if key == f.text {
				return f.placesOf(next.places)
			}
			if seen[key] = true; len(seen) > maxReverts {
				return []Place{{is: known}, {is: large}}, nil
			}
			states = append(states, next)
		}
	}
	return nil, nil
}

// hasAllLines reports whether each line of the approval is in a content of before, or in one
// that was replaced. A revert makes no other line.
func (f *finder) hasAllLines(from [][]byte, all []replacement) bool {
	texts := slices.Clone(from)
	for _, r := range all {
		texts = append(texts, r.was)
	}
	lines := map[string]bool{}
	for _, text := range texts {
		for _, l := range linesOf(normalized(text)) {
			lines[l] = true
		}
	}
	return !slices.ContainsFunc(f.lines, func(l string) bool { return !lines[l] })
}

// revertible returns the contents of which a revert can have made the approval. These are
// of the file before, and of the files that the commit removes.
func (f *finder) revertible() ([][]byte, error) {
	c, err := object.GetCommit(f.store, f.commit)
	if err != nil {
		return nil, gittree.Missing("commit", f.commit, err)
	}
	if c.NumParents() != 1 {
		return nil, nil
	}
	changes, err := f.changes(c, c.ParentHashes[0])
	if err != nil {
		return nil, err
	}
	var list [][]byte
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		if e := changes[name]; e.From.Mode.IsFile() && (name == f.file || !e.To.Mode.IsFile()) && len(list) <= maxPlaces {
			text, ok, err := f.read(e.From.Hash)
			if err != nil {
				return nil, err
			}
			if ok {
				list = append(list, text)
			}
		}
	}
	return list, nil
}

func (f *finder) changes(c *object.Commit, parent plumbing.Hash) (map[string]gitobject.Change, error) {
	tree, err := gitobject.TreeHash(f.store, parent)
	if err != nil {
		return nil, err
	}
	return gitobject.Diff(f.store, tree, c.TreeHash)
}

// read returns a content that git may take for a version of the approval. It has at least a
// quarter of its size, and at most four times that.
func (f *finder) read(content plumbing.Hash) ([]byte, bool, error) {
	size, err := f.store.EncodedObjectSize(content)
	if err != nil {
		return nil, false, gittree.Missing("file", content, err)
	}
	if size > 4*f.size || 4*size < f.size {
		return nil, false, nil
	}
	text, err := gitobject.ReadBlob(f.store, content)
	return text, err == nil, err
}

// replacements returns what the last maxReplaced commits replaced, in the files that have a
// line of what may be reverted.
func (f *finder) replacements(ctx context.Context, of [][]byte) ([]replacement, error) {
	lines := map[string]bool{}
	for _, text := range of {
		for _, l := range linesOf(normalized(text)) {
			lines[l] = true
		}
	}
	var list []replacement
	seen := map[plumbing.Hash]bool{f.commit: true}
	for queue := []plumbing.Hash{f.commit}; len(queue) > 0; queue = queue[1:] {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := object.GetCommit(f.store, queue[0])
		if err != nil {
			return nil, gittree.Missing("commit", queue[0], err)
		}
		for _, p := range c.ParentHashes {
			if c.Hash != f.commit {
				found, err := f.replaced(c, p, lines)
				if err != nil {
					return nil, err
				}
				list = append(list, found...)
			}
			if !seen[p] && len(seen) <= maxReplaced {
				seen[p] = true
				queue = append(queue, p)
			}
		}
	}
	return list, nil
}

// replaced returns what one commit replaced of what a parent has.
func (f *finder) replaced(c *object.Commit, parent plumbing.Hash, lines map[string]bool) ([]replacement, error) {
	changes, err := f.changes(c, parent)
	if err != nil {
		return nil, err
	}
	var before, after []string
	for name, change := range changes {
		if change.From.Mode.IsFile() {
			before = append(before, name)
		}
		if change.To.Mode.IsFile() {
			after = append(after, name)
		}
	}
	renames := len(before) <= maxRenames && len(after) <= maxRenames
	var list []replacement
	for _, to := range after {
		is, ok, err := f.read(changes[to].To.Hash)
		if err != nil {
			return nil, err
		}
		if !ok || !slices.ContainsFunc(linesOf(normalized(is)), func(l string) bool { return lines[l] }) {
			continue
		}
		for _, name := range before {
			if name != to && !renames {
				continue
			}
			was, ok, err := f.read(changes[name].From.Hash)
			if err != nil {
				return nil, err
			}
			if ok {
				list = append(list, replacement{name, parent, was, is})
			}
		}
	}
	return list, nil
}

// placesOf returns where commits brought what was replaced.
func (f *finder) placesOf(list []replacement) ([]Place, error) {
	var places []Place
	for _, r := range list {
		b, err := LastChange(f.store, r.parent, r.path, FileOrigin{})
		if err != nil {
			return nil, err
		}
		places = append(places, Place{r.path, plumbing.NewHash(b.In), reverted})
	}
	return places, nil
}
