package gitsync

import (
	"context"
	"fmt"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/metrics"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// ask returns the branch as the server had it at or after the time of the sync
// request.
func ask(ctx context.Context, src *source) (*repository.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, src.gs.Spec.TimeoutOrDefault())
	defer cancel()
	begun := time.Now()
	s, err := turns.Exchange(ctx, func() (*repository.Snapshot, error) {
		return src.mirrors.Use(src.name, src.remote).FetchReference(ctx, src.remote, src.gs.Spec.Ref, src.since)
	})
	if err != nil || s.Asked {
		metrics.Exchanged(src.name, "fetch", begun, err)
	}
	return s, err
}

// fetch returns the branch, and notes in the outcome and in the status where it is.
func fetch(ctx context.Context, src *source, res *result) (*repository.Snapshot, error) {
	s, err := ask(ctx, src)
	if err != nil {
		return nil, err
	}
	res.outcome.Branch, res.outcome.Commit = credentials.RefName(src.gs, s), s.Commit.String()
	noteSeen(src.gs, s)
	src.log.V(1).Info("Branch read", "commit", s.Commit.String(), "fetched", s.Fetched)
	if src.report.Written().ObservedGeneration != src.gs.Generation || src.gs.Spec.Ref.IsPinned() {
		return s, nil // that commit may be of another branch, tag or repository
	}
	last := src.gs.Status.ObservedCommit
	if pushed, err := s.ForcePushed(plumbing.NewHash(last)); err == nil && pushed {
		tip := desired.CommitName(src.gs.Spec.Ref.Branch, res.outcome.Commit)
		message := fmt.Sprintf("%s no longer has %s in its history", tip, plan.ShortCommit(last))
		src.recordEvent(res.outcome.Commit, corev1.EventTypeWarning, v1alpha1.ReasonForcePushed, message)
	}
	return s, nil
}

// noteSeen adds what a snapshot is at to the status, where signatures are asked for.
func noteSeen(gs *v1alpha1.GitSource, s *repository.Snapshot) {
	if a := gs.Spec.Approvals; gs.Spec.Verify == nil && (a == nil || a.Signers == nil) {
		return
	}
	now := []string{s.Tip.String()}
	if s.Commit != s.Tip {
		now = append(now, s.Commit.String())
	}
	if s.Tag.IsAnnotated() {
		now = append(now, s.Tag.Object.String())
	}
	gs.Status.Seen = signers.WithSeen(gs.Status.Seen, time.Now(), now...)
}

// authorIn is the author of a commit; empty where it is not to be read.
func authorIn(s storer.EncodedObjectStorer, commit plumbing.Hash) string {
	c, err := object.GetCommit(s, commit)
	if err != nil {
		return ""
	}
	return gitobject.AuthorOf(c)
}
