package authors

import (
	"context"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
)

// An entry can begin and end anywhere in a line: in a flow list, or a patch in a string. So
// the entries of commits are looked for in trees where each manifest is in blocks, with a
// line for each entry. A file stays as it is where that would render something else.

// plainSearch is a search in such trees, with the changes that commits make there.
type plainSearch struct {
	d    *dormancy
	list []suspect
}

// inBlocks returns a search in trees with manifests in blocks. rest are commits with changes
// of files that stay as they are.
func (d *dormancy) inBlocks(ctx context.Context, list []suspect) (plain plainSearch, rest []suspect, err error) {
	if !d.base.IsZero() { // as far as the search has come
		if _, _, err := d.releasedWithout(ctx); err != nil {
			return plain, nil, err
		}
	}
	p := *d
	p.gone = slices.Clip(d.gone)
	paths := map[string]bool{}
	for _, s := range list {
		for path := range s.changes {
			paths[path] = true
		}
	}
	which := slices.Sorted(maps.Keys(paths))
	same, err := p.rewrite(ctx, which...)
	if err != nil {
		return plain, nil, err
	}
	p.most, p.trials = maxTrials, 0
	for _, path := range which {
		if same {
			break
		}
		if is, err := p.rewrite(ctx, path); err != nil || !is {
			delete(paths, path)
		}
	}
	p.most, p.trials = 0, 0
	plain.d = &p
	for _, s := range list {
		in, out := suspect{commit: s.commit, proven: s.proven, at: s.at, changes: map[string]gitobject.Change{}}, s
		out.changes = map[string]gitobject.Change{}
		for path, c := range s.changes {
			b, ok, err := d.changeInBlocks(c)
			if err != nil {
				return plain, nil, err
			}
			if ok && paths[path] {
				in.changes[path] = b
			} else {
				out.changes[path] = c
			}
		}
		if len(in.changes) > 0 {
			plain.list = append(plain.list, in)
		}
		if len(out.changes) > 0 {
			rest = append(rest, out)
		}
	}
	return plain, rest, nil
}

// rewrite has files in blocks in the trees of a search, if they render the same then.
func (d *dormancy) rewrite(ctx context.Context, paths ...string) (bool, error) {
	next := [3]plumbing.Hash{d.tree, d.released, d.base}
	for i, tree := range next {
		if tree.IsZero() {
			continue
		}
		put := gitobject.Files{}
		for _, path := range paths {
			if err := d.origins.spend(ctx, effortOfUndo); err != nil {
				return false, err
			}
			e, err := gitobject.EntryAt(d.store, tree, path)
			if err != nil {
				return false, err
			}
			if b, ok, err := d.entryInBlocks(e); err != nil {
				return false, err
			} else if ok && b.Mode != filemode.Empty {
				put[path] = b
			}
		}
		var err error
		if next[i], err = d.store.WriteTree(tree, put); err != nil {
			return false, err
		}
		was, err := d.fieldsOf(ctx, tree)
		if err != nil {
			return false, err
		}
		now, err := d.fieldsOf(ctx, next[i])
		if err != nil || (was == nil) != (now == nil) || len(was.differ(now)) > 0 {
			return false, err
		}
	}
	d.tree, d.released, d.base = next[0], next[1], next[2]
	return true, nil
}

// changeInBlocks returns a change of a file as one of the file in blocks; false: it is none.
func (d *dormancy) changeInBlocks(c gitobject.Change) (gitobject.Change, bool, error) {
	from, ok, err := d.entryInBlocks(c.From)
	if err != nil || !ok {
		return c, false, err
	}
	to, ok, err := d.entryInBlocks(c.To)
	return gitobject.Change{From: from, To: to}, ok, err
}

// entryInBlocks returns a file in blocks. One that is not there has none.
func (d *dormancy) entryInBlocks(e object.TreeEntry) (object.TreeEntry, bool, error) {
	if e.Mode == filemode.Empty {
		return e, true, nil
	}
	if !isText(e) {
		return e, false, nil
	}
	text, err := gitobject.ReadBlob(d.store, e.Hash)
	if err != nil {
		return e, false, err
	}
	blocks, ok := gitobject.Blocks(text)
	if !ok {
		return e, false, nil
	}
	e.Hash, err = d.store.WriteBlob(blocks)
	return e, err == nil, err
}
