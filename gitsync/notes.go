package gitsync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/notes"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/gitsync/writeback"
	"github.com/tranche-dev/tranche/plan"
)

// writeNotes keeps the notes as the releases' status has them. There is no exchange
// with the server where they have not changed since the last time. If the notes cannot
// be pushed, InSync says so, and there is no error.
func (l *look) writeNotes(ctx context.Context, r gitserver.Remote, s *repository.Snapshot, c *commit, o *apply.Observer) (step, error) {
	if l.gs.Spec.WriteBack == nil || !l.gs.Spec.WriteBack.Notes {
		return step{}, nil
	}
	st, err := storiesOf(ctx, s, c, o)
	if err != nil || len(st) == 0 || fmt.Sprint(st) == l.keep.notes {
		return step{}, err
	}
	err = l.pushNotes(ctx, r, s, c)
	if err == nil {
		return step{}, nil
	}
	if errors.Is(err, gitserver.ErrBranchMoved) {
		return step{moved: true}, nil
	}
	ps := plan.ProblemsOf(err)
	l.outcome.Intents = append(l.outcome.Intents, ps...)
	if len(ps) > 0 {
		return step{}, nil
	}
	return step{}, fmt.Errorf("writing the notes of releases: %w", err)
}

// storiesOf returns what is to be noted of the releases of a commit.
func storiesOf(ctx context.Context, s *repository.Snapshot, c *commit, o *apply.Observer) (notes.Stories, error) {
	st := notes.Stories{}
	for i := range c.governed.Set.Releases {
		live, err := o.LivePlan(ctx, &c.governed.Set.Releases[i])
		if err != nil {
			return nil, err
		}
		if live != nil {
			st.Add(live)
			st.Reject(live, desired.RejectionIn(s, live))
		}
	}
	// A note on a commit that a force-push took away would be on nothing.
	maps.DeleteFunc(st, func(commit string, _ []string) bool {
		return s.HasEncodedObject(plumbing.NewHash(commit)) != nil
	})
	return st, nil
}

// pushNotes adds what is missing, as a compare-and-swap on the ref.
func (l *look) pushNotes(ctx context.Context, r gitserver.Remote, s *repository.Snapshot, c *commit) error {
	m := credentials.Unsigned(l.gs.Spec.WriteBack)
	if l.gs.Spec.Verify == nil { // else what others push to the notes would be signed for the branch
		var err error
		if m, err = l.secrets().Committer(ctx); err != nil {
			return err
		}
	}
	for tries := 1; ; tries++ {
		err := l.tryNotes(ctx, r, m, s, c)
		if !errors.Is(err, gitserver.ErrBranchMoved) || tries == maxMoved || !pauseFor(ctx, tries) {
			return err
		}
	}
}

// tryNotes reads the releases after the notes that are there. A controller that was suspended
// meanwhile does not write what it knew over what another one has noted since.
func (l *look) tryNotes(ctx context.Context, r gitserver.Remote, m gitobject.Committer, s *repository.Snapshot, c *commit) error {
	asking, cancel := context.WithTimeout(ctx, l.gs.Spec.TimeoutOrDefault())
	defer cancel()
	there, err := turns.Exchange(ctx, func() (*repository.Snapshot, error) { return l.mirrors.Of(r).FetchRef(asking, r, notes.Ref) })
	if err != nil {
		return err
	}
	defer there.Close()
	scratch := gitobject.NewStore(there)
	var root plumbing.Hash
	var parents []plumbing.Hash
	if !there.Commit.IsZero() {
		c, err := object.GetCommit(there, there.Commit)
		if err != nil {
			return gittree.Missing("commit", there.Commit, err)
		}
		root, parents = c.TreeHash, []plumbing.Hash{there.Commit}
	}
	st, err := storiesOf(ctx, s, c, apply.NewObserver(l.gs, l.as, l.own))
	if err != nil {
		return err
	}
	change := gitobject.Files{}
	for commit, paragraphs := range st {
		if err := notes.Annotate(scratch, root, commit, paragraphs, change); err != nil {
			return err
		}
	}
	if len(change) == 0 {
		l.keep.notes = fmt.Sprint(st)
		return nil
	}
	tree, err := scratch.WriteTree(root, change)
	if err != nil {
		return err
	}
	head, err := m.Commit(scratch, tree, parents, fmt.Sprintf("Notes on %d releases\n", len(change)), time.Now())
	if err != nil {
		return err
	}
	pack, err := scratch.Pack(head)
	if err != nil {
		return err
	}
	u := gitserver.Update{Branch: notes.Ref, From: there.Commit, To: head, Pack: pack, Confirm: (&writeback.Input{Source: l.gs, Own: l.own}).Unchanged(ctx)}
	if err := push(ctx, r, u, l.gs.Spec.TimeoutOrDefault()); err != nil {
		return err
	}
	l.keep.notes = fmt.Sprint(st)
	l.log.Info("noted", "branch", notes.Ref, "commit", head.String(), "notes", len(change))
	return nil
}
