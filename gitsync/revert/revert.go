package revert

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
)

// Commit is one commit whose change is taken back.
type Commit struct {
	Hash, Parent plumbing.Hash
	tree         plumbing.Hash // of hash
	Subject      string
	Merge        bool
	Place        int // on the way back from the tip
	// Only these files of it are taken back; nil: all.
	Only    []string
	Changes map[string]gitobject.Change
	// before and after are what parent and commit render; nil where they do not.
	before, after *plan.Set
}

// Read finds what a commit changed of that which this source renders, and
// renders it and its parent.
func (c *Commit) Read(s storer.EncodedObjectStorer, r *desired.Reader) error {
	var trees [2]plumbing.Hash
	reads := gittree.Reads{}
	for i, h := range []plumbing.Hash{c.Parent, c.Hash} {
		t, err := gittree.Open(s, h)
		if err != nil {
			return err
		}
		set, err := r.Render(t)
		if t.Err() != nil {
			return t.Err()
		}
		if desired.IsPassing(err) {
			return err
		}
		if err != nil {
			set = nil // a later commit put it right
		}
		trees[i] = t.Hash()
		maps.Copy(reads, t.Reads())
		if i == 0 {
			c.before = set
		} else {
			c.after = set
		}
	}
	var err error
	c.tree = trees[1]
	if c.Changes, err = gitobject.Diff(s, trees[0], trees[1]); err != nil {
		return err
	}
	maps.DeleteFunc(c.Changes, func(p string, _ gitobject.Change) bool { return !reads.Includes(p) })
	return nil
}

// Undo takes the change of a commit back in a tree, except for some files. A file that moved
// since is changed where it is now.
func (c *Commit) Undo(s *gitobject.Store, tree plumbing.Hash, without map[string]bool) (plumbing.Hash, []string, error) {
	changes, err := gitobject.Follow(s, c.tree, tree, c.ChangesBut(without))
	if err != nil {
		return plumbing.ZeroHash, nil, err
	}
	return gitobject.Undo(s, tree, changes)
}

// ChangesBut are the changes of the commit without those of some files.
func (c *Commit) ChangesBut(without map[string]bool) map[string]gitobject.Change {
	changes := maps.Clone(c.Changes)
	maps.DeleteFunc(changes, func(p string, _ gitobject.Change) bool { return without[p] })
	return changes
}

// SubjectOf is the first line of a commit message, without control characters.
func SubjectOf(message string) string {
	subject, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	return gitobject.Printable(strings.TrimSpace(subject))
}

// Keeps reports where a result differs from the tip although none of the
// commits that are taken back had touched it. It looks into maps, field by
// field; a list is one field. Empty: nowhere.
func Keeps(reverted []Commit, tip, result *plan.Set) string {
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

// addKeys adds the keys of a map; it returns false for a value that is something else.
// A missing value is like a map without keys.
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
