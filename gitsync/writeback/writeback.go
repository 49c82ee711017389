package writeback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/replay"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/revert"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Input is what a write-back goes by. Source, Snapshot, State and Reader are of one commit.
type Input struct {
	Source *v1alpha1.GitSource
	Remote gitserver.Remote
	Mirror *repository.Mirror
	// Snapshot is the tip of the branch, State what it says, and Reader how that was read.
	Snapshot *repository.Snapshot
	State    *desired.State
	Reader   *desired.Reader
	// Governed is what of State counts; nil: it is found out.
	Governed *terms.Governed
	Observer *apply.Observer
	// Account reads and tries with the rights of the source, Own reads with those of the
	// controller.
	Account client.Client
	Own     client.Reader
	// Siblings are how to come to the other sources of the branch.
	Siblings siblings.Access
	// Refused: the commit is refused, and only rollbacks are committed. Then are the
	// BatchReleases that it would bring.
	Refused bool
	Then    []*v1alpha1.BatchRelease
	// Last is the last push of the source; nil: none.
	Last *Pushed
	// Interrupted reports whether a renderer had no place: nothing is said then.
	Interrupted func() bool
	// Exchanged takes the time and the error of an exchange with the server.
	Exchanged func(operation string, begun time.Time, err error)
}

// Result is what an attempt came to.
type Result struct {
	// Problems are the decisions of the cluster that the branch does not have, and why.
	Problems plan.Problems
	// Moved: another push was faster. The decisions are compared with that one next.
	Moved bool
	// Commits are what was pushed to Branch, each on the one before; none: nothing was.
	Branch  string
	Commits []Commit
	// Pushed is the next attempt's Last.
	Pushed *Pushed
}

// Commit is one that was pushed.
type Commit struct {
	Hash, Subject string
	// Of is the first BatchRelease that it is about.
	Of *v1alpha1.BatchRelease
}

// attempt is one attempt to commit what the cluster decided and the branch does not
// say. There is no list of what is to be committed: each sync finds it again, by
// comparison.
type attempt struct {
	Input
	problems plan.Problems

	branch string               // to push to
	review *repository.Snapshot // of that, where it is another

	maker   gitobject.Committer
	scratch *gitobject.Store
	// from is where the branch that is pushed to is.
	from plumbing.Hash
	// head is the commit on which the next one is made, tree is its tree, and
	// set what that renders.
	head, tree plumbing.Hash
	set        *plan.Set
	// also is a second parent for the first commit; zero: none.
	also plumbing.Hash
	// sharers are the other sources of the branch.
	sharers sharers

	made []Commit
	done []intent // that are in those
}

// maxSince bounds how many commits since a release are looked through for one of ours.
const maxSince = 10_000

// Run makes one attempt to commit what the cluster decided and the branch does not say. If
// something cannot be committed, the result says so, and there is no error.
func Run(ctx context.Context, in Input) (Result, error) {
	scratch := gitobject.NewStore(in.Snapshot)
	a := &attempt{Input: in, scratch: scratch, branch: in.Source.Spec.Ref.Branch, from: in.Snapshot.Commit,
		head: in.Snapshot.Commit, set: in.State.Set}
	a.sharers.Input = &a.Input
	defer func() {
		if a.review != nil {
			a.review.Close()
		}
	}()
	pushed, err := a.run(ctx)
	r := Result{Problems: a.problems, Pushed: a.Last}
	if errors.Is(err, gitserver.ErrBranchMoved) {
		r.Moved, err = true, nil
	}
	if pushed {
		r.Branch, r.Commits = a.branch, a.made
		if a.branch == a.Source.Spec.Ref.Branch { // another one is merged by users, when they like
			r.Pushed = a.Last.next(pushing(a.Remote, a.branch), a.head, a.done)
		}
	}
	return r, err
}

// run reports whether something was pushed.
func (w *attempt) run(ctx context.Context) (pushed bool, err error) {
	pending, err := w.pending(ctx)
	if err != nil || len(pending) == 0 {
		return false, err
	}
	if w.maker, err = (credentials.Reader{Client: w.Own, Source: w.Source}).Committer(ctx); err != nil {
		return false, w.give(err, pending)
	}
	if pending, err = w.base(ctx, pending); err != nil || len(pending) == 0 {
		return false, w.give(err, pending)
	}
	if err := w.Last.unseen(pushing(w.Remote, w.branch), pending); err != nil {
		return false, w.give(err, pending)
	}
	if err := w.build(ctx, pending); err != nil || len(w.made) == 0 {
		return false, w.give(err, pending)
	}
	pack, err := w.scratch.Pack(w.head)
	if err != nil {
		return false, err
	}
	begun := time.Now()
	u := gitserver.Update{Branch: w.branch, From: w.from, To: w.head, Pack: pack, Confirm: w.Unchanged(ctx)}
	if w.branch != w.Source.Spec.Ref.Branch {
		u.Beside = map[string]plumbing.Hash{w.Source.Spec.Ref.Branch: w.Snapshot.Commit}
	}
	_, err = turns.Exchange(ctx, func() (any, error) { return nil, w.Remote.Push(ctx, u, w.Source.Spec.TimeoutOrDefault()) })
	w.Exchanged("push", begun, err)
	if err != nil {
		return false, w.give(err, pending)
	}
	if w.branch != w.Source.Spec.Ref.Branch {
		w.waitForReview(w.done)
	}
	return true, nil
}

// give adds to the problems why nothing was committed. It returns what is to be
// acted on elsewhere: a branch that has moved, a damaged mirror.
func (w *attempt) give(err error, pending []intent) error {
	if err == nil || w.Interrupted() || repository.IsDamaged(err) ||
		slices.ContainsFunc([]error{gitserver.ErrBranchMoved, gitserver.ErrOutdated, context.Canceled},
			func(e error) bool { return errors.Is(err, e) }) {
		return err
	}
	ps := plan.ProblemsOf(err)
	if len(ps) == 0 {
		ps = plan.Problems{{Reason: v1alpha1.ReasonWriteBackFailed,
			Where: "GitSource " + client.ObjectKeyFromObject(w.Source).String(), Err: errors.New(plan.OneLine(err.Error())), Retry: true}}
	}
	list := make([]string, len(pending))
	for i, in := range pending {
		list[i] = in.String()
	}
	for _, p := range ps {
		p.Err = fmt.Errorf("%w; not written back: %s", p.Err, plan.JoinNames(list))
	}
	w.problems = append(w.problems, ps...)
	return nil
}

// bringsAgain reports whether a refused commit begins another release than the one of a
// BatchRelease. It may be one of the template that failed: after a revert, the same change
// again. If the commit was not prepared, that is not known, and the answer is true.
func (w *Input) bringsAgain(br *v1alpha1.BatchRelease) bool {
	return len(w.Then) == 0 || slices.ContainsFunc(w.Then, func(then *v1alpha1.BatchRelease) bool {
		return plan.ReleaseName(then) == plan.ReleaseName(br) && then.Spec.Commit != br.Spec.Commit
	})
}

// pending returns what is to be committed. If something is not to be committed, InSync
// says so: the GitSource excludes it, or a commit took it back.
func (w *attempt) pending(ctx context.Context) ([]intent, error) {
	if w.Governed == nil {
		g, err := terms.Govern(ctx, w.Reader, w.State, w.Observer)
		if err != nil {
			return nil, err
		}
		w.Governed = g
	}
	set := w.Governed.Set
	if len(set.Releases) == 0 {
		return nil, nil
	}
	live, err := w.livePlans(ctx, set)
	if err != nil {
		return nil, err
	}
	t, err := gittree.Open(w.Snapshot, w.Snapshot.Commit)
	if err != nil {
		return nil, err
	}
	approvals, _ := w.approvals(t)
	if t.Err() != nil {
		return nil, t.Err()
	}
	return w.uncommitted(ctx, intents(set, live), approvals)
}

// livePlans returns the BatchReleases of the source in the cluster, by name.
func (w *Input) livePlans(ctx context.Context, set *plan.Set) (map[string]*v1alpha1.BatchRelease, error) {
	live := map[string]*v1alpha1.BatchRelease{}
	for i := range set.Releases {
		now, err := w.Observer.LivePlan(ctx, &set.Releases[i])
		if err != nil {
			return nil, err
		}
		if now != nil && inventory.IsOwned(now, w.Source) {
			live[plan.ReleaseName(now)] = now
		}
	}
	return live, nil
}

// uncommitted returns those of the intents that Git does not say, and that a commit may say.
func (w *attempt) uncommitted(ctx context.Context, all []intent, approvals []plan.Approval) ([]intent, error) {
	var pending []intent
	h := desired.NewHistory(w.Reader, w.State)
	since := map[string][]pastCommit{}
	for _, in := range all {
		if w.Refused && (!in.rollback || w.bringsAgain(in.live)) {
			continue
		}
		inGit, err := saysApproved(ctx, h, in, approvals)
		if err != nil {
			return nil, err
		}
		if inGit {
			continue
		}
		if p := w.unwanted(in, in.live); p != nil {
			w.problems = append(w.problems, p...)
			continue
		}
		if _, ok := since[in.commit]; !ok {
			if since[in.commit], err = commitsSince(ctx, w.scratch, w.Snapshot.Commit, plumbing.NewHash(in.commit)); err != nil {
				return nil, err
			}
		}
		done, err := committed(ctx, h, in, since[in.commit])
		if err != nil {
			return nil, err
		}
		switch {
		case !done:
			pending = append(pending, in)
		case in.rollback: // and brought again, in one push: Git has the last word
			w.problems = append(w.problems, w.problem(in))
		}
	}
	return pending, nil
}

// saysApproved reports whether the branch has an approval that covers an intent. For
// a gate that has not opened, that is one which counts, for the steps of the plan.
func saysApproved(ctx context.Context, h *desired.History, in intent, approvals []plan.Approval) (bool, error) {
	if in.rollback {
		return false, nil
	}
	if !in.waits {
		a, _ := plan.MatchApproval(in.release, in.commit, approvals)
		return in.covers(a), nil
	}
	c := &desired.Candidate{Release: in.release, Commit: in.commit, Since: h.Replay.Since(in.commit, in.live), Live: in.live}
	a, _, err := h.Approval(ctx, c, approvals)
	if err != nil || !in.covers(a) {
		return false, err
	}
	given, err := h.Given(&desired.Candidate{Release: in.release, Commit: in.commit}, a)
	return err == nil && in.isOf(given.Steps), err
}

// pastCommit is a commit of a branch, and what it says.
type pastCommit struct {
	hash    plumbing.Hash
	message string
}

// committed reports whether one of the commits did what an intent is about. Trailers only say
// which commits to look at: users write what they like into a message. A commit that approved
// a gate which has not opened counts only for the steps of the plan in that commit. It also
// must have come after the release was first seen.
func committed(ctx context.Context, h *desired.History, in intent, list []pastCommit) (bool, error) {
	for _, c := range list {
		if !in.says(c.message) {
			continue
		}
		yes, err := does(h, c.hash, in)
		if err != nil {
			return false, err
		}
		if !yes {
			continue
		}
		if !in.waits {
			return true, nil
		}
		old, err := h.Replay.Predates(ctx, c.hash, h.Replay.Since(in.commit, in.live))
		if err != nil {
			return false, err
		}
		steps, err := h.StepsIn(c.hash.String(), in.release)
		if err != nil {
			return false, err
		}
		if old == "" && in.isOf(steps) {
			return true, nil
		}
	}
	return false, nil
}

// does reports whether the content of a commit is what an intent is about. For a
// rollback it takes the template of the release away; otherwise it brings an approval.
func does(h *desired.History, commit plumbing.Hash, in intent) (bool, error) {
	c, err := object.GetCommit(h.Reader.Snapshot, commit)
	if err != nil {
		return false, gittree.Missing("commit", commit, err)
	}
	if !in.rollback {
		return bringsApproval(h, c, in)
	}
	after, _, err := h.Renders(commit, h.State.Reads, in.release)
	if err != nil || after != desired.RendersOther {
		return false, err
	}
	for _, p := range c.ParentHashes {
		if before, _, err := h.Renders(p, h.State.Reads, in.release); err != nil || before == desired.RendersSame {
			return err == nil, err
		}
	}
	return false, nil
}

// bringsApproval reports whether a commit has an approval that covers an intent, in a
// file that none of its parents has.
func bringsApproval(h *desired.History, c *object.Commit, in intent) (bool, error) {
	t, err := gittree.Open(h.Reader.Snapshot, c.Hash)
	if err != nil {
		return false, err
	}
	approvals, _ := manifest.ReadApprovals(t, h.Reader.Source.Spec.ApprovalsPath(), h.Reader.Source.DefaultNamespace())
	if err := t.Err(); err != nil && !gittree.IsExceeded(err) {
		return false, err
	}
	a, _ := plan.MatchApproval(in.release, in.commit, desired.ForReleases(approvals))
	if !in.covers(a) {
		return false, nil
	}
	content, _, err := t.Blob(a.File)
	if err != nil {
		return false, err
	}
	had, err := gitobject.ParentWith(h.Reader.Snapshot, c, a.File, content)
	return err == nil && had == nil, err
}

// unwanted returns problems, or an empty list, for an intent that this source
// does not commit, and nil for one that it does.
func (w *Input) unwanted(in intent, br *v1alpha1.BatchRelease) plan.Problems {
	spec := &w.Source.Spec
	off := spec.WriteBack == nil || !spec.WriteBack.Enabled
	switch {
	case !in.rollback && br.Status.Phase == v1alpha1.PhaseCompleted && off:
		return plan.Problems{} // what runs is what the branch says
	case off:
		return plan.Problems{w.problem(in)}
	case !in.rollback && spec.Approvals != nil && (spec.Approvals.Signers != nil || spec.Approvals.DistinctAuthor):
		// It would go round the signature of a person.
		return plan.Problems{w.problem(in)}
	default:
		return nil
	}
}

func (w *Input) problem(in intent) *plan.Problem {
	return in.problem(desired.CommitName(w.Source.Spec.Ref.Branch, w.Snapshot.Commit.String()), w.approvalFile(in))
}

func (w *Input) approvals(t *gittree.Tree) ([]plan.Approval, plan.Problems) {
	approvals, ignored := manifest.ReadApprovals(t, w.Source.Spec.ApprovalsPath(), w.Source.DefaultNamespace())
	return desired.ForReleases(approvals), ignored
}

// commitsSince returns the commits of a branch that are younger than a release, as far
// as the clocks of those who commit can tell.
func commitsSince(ctx context.Context, s *gitobject.Store, tip, release plumbing.Hash) ([]pastCommit, error) {
	c, err := object.GetCommit(s, tip)
	if err != nil {
		return nil, gittree.Missing("commit", tip, err)
	}
	var oldest time.Time
	if began, err := object.GetCommit(s, release); err == nil {
		oldest = began.Committer.When.Add(-replay.ClockSkew)
	}
	list := []pastCommit{}
	walk := object.NewCommitIterCTime(c, nil, []plumbing.Hash{release})
	defer walk.Close()
	for range maxSince {
		c, err := walk.Next()
		if errors.Is(err, io.EOF) || err == nil && c.Committer.When.Before(oldest) {
			break
		}
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return nil, fmt.Errorf("reading the history of %s: %w", tip, err)
		}
		list = append(list, pastCommit{c.Hash, c.Message})
	}
	return list, nil
}

// build makes one commit after the other. One that cannot be had is said on
// InSync and keeps no other from being made.
func (w *attempt) build(ctx context.Context, pending []intent) error {
	var back []intent
	for _, in := range pending {
		if in.rollback {
			back = append(back, in)
			continue
		}
		if err := w.attempt(w.approve(in), in); err != nil {
			return err
		}
	}
	for len(back) > 0 {
		group := []intent{back[0]}
		err := w.revert(ctx, group)
		// Releases that were rolled back with it, by the same change, go together.
		if moves, ok := errors.AsType[*movesOthers](err); ok {
			for _, in := range back[1:] {
				if slices.Contains(moves.names, plan.ReleaseName(in.release.Plan)) {
					group = append(group, in)
				}
			}
			if len(group) > 1 {
				err = w.revert(ctx, group)
			}
		}
		if err := w.attempt(err, group...); err != nil {
			return err
		}
		back = slices.DeleteFunc(back, func(in intent) bool {
			return slices.ContainsFunc(group, func(g intent) bool { return g.release == in.release })
		})
	}
	return nil
}

// attempt says on InSync why something could not be committed, if it is of a
// kind that can be said.
func (w *attempt) attempt(err error, group ...intent) error {
	if !isRefusal(err) {
		return err
	}
	c, _ := errors.AsType[*cannot](err)
	if moves, ok := errors.AsType[*movesOthers](err); ok {
		c = moves.refusal()
	}
	for _, in := range group {
		p := w.problem(in)
		p.Err, p.Hint, p.Retry = fmt.Errorf("%w; nothing is pushed, since %s", p.Err, c.fact), cmp.Or(c.hint, p.Hint), c.passes || c.again
		if !c.passes {
			p.Reason = v1alpha1.ReasonWriteBackConflict
		}
		w.problems = append(w.problems, p)
	}
	return nil
}

// cannot says why something cannot be committed, and whether that may pass.
type cannot struct {
	fact, hint string
	passes     bool
	// again: it is a conflict that other sources may end.
	again bool
}

func (c *cannot) Error() string { return c.fact }

// add makes a commit of a tree on top of the head.
func (w *attempt) add(tree plumbing.Hash, set *plan.Set, message string, said ...intent) error {
	parents := []plumbing.Hash{w.head}
	if !w.also.IsZero() {
		parents = append(parents, w.also)
		w.also = plumbing.ZeroHash
	}
	commit, err := w.maker.Commit(w.scratch, tree, parents, message, time.Now())
	if err != nil {
		return err
	}
	w.head, w.tree, w.set = commit, tree, set
	w.made, w.done = append(w.made, Commit{commit.String(), revert.SubjectOf(message), said[0].live}), append(w.done, said...)
	return nil
}
