package lineage

import (
	"container/heap"
	"context"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// Lineage are commits with all that are in their histories, parents before children. A commit
// is known by its place in that order.
type Lineage struct {
	store   storer.EncodedObjectStorer
	at      map[plumbing.Hash]int32
	commits []ancestor
	bound   Bound
}

// Bound is how many commits there may be, and the error of more. The zero Bound is none.
type Bound struct {
	Most int
	Err  error
}

func (b Bound) forbids(n int) bool { return b.Most > 0 && n > b.Most }

// ancestor is a commit of a lineage.
type ancestor struct {
	hash plumbing.Hash
	// generation is above that of its parents.
	generation int32
	parents    []int32
}

// New returns a Lineage without commits, for commits of a repository.
func New(s storer.EncodedObjectStorer) *Lineage {
	return &Lineage{store: s, at: map[plumbing.Hash]int32{}}
}

// Limit bounds the commits that are added from now on. They are kept in memory.
func (l *Lineage) Limit(more Bound) {
	l.bound = Bound{Most: len(l.commits) + more.Most, Err: more.Err}
}

// Len returns how many commits there are.
func (l *Lineage) Len() int32 {
	return int32(len(l.commits)) //nolint:gosec // no repository has so many
}

// At returns the place of a commit, and whether it was added.
func (l *Lineage) At(commit plumbing.Hash) (int32, bool) {
	at, ok := l.at[commit]
	return at, ok
}

// Hash returns the commit at a place.
func (l *Lineage) Hash(at int32) plumbing.Hash { return l.commits[at].hash }

// Add adds a commit with its history, and returns its place.
func (l *Lineage) Add(ctx context.Context, commit plumbing.Hash) (int32, error) {
	type open struct {
		hash    plumbing.Hash
		parents []plumbing.Hash
		next    int // parent to add
	}
	var stack []open
	enter := func(hash plumbing.Hash) error {
		if _, ok := l.at[hash]; ok {
			return ctx.Err()
		}
		if l.bound.forbids(len(l.commits) + len(stack) + 1) {
			return l.bound.Err
		}
		c, err := object.GetCommit(l.store, hash)
		if err != nil {
			return gittree.Missing("commit", hash, err)
		}
		stack = append(stack, open{hash: hash, parents: c.ParentHashes})
		return ctx.Err()
	}
	if err := enter(commit); err != nil {
		return 0, err
	}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if top.next < len(top.parents) {
			top.next++
			if err := enter(top.parents[top.next-1]); err != nil {
				return 0, err
			}
			continue
		}
		a := ancestor{hash: top.hash, parents: make([]int32, len(top.parents))}
		for i, p := range top.parents {
			a.parents[i] = l.at[p]
			a.generation = max(a.generation, l.commits[l.at[p]].generation+1)
		}
		l.at[a.hash] = l.Len()
		l.commits = append(l.commits, a)
		stack = stack[:len(stack)-1]
	}
	return l.at[commit], nil
}

// Below returns commits of the histories of tips, children before their parents. A walk
// ends at commits that are not within, and with an error of step, which each commit calls.
func (l *Lineage) Below(tips []int32, bound Bound, within func(int32) bool, step func() error) ([]int32, error) {
	type open struct {
		commit int32
		next   int // parent to visit
	}
	var list []int32
	var stack []open
	seen := map[int32]bool{}
	enter := func(i int32) error {
		if seen[i] || !within(i) {
			return step()
		}
		if seen[i] = true; bound.forbids(len(seen)) {
			return bound.Err
		}
		stack = append(stack, open{commit: i})
		return step()
	}
	for _, tip := range tips {
		if err := enter(tip); err != nil {
			return nil, err
		}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if parents := l.commits[top.commit].parents; top.next < len(parents) {
				top.next++
				if err := enter(parents[top.next-1]); err != nil {
					return nil, err
				}
				continue
			}
			list = append(list, top.commit)
			stack = stack[:len(stack)-1]
		}
	}
	slices.Reverse(list)
	return list, nil
}

// side is the set of histories that have a commit of a walk.
type side uint8

const (
	ofFirst side = 1 << iota
	ofSecond
	// belowCommon is in the history of a common ancestor.
	belowCommon
)

// Fork returns the best common ancestors of two commits, and the commits that only one of
// them has in its history. A commit is visited after all its children, and the walk ends
// where all that is left is below a common ancestor.
func (l *Lineage) Fork(a, b int32, step func() error) (bases []int32, apart map[int32]bool, err error) {
	sides := map[int32]side{}
	next, apart := &newest{Lineage: l}, map[int32]bool{}
	undecided := 0 // of next
	mark := func(i int32, more side) {
		was, seen := sides[i]
		sides[i] = was | more
		if !seen {
			heap.Push(next, i)
		}
		if seen && was&belowCommon == 0 {
			undecided--
		}
		if sides[i]&belowCommon == 0 {
			undecided++
		}
	}
	mark(a, ofFirst)
	mark(b, ofSecond)
	for undecided > 0 {
		if err := step(); err != nil {
			return nil, nil, err
		}
		i, _ := heap.Pop(next).(int32)
		s := sides[i]
		switch {
		case s&belowCommon != 0:
		case s == ofFirst|ofSecond:
			undecided--
			bases = append(bases, i)
			s |= belowCommon
		default:
			undecided--
			apart[i] = true
		}
		for _, p := range l.commits[i].parents {
			mark(p, s)
		}
	}
	return bases, apart, nil
}

// newest is a heap of commits, the highest generation first.
type newest struct {
	*Lineage
	heap []int32
}

func (n *newest) Len() int { return len(n.heap) }
func (n *newest) Less(i, j int) bool {
	return n.commits[n.heap[i]].generation > n.commits[n.heap[j]].generation
}
func (n *newest) Swap(i, j int) { n.heap[i], n.heap[j] = n.heap[j], n.heap[i] }
func (n *newest) Push(x any) {
	i, _ := x.(int32)
	n.heap = append(n.heap, i)
}
func (n *newest) Pop() any {
	last := n.heap[len(n.heap)-1]
	n.heap = n.heap[:len(n.heap)-1]
	return last
}
