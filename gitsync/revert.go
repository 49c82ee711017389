package gitsync

import (
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/plan"
)

// revertedCommit is one commit whose change is taken back.
type revertedCommit struct {
	hash, parent plumbing.Hash
	tree         plumbing.Hash // of hash
	subject      string
	merge        bool
	place        int // on the way back from the tip
	// only these files of it are taken back; nil: all.
	only    []string
	changes map[string]gitobject.Change
	// before and after are what parent and commit render; nil where they do not.
	before, after *plan.Set
}

// subjectOf is the first line of a commit message, without control characters.
func subjectOf(message string) string {
	subject, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	return gitobject.Printable(strings.TrimSpace(subject))
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
