// Package commitrange has the commits from one commit of a branch to another.
//
// A [Range] says whether all of them leave a source as it is. So a short sync and a source
// that waits for another one need not render them.
package commitrange

import (
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// MaxShort is how many commits a short sync goes through, and how many it checks of
// each range that a merge has brought.
const MaxShort = 100

// Range is the way from a commit back to an older one, along first parents. It does not
// change once it is made, except that its differences are found when they are asked for.
type Range struct {
	// trees of the commits, the newest first, without that of the older commit. Trees that
	// follow each other differ.
	trees []plumbing.Hash
	// sides are the commits that only merges have brought.
	sides []merged
	// tooMany: there are more of these than a short sync goes through.
	tooMany bool
	// from is the tree of the older commit.
	from plumbing.Hash

	once sync.Once
	// changes of the trees, from the older commit on; nil: there are too many, or they cannot
	// be read.
	changes *gittree.Changes
}

// merged is a commit that a merge has brought.
type merged struct {
	tree    plumbing.Hash
	parents []plumbing.Hash // their trees
}

// Leaves reports whether all commits of a range give the same answers to what was read of
// the older commit. The differences of the trees answer for most sources. Only what they may
// touch is read again.
func (w *Range) Leaves(s storer.EncodedObjectStorer, folders *gittree.Folders, reads ...gittree.Reads) (bool, error) {
	w.once.Do(func() { w.changes = w.compare(s, folders) })
	if w.changes != nil && !slices.ContainsFunc(reads, w.changes.MayTouch) {
		return true, nil
	}
	for _, tree := range w.trees {
		t, err := gittree.OpenShared(s, tree, folders)
		if err != nil {
			return false, err
		}
		for _, r := range reads {
			if same, err := r.Unchanged(t); err != nil || !same {
				return false, err
			}
		}
	}
	return true, nil
}

// compare returns the differences of the trees, of each to the one before; nil: there are too
// many, or they cannot be read.
func (w *Range) compare(s storer.EncodedObjectStorer, folders *gittree.Folders) *gittree.Changes {
	if w.from.IsZero() || len(w.trees) > MaxShort {
		return nil
	}
	changes := &gittree.Changes{}
	for i, to := range w.trees {
		from := w.from
		if i+1 < len(w.trees) {
			from = w.trees[i+1]
		}
		if fits, err := changes.Add(s, from, to, folders); err != nil || !fits {
			return nil
		}
	}
	return changes
}

// BringsApprovals reports whether a merge may have brought a commit with an approval that
// none of its parents has. The merge itself may have left that approval out. A release
// that begins later must find such a commit in the history of what was applied before. So
// the status has to say that this one was applied.
func (w *Range) BringsApprovals(s storer.EncodedObjectStorer, folder string) (bool, error) {
	folder = strings.Trim(path.Clean("/"+folder), "/")
	for _, c := range w.sides {
		now, err := folderIn(s, c.tree, folder)
		if err != nil {
			return false, err
		}
		same := slices.Contains(c.parents, c.tree) || now == folderAt{}
		for _, parent := range c.parents {
			if same || now.linked {
				break // what is behind a link may differ although the folder does not
			}
			before, err := folderIn(s, parent, folder)
			if err != nil {
				return false, err
			}
			same = before == now
		}
		if !same {
			return true, nil
		}
	}
	return w.tooMany, nil
}

// folderAt is what a tree has for a folder. The zero value is nothing.
type folderAt struct {
	hash plumbing.Hash
	// linked: a link leads to it, or from it to somewhere else.
	linked bool
}

func folderIn(s storer.EncodedObjectStorer, tree plumbing.Hash, folder string) (folderAt, error) {
	at := folderAt{hash: tree}
	if folder == "" {
		return at, nil // what links lead to is in it, too
	}
	for name := range strings.SplitSeq(folder, "/") {
		e, err := gitobject.EntryAt(s, at.hash, name)
		switch {
		case err != nil:
			return folderAt{}, err
		case e.Mode == filemode.Symlink:
			return folderAt{linked: true}, nil
		case e.Mode != filemode.Dir:
			return folderAt{}, nil // nothing is read there
		}
		at.hash = e.Hash
	}
	var err error
	at.linked, err = hasLinks(s, at.hash, map[plumbing.Hash]bool{})
	return at, err
}

// hasLinks reports whether there are symbolic links in a tree, or more folders than are
// looked at.
func hasLinks(s storer.EncodedObjectStorer, tree plumbing.Hash, seen map[plumbing.Hash]bool) (bool, error) {
	if seen[tree] {
		return false, nil
	}
	if seen[tree] = true; len(seen) > maxPast {
		return true, nil
	}
	t, err := object.GetTree(s, tree)
	if err != nil {
		return false, gittree.Missing("tree", tree, err)
	}
	for _, e := range t.Entries {
		if e.Mode == filemode.Symlink {
			return true, nil
		}
		if e.Mode != filemode.Dir {
			continue
		}
		if linked, err := hasLinks(s, e.Hash, seen); err != nil || linked {
			return linked, err
		}
	}
	return false, nil
}

// Cache keeps the ranges that were asked for last. A thousand sources of one repository ask
// for the same few after a push.
type Cache struct {
	Folders gittree.Folders // of the trees on the way

	mu   sync.Mutex
	list []knownRange // the last one was asked for first
}

// knownRange is the answer to a question. It is nil where the way is longer than most, or
// leads elsewhere.
type knownRange struct {
	from, to plumbing.Hash
	most     int
	way      *Range
}

// keptRanges bounds them.
const keptRanges = 16

// Between returns the way from one commit to another, newer one. It returns nil if first
// parents do not lead from the newer one to the other within that many commits.
func (st *Cache) Between(s storer.EncodedObjectStorer, from, to plumbing.Hash, most int) (*Range, error) {
	is := func(k knownRange) bool { return k.from == from && k.to == to && k.most == most }
	st.mu.Lock()
	i := slices.IndexFunc(st.list, is)
	if i >= 0 {
		known := st.list[i]
		st.mu.Unlock()
		return known.way, nil
	}
	st.mu.Unlock()
	way, err := walk(s, from, to, most)
	if err != nil {
		return nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !slices.ContainsFunc(st.list, is) {
		st.list = slices.Insert(st.list, 0, knownRange{from, to, most, way})
		st.list = st.list[:min(len(st.list), keptRanges)]
	}
	return way, nil
}

// walk walks from the newer commit to the older one.
func walk(s storer.EncodedObjectStorer, from, to plumbing.Hash, most int) (*Range, error) {
	w := &Range{}
	met := map[plumbing.Hash]bool{from: true}
	var others []plumbing.Hash
	for at := to; at != from; {
		if len(met) > most {
			return nil, nil
		}
		c, err := object.GetCommit(s, at)
		if err != nil {
			return nil, gittree.Missing("commit", at, err)
		}
		if n := len(w.trees); n == 0 || w.trees[n-1] != c.TreeHash {
			w.trees = append(w.trees, c.TreeHash)
		}
		met[at] = true
		if len(c.ParentHashes) == 0 {
			return nil, nil
		}
		at, others = c.ParentHashes[0], append(others, c.ParentHashes[1:]...)
	}
	if older, err := object.GetCommit(s, from); err == nil { // else its tree is not compared
		w.from = older.TreeHash
	}
	if len(others) == 0 {
		return w, nil
	}
	return w, w.addSides(s, from, others, met)
}

// addSides adds what the merges of a range have brought.
func (w *Range) addSides(s storer.EncodedObjectStorer, from plumbing.Hash, others []plumbing.Hash, met map[plumbing.Hash]bool) error {
	past, err := historyOf(s, from)
	if err != nil {
		return err
	}
	for queue := others; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if met[at] || past[at] {
			continue
		}
		met[at] = true
		if len(w.sides) == MaxShort {
			w.tooMany = true
			return nil
		}
		c, err := object.GetCommit(s, at)
		if err != nil {
			return gittree.Missing("commit", at, err)
		}
		n := merged{tree: c.TreeHash}
		for _, parent := range c.ParentHashes {
			p, err := object.GetCommit(s, parent)
			if err != nil {
				return gittree.Missing("commit", parent, err)
			}
			n.parents = append(n.parents, p.TreeHash)
		}
		w.sides = append(w.sides, n)
		queue = append(queue, c.ParentHashes...)
	}
	return nil
}

// maxPast is how many commits of the history of a range are distinguished from those
// that merges have brought. With more, a merge of an old branch looks as if it had
// brought them.
const maxPast = 10 * MaxShort

// historyOf returns a commit and the newest of its history.
func historyOf(s storer.EncodedObjectStorer, commit plumbing.Hash) (map[plumbing.Hash]bool, error) {
	past := map[plumbing.Hash]bool{commit: true}
	for queue := []plumbing.Hash{commit}; len(queue) > 0 && len(past) < maxPast; queue = queue[1:] {
		c, err := object.GetCommit(s, queue[0])
		if err != nil {
			return nil, gittree.Missing("commit", queue[0], err)
		}
		for _, parent := range c.ParentHashes {
			if !past[parent] {
				past[parent] = true
				queue = append(queue, parent)
			}
		}
	}
	return past, nil
}
