package gitobject

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// Change is what a commit made of a file.
type Change struct {
	// From and To are the file before and after; one without a mode is not there.
	From, To object.TreeEntry
}

// Diff returns the files that differ between two trees, by their path.
func Diff(s storer.EncodedObjectStorer, from, to plumbing.Hash) (map[string]Change, error) {
	found := map[string]Change{}
	err := compare(s, "", from, to, found)
	return found, err
}

func compare(s storer.EncodedObjectStorer, dir string, from, to plumbing.Hash, found map[string]Change) error {
	if from == to {
		return nil
	}
	sides := map[string]*Change{}
	for i, h := range []plumbing.Hash{from, to} {
		if h.IsZero() {
			continue
		}
		t, err := object.GetTree(s, h)
		if err != nil {
			return gittree.Missing("tree", h, err)
		}
		for _, e := range t.Entries {
			c := sides[e.Name]
			if c == nil {
				c = &Change{}
				sides[e.Name] = c
			}
			if i == 0 {
				c.From = e
			} else {
				c.To = e
			}
		}
	}
	for name, c := range sides {
		at := path.Join(dir, name)
		below := [2]plumbing.Hash{}
		for i, e := range []*object.TreeEntry{&c.From, &c.To} {
			if e.Mode == filemode.Dir {
				below[i], *e = e.Hash, object.TreeEntry{}
			}
		}
		if err := compare(s, at, below[0], below[1], found); err != nil {
			return err
		}
		if c.From != c.To {
			found[at] = *c
		}
	}
	return nil
}

// Follow returns the changes that led to a tree "of" with the paths that the files have in
// another tree. A file moved if it is gone from there and one file alone, that "of" does
// not have, has its content and mode. Other changes keep their paths.
func Follow(s storer.EncodedObjectStorer, of, tree plumbing.Hash, changes map[string]Change) (map[string]Change, error) {
	var gone []string
	for p, c := range changes {
		now, err := EntryAt(s, tree, p)
		if err != nil {
			return nil, err
		}
		if c.To.Mode != filemode.Empty && now.Mode == filemode.Empty {
			gone = append(gone, p)
		}
	}
	if len(gone) == 0 {
		return changes, nil
	}
	since, err := Diff(s, of, tree)
	if err != nil {
		return nil, err
	}
	followed := maps.Clone(changes)
	for _, p := range gone {
		var to []string
		for at, c := range since {
			if _, taken := changes[at]; !taken && c.From.Mode == filemode.Empty && SameEntry(c.To, changes[p].To) {
				to = append(to, at)
			}
		}
		if len(to) != 1 || claims(gone, changes, p) {
			continue
		}
		followed[to[0]] = changes[p]
		delete(followed, p)
	}
	return followed, nil
}

// claims reports whether another file that is gone had the content of the one at p.
func claims(gone []string, changes map[string]Change, p string) bool {
	return slices.ContainsFunc(gone, func(other string) bool { return other != p && SameEntry(changes[other].To, changes[p].To) })
}

// Undo takes changes back in a tree. Each file is again what it was before, and later
// changes in other lines of it stay. It leaves alone, and returns, the files for which
// that is not possible.
func Undo(s *Store, tree plumbing.Hash, changes map[string]Change) (plumbing.Hash, []string, error) {
	put := Files{}
	var conflicts []string
	for p, c := range changes {
		now, err := EntryAt(s, tree, p)
		if err != nil {
			return plumbing.ZeroHash, nil, err
		}
		switch {
		case SameEntry(now, c.From): // an earlier commit has reverted it already
		case SameEntry(now, c.To):
			put[p] = c.From
		default:
			e, ok, err := mergeEntries(s, c.To, now, c.From)
			if err != nil {
				return plumbing.ZeroHash, nil, err
			}
			if !ok {
				conflicts = append(conflicts, p)
				continue
			}
			put[p] = e
		}
	}
	slices.Sort(conflicts)
	next, err := s.WriteTree(tree, put)
	if errors.Is(err, ErrNotAFolder) {
		return tree, append(conflicts, err.Error()), nil
	}
	return next, conflicts, err
}

// UndoWhatStands takes back in a tree what later changes have left of changes: the lines
// that are still as they were made. A file that is no text is taken back as a whole.
func UndoWhatStands(s *Store, tree plumbing.Hash, changes map[string]Change) (plumbing.Hash, error) {
	put := Files{}
	for p, c := range changes {
		now, err := EntryAt(s, tree, p)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		switch {
		case SameEntry(now, c.From):
		case SameEntry(now, c.To):
			put[p] = c.From
		case isRegular(now) && isRegular(c.To) && (isRegular(c.From) || c.From.Mode == filemode.Empty):
			text, err := alike(s, now, c.To, c.From)
			if err != nil {
				return plumbing.ZeroHash, err
			}
			merged, ok := MergeWhatFits(text[1], text[0], text[2])
			if !ok {
				continue
			}
			h, err := s.WriteBlob(merged)
			if err != nil {
				return plumbing.ZeroHash, err
			}
			put[p] = object.TreeEntry{Mode: now.Mode, Hash: h}
		}
	}
	next, err := s.WriteTree(tree, put)
	if errors.Is(err, ErrNotAFolder) {
		return tree, nil
	}
	return next, err
}

// MaxParts is how many parts changes have at most for Parts and StandingLines. Each is a
// file of its own.
const MaxParts = 500

// ErrManyParts is returned for changes of more than MaxParts.
var ErrManyParts = fmt.Errorf("more than %d places of files were changed", MaxParts)

// Parts returns the changes apart: one for each place in a file where lines were changed.
func Parts(s *Store, changes map[string]Change) ([]map[string]Change, error) {
	var list []map[string]Change
	for _, p := range slices.Sorted(maps.Keys(changes)) {
		c := changes[p]
		if !isRegular(c.From) || !isRegular(c.To) || c.From.Mode != c.To.Mode {
			list = append(list, map[string]Change{p: c})
			continue
		}
		text, err := textOf(s, c.From, c.To)
		if err != nil {
			return nil, err
		}
		if isBinary(text[0]) || isBinary(text[1]) {
			list = append(list, map[string]Change{p: c})
			continue
		}
		places := edits(text[1], text[0])
		if len(list)+len(places) > MaxParts {
			return nil, ErrManyParts
		}
		for _, e := range places {
			without, _ := mergeEdits(text[1], []edit{e}, nil)
			h, err := s.WriteBlob(without)
			if err != nil {
				return nil, err
			}
			list = append(list, map[string]Change{p: {From: object.TreeEntry{Name: c.From.Name, Mode: c.From.Mode, Hash: h}, To: c.To}})
		}
	}
	return list, nil
}

// SplitLines returns a change for each line that changes brought and that is still in a
// tree, if UndoWhatStands leaves it there. It does where later changes of lines beside it
// are in conflict.
func SplitLines(s *Store, tree plumbing.Hash, changes map[string]Change) ([]map[string]Change, error) {
	var list []map[string]Change
	for _, p := range slices.Sorted(maps.Keys(changes)) {
		c := changes[p]
		now, err := EntryAt(s, tree, p)
		if err != nil {
			return nil, err
		}
		if !isRegular(now) || !isRegular(c.To) || SameEntry(now, c.To) || c.From.Mode != filemode.Empty && !isRegular(c.From) {
			continue
		}
		text, err := alike(s, now, c.To, c.From)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(text, isBinary) {
			continue
		}
		lines := standing(edits(text[1], text[0]), edits(text[1], text[2]))
		if len(list)+len(lines) > MaxParts {
			return nil, ErrManyParts
		}
		for _, at := range lines {
			without, _ := mergeEdits(text[1], []edit{{start: at, end: at + 1}}, nil)
			h, err := s.WriteBlob(without)
			if err != nil {
				return nil, err
			}
			list = append(list, map[string]Change{p: {From: object.TreeEntry{Name: c.To.Name, Mode: c.To.Mode, Hash: h}, To: c.To}})
		}
	}
	return list, nil
}

// standing returns the lines that some edits leave of those which others, in conflict with
// them, take away.
func standing(ours, theirs []edit) []int {
	var lines []int
	next := 0
	for i, isIn := range conflicts(theirs, ours) {
		if !isIn {
			continue
		}
		for at := theirs[i].start; at < theirs[i].end; at++ {
			for next < len(ours) && ours[next].end <= at {
				next++
			}
			if next == len(ours) || at < ours[next].start {
				lines = append(lines, at)
			}
		}
	}
	return lines
}

func isRegular(e object.TreeEntry) bool {
	return e.Mode == filemode.Regular || e.Mode == filemode.Executable
}

// textOf returns the contents of files. A file that is not there has none.
func textOf(s *Store, entries ...object.TreeEntry) ([][]byte, error) {
	list := make([][]byte, len(entries))
	for i, e := range entries {
		if e.Mode == filemode.Empty {
			continue
		}
		var err error
		if list[i], err = ReadBlob(s, e.Hash); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// SameEntry reports whether two entries have the same content and mode.
func SameEntry(a, b object.TreeEntry) bool { return a.Mode == b.Mode && a.Hash == b.Hash }

// mergeEntries is a three-way merge of two files that are there on all sides.
func mergeEntries(s *Store, base, ours, theirs object.TreeEntry) (object.TreeEntry, bool, error) {
	var text [3][]byte
	for i, e := range []object.TreeEntry{base, ours, theirs} {
		if e.Mode != filemode.Regular && e.Mode != filemode.Executable {
			return object.TreeEntry{}, false, nil
		}
		var err error
		if text[i], err = ReadBlob(s, e.Hash); err != nil {
			return object.TreeEntry{}, false, err
		}
	}
	merged, ok := Merge3(text[0], text[1], text[2])
	if !ok {
		return object.TreeEntry{}, false, nil
	}
	h, err := s.WriteBlob(merged)
	e := object.TreeEntry{Mode: ours.Mode, Hash: h}
	if ours.Mode == base.Mode {
		e.Mode = theirs.Mode
	}
	return e, true, err
}

// ReadBlob returns the content of a file, which must not be larger than the limit.
func ReadBlob(s storer.EncodedObjectStorer, h plumbing.Hash) ([]byte, error) {
	b, err := object.GetBlob(s, h)
	if err != nil {
		return nil, gittree.Missing("file", h, err)
	}
	if most := gittree.LimitsOf(s).FileSize; b.Size > most {
		return nil, fmt.Errorf("object %s: %d bytes; files of more than %s are not read (--max-file-size)", h, b.Size, gittree.FormatSize(most))
	}
	r, err := b.Reader()
	if err != nil {
		return nil, gittree.Missing("file", h, err)
	}
	content, err := io.ReadAll(r)
	return content, errors.Join(err, r.Close())
}
