package releasenotes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Input is what the notes of releases are written from.
type Input struct {
	Source *v1alpha1.GitSource
	Remote gitserver.Remote
	Mirror *repository.Mirror
	// Snapshot is the branch, and Set what of its tip is applied.
	Snapshot *repository.Snapshot
	Set      *plan.Set
	Observer *apply.Observer
	// Account reads as the account of the source, and Own past the cache.
	Account client.Client
	Own     client.Reader
	// Known are the notes that are there, as far as an earlier [Run] has found out.
	Known string
	Log   logr.Logger
}

// Result is what has become of the notes.
type Result struct {
	// Known are the notes that are there.
	Known string
	// Moved: the ref of the notes has moved too often.
	Moved bool
	// Problems are why the notes could not be pushed.
	Problems plan.Problems
}

// Run keeps the notes as the releases' status has them. There is no exchange
// with the server where they have not changed since the last time. If the notes cannot
// be pushed, the result says so, and there is no error.
func Run(ctx context.Context, in Input) (Result, error) {
	if in.Source.Spec.WriteBack == nil || !in.Source.Spec.WriteBack.Notes {
		return Result{Known: in.Known}, nil
	}
	st, err := in.stories(ctx, in.Observer)
	if err != nil || len(st) == 0 || fmt.Sprint(st) == in.Known {
		return Result{Known: in.Known}, err
	}
	known, err := in.push(ctx)
	if err == nil {
		return Result{Known: known}, nil
	}
	if errors.Is(err, gitserver.ErrBranchMoved) {
		return Result{Known: in.Known, Moved: true}, nil
	}
	if ps := plan.ProblemsOf(err); len(ps) > 0 {
		return Result{Known: in.Known, Problems: ps}, nil
	}
	return Result{Known: in.Known}, fmt.Errorf("writing the notes of releases: %w", err)
}

// stories returns what is to be noted of the releases of a commit.
func (in *Input) stories(ctx context.Context, o *apply.Observer) (notes.Stories, error) {
	st := notes.Stories{}
	for i := range in.Set.Releases {
		live, err := o.LivePlan(ctx, &in.Set.Releases[i])
		if err != nil {
			return nil, err
		}
		if live != nil {
			st.Add(live)
			st.Reject(live, desired.RejectionIn(in.Snapshot, live))
		}
	}
	// A note on a commit that a force-push took away would be on nothing.
	maps.DeleteFunc(st, func(commit string, _ []string) bool {
		return in.Snapshot.HasEncodedObject(plumbing.NewHash(commit)) != nil
	})
	return st, nil
}

// push adds what is missing, as a compare-and-swap on the ref. It returns the notes that are
// there then.
func (in *Input) push(ctx context.Context) (string, error) {
	m := credentials.Unsigned(in.Source.Spec.WriteBack)
	if in.Source.Spec.Verify == nil { // else what others push to the notes would be signed for the branch
		var err error
		secrets := credentials.Reader{Client: in.Own, Source: in.Source}
		if m, err = secrets.Committer(ctx); err != nil {
			return "", err
		}
	}
	for tries := 1; ; tries++ {
		known, err := in.try(ctx, m)
		if !errors.Is(err, gitserver.ErrBranchMoved) || tries == gitserver.MaxMoved || !gitserver.PauseMoved(ctx, tries) {
			return known, err
		}
	}
}

// try reads the releases after the notes that are there. A controller that was suspended
// meanwhile does not write what it knew over what another one has noted since.
func (in *Input) try(ctx context.Context, m gitobject.Committer) (string, error) {
	asking, cancel := context.WithTimeout(ctx, in.Source.Spec.TimeoutOrDefault())
	defer cancel()
	there, err := turns.Exchange(ctx, func() (*repository.Snapshot, error) { return in.Mirror.FetchRef(asking, in.Remote, notes.Ref) })
	if errors.Is(err, repository.ErrNoCommit) {
		return "", noNotes(err)
	}
	if err != nil {
		return "", err
	}
	defer there.Close()
	scratch := gitobject.NewStore(there)
	var root plumbing.Hash
	var parents []plumbing.Hash
	if !there.Commit.IsZero() {
		c, err := object.GetCommit(there, there.Commit)
		if err != nil {
			return "", gittree.Missing("commit", there.Commit, err)
		}
		root, parents = c.TreeHash, []plumbing.Hash{there.Commit}
	}
	st, err := in.stories(ctx, apply.NewObserver(in.Source, in.Account, in.Own))
	if err != nil {
		return "", err
	}
	change := gitobject.Files{}
	for commit, paragraphs := range st {
		if err := notes.Annotate(scratch, root, commit, paragraphs, change); err != nil {
			return "", err
		}
	}
	if len(change) == 0 {
		return fmt.Sprint(st), nil
	}
	tree, err := scratch.WriteTree(root, change)
	if err != nil {
		return "", err
	}
	head, err := m.Commit(scratch, tree, parents, fmt.Sprintf("Notes on %d releases\n", len(change)), time.Now())
	if err != nil {
		return "", err
	}
	pack, err := scratch.Pack(head)
	if err != nil {
		return "", err
	}
	unchanged := (&writeback.Input{Source: in.Source, Own: in.Own}).Unchanged(ctx)
	u := gitserver.Update{Branch: notes.Ref, From: there.Commit, To: head, Pack: pack, Confirm: unchanged}
	_, err = turns.Exchange(ctx, func() (any, error) { return nil, in.Remote.Push(ctx, u, in.Source.Spec.TimeoutOrDefault()) })
	if err != nil {
		return "", err
	}
	in.Log.Info("Notes pushed", "branch", notes.Ref, "commit", head.String(), "notes", len(change))
	return fmt.Sprint(st), nil
}

// noNotes refuses a ref that no notes can be added to. A user who may push to it may let it name anything.
func noNotes(err error) *plan.Problem {
	return &plan.Problem{
		Reason: v1alpha1.ReasonWriteBackConflict, Where: notes.Ref, Err: err,
		Hint: "delete the ref, and the controller makes it again: git push origin --delete " + notes.Ref,
	}
}
