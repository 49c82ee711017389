package gitsync

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
)

// fileChange is what a commit made of a file; a side without a mode is not there.
type fileChange struct{ from, to object.TreeEntry }

// changed returns the files that differ between two trees, by their path.
func changed(s storer.EncodedObjectStorer, from, to plumbing.Hash) (map[string]fileChange, error) {
	found := map[string]fileChange{}
	err := compare(s, "", from, to, found)
	return found, err
}

func compare(s storer.EncodedObjectStorer, dir string, from, to plumbing.Hash, found map[string]fileChange) error {
	if from == to {
		return nil
	}
	sides := map[string]*fileChange{}
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
				c = &fileChange{}
				sides[e.Name] = c
			}
			if i == 0 {
				c.from = e
			} else {
				c.to = e
			}
		}
	}
	for name, c := range sides {
		at := path.Join(dir, name)
		below := [2]plumbing.Hash{}
		for i, e := range []*object.TreeEntry{&c.from, &c.to} {
			if e.Mode == filemode.Dir {
				below[i], *e = e.Hash, object.TreeEntry{}
			}
		}
		if err := compare(s, at, below[0], below[1], found); err != nil {
			return err
		}
		if c.from != c.to {
			found[at] = *c
		}
	}
	return nil
}

// undo takes changes back in a tree: each file is again what it was before, and
// what was changed in other lines of it since stays. It leaves alone, and
// returns, the files of which that cannot be had.
func undo(s *scratch, tree plumbing.Hash, changes map[string]fileChange) (plumbing.Hash, []string, error) {
	put := files{}
	var conflicts []string
	for p, c := range changes {
		now, err := entryAt(s, tree, p)
		if err != nil {
			return plumbing.ZeroHash, nil, err
		}
		switch {
		case same(now, c.from): // somebody took it back already
		case same(now, c.to):
			put[p] = c.from
		default:
			e, ok, err := mergeEntries(s, c.to, now, c.from)
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
	next, err := s.writeTree(tree, put)
	if errors.Is(err, errNotAFolder) {
		return tree, append(conflicts, err.Error()), nil
	}
	return next, conflicts, err
}

func same(a, b object.TreeEntry) bool { return a.Mode == b.Mode && a.Hash == b.Hash }

// mergeEntries is a three-way merge of two files that are there on all sides.
func mergeEntries(s *scratch, base, ours, theirs object.TreeEntry) (object.TreeEntry, bool, error) {
	var text [3][]byte
	for i, e := range []object.TreeEntry{base, ours, theirs} {
		if e.Mode != filemode.Regular && e.Mode != filemode.Executable {
			return object.TreeEntry{}, false, nil
		}
		var err error
		if text[i], err = readBlob(s, e.Hash); err != nil {
			return object.TreeEntry{}, false, err
		}
	}
	merged, ok := merge3(text[0], text[1], text[2])
	if !ok {
		return object.TreeEntry{}, false, nil
	}
	h, err := s.writeBlob(merged)
	e := object.TreeEntry{Mode: ours.Mode, Hash: h}
	if ours.Mode == base.Mode {
		e.Mode = theirs.Mode
	}
	return e, true, err
}

func readBlob(s storer.EncodedObjectStorer, h plumbing.Hash) ([]byte, error) {
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

// revertedCommit is one commit whose change is taken back.
type revertedCommit struct {
	hash, parent plumbing.Hash
	subject      string
	merge        bool
	place        int // on the way back from the tip
	// only these files of it are taken back; nil: all.
	only    []string
	changes map[string]fileChange
	// before and after are what parent and commit render; nil where they do not.
	before, after *plan.Set
}

// subjectOf is the first line of a commit message.
func subjectOf(message string) string {
	subject, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	return strings.TrimSpace(subject)
}

// keeps reports where a result differs from the tip although none of the
// commits that are taken back had touched it. It looks into maps, field by
// field; a list is one field. Empty: nowhere.
func keeps(reverted []revertedCommit, tip, result *plan.Set) string {
	var pairs [][2]any
	for _, c := range reverted {
		pairs = append(pairs, [2]any{treeOf(c.before), treeOf(c.after)})
	}
	return kept(nil, pairs, treeOf(tip), treeOf(result))
}

func kept(at []string, pairs [][2]any, tip, result any) string {
	if equality.Semantic.DeepEqual(tip, result) {
		return ""
	}
	touched := false
	keys := map[string]bool{}
	deeper := addKeys(keys, tip) && addKeys(keys, result)
	for _, p := range pairs {
		touched = touched || !equality.Semantic.DeepEqual(p[0], p[1])
		deeper = deeper && addKeys(keys, p[0]) && addKeys(keys, p[1])
	}
	if !touched && len(at) > 0 {
		return strings.TrimSuffix(at[0]+": "+strings.Join(at[1:], "."), ": ")
	}
	if !deeper {
		return ""
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		below := make([][2]any, len(pairs))
		for i, p := range pairs {
			below[i] = [2]any{member(p[0], k), member(p[1], k)}
		}
		if where := kept(append(slices.Clone(at), k), below, member(tip, k), member(result, k)); where != "" {
			return where
		}
	}
	return ""
}

func member(v any, k string) any {
	if m, ok := v.(map[string]any); ok {
		return m[k]
	}
	return nil
}

// addKeys adds the keys of a map; it returns false for a value that is
// something else. What is not there is like a map without keys.
func addKeys(keys map[string]bool, v any) bool {
	if v == nil {
		return true
	}
	m, ok := v.(map[string]any)
	for k := range m {
		keys[k] = true
	}
	return ok
}

// treeOf has all of a set's objects by what they are called.
func treeOf(s *plan.Set) map[string]any {
	tree := map[string]any{}
	if s == nil {
		return tree
	}
	for _, o := range s.Objects {
		tree[strings.TrimPrefix(o.GroupVersionKind().Group+"/", "/")+o.String()] = o.Object
	}
	for i := range s.Releases {
		// It was decoded from just that, so it can be encoded again.
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.Releases[i].Plan)
		if err == nil {
			tree[s.Releases[i].String()] = m
		}
	}
	return tree
}
