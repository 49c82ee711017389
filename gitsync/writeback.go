package gitsync

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/releasenotes"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/writeback"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// step is what follows on a sync of a snapshot.
type step struct {
	// moved: the branch has moved, by this sync or by another push.
	moved bool
	// overtaken is the write-back that another push has overtaken; nil: none.
	overtaken *overtaken
}

// overtaken is a write-back that another push has overtaken. It is tried again on top of
// that push before that is applied, so the time in which a push can overtake it is short.
type overtaken struct {
	commit   *changeset.Changes
	observer *apply.Observer
}

// writeBack compares the cluster's decisions with a commit, and commits the difference. If
// something cannot be committed, InSync says so, and there is no error. If the commit is
// refused, only rollbacks are committed.
func (l *look) writeBack(
	ctx context.Context, r gitserver.Remote, s *repository.Snapshot, c *changeset.Changes, o *apply.Observer, refused bool,
) (step, error) {
	result, err := writeback.Run(ctx, writeback.Input{
		Source: l.gs, Remote: r, Mirror: l.mirrors.Of(r), Snapshot: s, State: c.Desired, Reader: c.Reader, Governed: c.Governed, Observer: o,
		Account: l.as, Own: l.own, Siblings: l.siblings(ctx), Refused: refused, Then: c.Then,
		Interrupted: func() bool { return l.rendering.Busy() != nil },
		Exchanged:   func(operation string, begun time.Time, err error) { metrics.Exchanged(l.name, operation, begun, err) },
	})
	l.outcome.Intents = result.Problems
	for _, made := range result.Commits {
		message := fmt.Sprintf("%s: %s", desired.CommitName(result.Branch, made.Hash), made.Subject)
		l.recordEventOf(made.Of, corev1.EventTypeNormal, v1alpha1.ReasonWrittenBack, message)
	}
	switch {
	case err != nil:
		return step{}, err
	case result.Moved && !refused:
		return step{moved: true, overtaken: &overtaken{commit: c, observer: o}}, nil
	default:
		return step{moved: result.Moved || len(result.Commits) > 0 && result.Branch == l.gs.Spec.Ref.Branch}, nil
	}
}

// writeBackAgain tries an overtaken write-back on top of a snapshot. If its tip is not to be
// built on, nothing is committed: a signature of the controller would cover it.
func (l *look) writeBackAgain(ctx context.Context, r gitserver.Remote, s *repository.Snapshot, late *overtaken) (step, error) {
	renderer := *late.commit.Reader
	renderer.Snapshot = s
	if err := credentials.Verify(ctx, l.gs, s, renderer.Signatures); err != nil {
		return step{}, nil //nolint:nilerr // the sync of the snapshot says so
	}
	d, _, err := renderer.Read(late.commit.Desired)
	if err != nil {
		return step{}, nil //nolint:nilerr // the sync of the snapshot says so
	}
	return l.writeBack(ctx, r, s, &changeset.Changes{Desired: d, Reader: &renderer}, late.observer, false)
}

// writeNotes notes in Git what became of the releases of a commit.
func (l *look) writeNotes(
	ctx context.Context, r gitserver.Remote, s *repository.Snapshot, c *changeset.Changes, o *apply.Observer,
) (step, error) {
	result, err := releasenotes.Run(ctx, releasenotes.Input{
		Source: l.gs, Remote: r, Mirror: l.mirrors.Of(r), Snapshot: s, Set: c.Governed.Set, Observer: o,
		Account: l.as, Own: l.own, Known: l.keep.notes, Log: l.log,
	})
	l.keep.notes = result.Known
	l.outcome.Intents = append(l.outcome.Intents, result.Problems...)
	return step{moved: result.Moved}, err
}
