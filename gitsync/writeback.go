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
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/releasenotes"
	"github.com/tranche-dev/tranche/gitsync/report"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/writeback"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// next is what follows on a sync of a snapshot.
type next struct {
	// moved: the branch has moved, by this sync or by another push.
	moved bool
	// overtaken is the write-back that another push has overtaken; nil: none.
	overtaken *overtaken
}

// overtaken is a write-back that another push has overtaken. It is tried again on top of
// that push before that is applied, so the time in which a push can overtake it is short.
type overtaken struct {
	changes  *changeset.Changes
	observer *apply.Observer
}

// writeBack compares the cluster's decisions with a commit, and commits the difference. If
// something cannot be committed, InSync says so, and there is no error. If the commit is
// refused, only rollbacks are committed.
func writeBack(ctx context.Context, src *source, res *result, a attempt, refused bool) (next, error) {
	c := a.changes
	written, err := writeback.Run(ctx, writeback.Input{
		Source: src.gs, Remote: src.remote, Mirror: src.mirrors.Of(src.remote), Snapshot: a.snapshot,
		State: c.Desired, Reader: c.Reader, Governed: c.Governed, Observer: a.observer,
		Account: src.as, Own: src.own, Siblings: src.siblings(ctx), Refused: refused, Then: c.Then, Last: src.cached.pushed,
		Interrupted: func() bool { return src.rendering.Busy() != nil },
		Exchanged:   func(operation string, begun time.Time, err error) { metrics.Exchanged(src.name, operation, begun, err) },
	})
	res.outcome.Intents, src.cached.pushed = written.Problems, written.Pushed
	for _, made := range written.Commits {
		message := fmt.Sprintf("%s: %s", desired.CommitName(written.Branch, made.Hash), made.Subject)
		src.report.RecordEvent(report.Event{
			Of: made.Of, Type: corev1.EventTypeNormal, Reason: v1alpha1.ReasonWrittenBack, Message: message, Commit: res.outcome.Commit,
		})
	}
	switch {
	case err != nil:
		return next{}, err
	case written.Moved && !refused:
		return next{moved: true, overtaken: &overtaken{changes: c, observer: a.observer}}, nil
	default:
		return next{moved: written.Moved || len(written.Commits) > 0 && written.Branch == src.gs.Spec.Ref.Branch}, nil
	}
}

// writeBackAgain tries an overtaken write-back on top of a snapshot. If its tip is not to be
// built on, nothing is committed: a signature of the controller would cover it.
func writeBackAgain(ctx context.Context, src *source, res *result, s *repository.Snapshot, late *overtaken) (next, error) {
	renderer := *late.changes.Reader
	renderer.Snapshot = s
	if err := credentials.Verify(ctx, src.gs, s, renderer.Signatures); err != nil {
		return next{}, nil //nolint:nilerr // the sync of the snapshot says so
	}
	d, _, err := renderer.Read(late.changes.Desired)
	if err != nil {
		return next{}, nil //nolint:nilerr // the sync of the snapshot says so
	}
	again := attempt{snapshot: s, observer: late.observer, changes: &changeset.Changes{Desired: d, Reader: &renderer}}
	return writeBack(ctx, src, res, again, false)
}

// writeNotes notes in Git what became of the releases of a commit.
func writeNotes(ctx context.Context, src *source, res *result, a attempt) (next, error) {
	noted, err := releasenotes.Run(ctx, releasenotes.Input{
		Source: src.gs, Remote: src.remote, Mirror: src.mirrors.Of(src.remote), Snapshot: a.snapshot,
		Set: a.changes.Governed.Set, Observer: a.observer,
		Account: src.as, Own: src.own, Known: src.cached.notes, Log: src.log,
	})
	src.cached.notes = noted.Known
	res.outcome.Intents = append(res.outcome.Intents, noted.Problems...)
	return next{moved: noted.Moved}, err
}
