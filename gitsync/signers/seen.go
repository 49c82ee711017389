package signers

import (
	"context"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The date in a commit is whatever its author writes. So a key that has expired could
// still sign with an old date. The controller therefore records when it saw each tip of
// the branch for the first time. A commit was first seen with the first tip that has it
// in its history. A commit that is new has the present time.

const (
	// maxSeen bounds the tips that a GitSource knows.
	maxSeen = 2048
	// seenWhole is for how long each tip is kept; older ones are kept once an hour.
	seenWhole = 24 * time.Hour
	// maxSeenTried bounds the tips whose history is searched. If a branch only grows, the
	// newest one in question has the history of all others.
	maxSeenTried = 3
)

// WithSeen returns the tips with those of the present, unless they are among them.
//
// Among the tips of one hour that are older than a day, the newest stays. So do those of
// the present. A tip that is dropped only makes the first sight of its commits later. A
// later sight is never good for a key for which an earlier one was not.
func WithSeen(seen []v1alpha1.SeenCommit, now time.Time, tips ...string) []v1alpha1.SeenCommit {
	var list []v1alpha1.SeenCommit
	for _, tip := range tips {
		if !slices.ContainsFunc(seen, func(s v1alpha1.SeenCommit) bool { return s.Commit == tip }) {
			list = append(list, v1alpha1.SeenCommit{Commit: tip, Time: metav1.NewTime(now.UTC().Truncate(time.Second))})
		}
	}
	if len(list) == 0 {
		return seen
	}
	var hour time.Time
	for _, s := range seen {
		if now.Sub(s.Time.Time) > seenWhole && !slices.Contains(tips, s.Commit) {
			of := s.Time.Truncate(time.Hour)
			if of.Equal(hour) {
				continue
			}
			hour = of
		}
		list = append(list, s)
	}
	return list[:min(len(list), maxSeen)]
}

// UnionSeen returns the tips of a list, and before them those of another one that it lacks.
func UnionSeen(newer, list []v1alpha1.SeenCommit) []v1alpha1.SeenCommit {
	lacks := slices.DeleteFunc(slices.Clone(newer), func(n v1alpha1.SeenCommit) bool {
		return slices.ContainsFunc(list, func(s v1alpha1.SeenCommit) bool { return s.Commit == n.Commit })
	})
	if len(lacks) == 0 {
		return list
	}
	all := slices.Concat(lacks, list)
	return all[:min(len(all), maxSeen)]
}

// sawTag reports whether a tag object was seen at a time or before.
func (p *Policy) sawTag(object plumbing.Hash, until time.Time) bool {
	return slices.ContainsFunc(p.Seen, func(t v1alpha1.SeenCommit) bool {
		return t.Commit == object.String() && !t.Time.After(until)
	})
}

// sawBy reports whether a commit was seen at a time or before, with the signature that it
// has. A signature that was added since may be by a key that had expired. Tips that are
// no longer in the mirror answer for themselves alone.
func (p *Policy) sawBy(ctx context.Context, store storer.EncodedObjectStorer, commit plumbing.Hash, until time.Time) (bool, error) {
	var tips []plumbing.Hash
	for _, t := range p.Seen {
		if t.Time.After(until) {
			continue
		}
		tip := plumbing.NewHash(t.Commit)
		if tip == commit {
			return true, nil
		}
		if len(tips) < maxSeenTried && store.HasEncodedObject(tip) == nil {
			tips = append(tips, tip)
		}
	}
	for _, tip := range tips {
		if yes, err := p.Order.PrecedesItself(ctx, store, commit, tip); err != nil || yes {
			return yes, err
		}
	}
	return false, nil
}

// maxFirstSeen bounds the tips that are searched for the first one with a commit.
const maxFirstSeen = 64

// FirstSeen returns when a commit was seen first, or nil if none of the tips has it. Older
// tips than those that are searched, or that were dropped, may have had it before.
func (p *Policy) FirstSeen(ctx context.Context, store storer.EncodedObjectStorer, commit plumbing.Hash) (*metav1.Time, error) {
	var first *metav1.Time
	for i := range p.Seen[:min(len(p.Seen), maxFirstSeen)] {
		tip := plumbing.NewHash(p.Seen[i].Commit)
		if tip != commit {
			if store.HasEncodedObject(tip) != nil {
				continue
			}
			has, err := p.Order.PrecedesItself(ctx, store, commit, tip)
			if err != nil {
				return nil, err
			}
			if !has {
				break
			}
		}
		first = &p.Seen[i].Time
	}
	return first.DeepCopy(), nil
}
