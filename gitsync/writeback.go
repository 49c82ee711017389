package gitsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/replay"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/gitsync/revert"
	"github.com/tranche-dev/tranche/gitsync/turns"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// maxMoved is how often in one sync a branch may be found to have moved. After that
	// the sync ends and another one is requested.
	maxMoved = 8
	// firstPause is about how long the first wait is when the branch has
	// moved; each one after it is twice as long.
	firstPause = 20 * time.Millisecond
	// maxSince bounds how many commits since a release are looked through for
	// one of ours.
	maxSince = 10_000
)

// pauseFor waits before the branch is fetched again, longer each time and
// never as long as another controller would. It returns false at the end of ctx.
func pauseFor(ctx context.Context, moved int) bool {
	d := firstPause << (moved - 1)
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// writeback is one attempt to commit what the cluster decided and the branch does not
// say. There is no list of what is to be committed: each sync finds it again, by
// comparison.
type writeback struct {
	*look
	remote   gitserver.Remote
	snapshot *repository.Snapshot
	commit   *commit
	branch   string               // to push to
	review   *repository.Snapshot // of that, where it is another

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
	// sharers are the other sources of the branch; nil until they are asked for.
	sharers []*sharer

	made []string // subjects
	done []intent // that are in those
}

// errPushed says that the branch has moved by ourselves.
var errPushed = errors.New("pushed")

// writeBack compares the cluster's decisions with what was just applied, and commits
// the difference. If something cannot be committed, InSync says so, and there is no
// error. If others are faster, it decides again on what they have pushed, before that
// is applied. So the time in which a push can overtake it is short.
// gitserver.ErrBranchMoved asks for a sync of what the branch says now.
func (l *look) writeBack(ctx context.Context, r gitserver.Remote, s *repository.Snapshot, c *commit, o *apply.Observer) error {
	applied := s.Commit
	for tries := 1; ; tries++ {
		err := l.commitBack(ctx, r, s, c, o)
		moved := errors.Is(err, gitserver.ErrBranchMoved)
		if !moved || tries == maxMoved || !pauseFor(ctx, tries) {
			if moved || errors.Is(err, errPushed) || err == nil && s.Commit != applied {
				return gitserver.ErrBranchMoved
			}
			return err
		}
		asking, cancel := context.WithTimeout(ctx, l.gs.Spec.TimeoutOrDefault())
		s, err = turns.Exchange(ctx, func() (*repository.Snapshot, error) { return l.mirrors.Of(r).Fetch(asking, r, l.gs.Spec.Ref.Branch) })
		cancel()
		if err != nil {
			return gitserver.ErrBranchMoved // the sync that follows says so
		}
		defer s.Close()
		renderer := *c.renderer
		renderer.Snapshot = s
		if err := credentials.Verify(ctx, l.gs, s, renderer.Signatures); err != nil {
			return gitserver.ErrBranchMoved // its tip is not built on: a signature of the controller would cover it
		}
		d, _, err := renderer.Read(c.desired)
		if err != nil {
			return gitserver.ErrBranchMoved
		}
		c = &commit{desired: d, renderer: &renderer}
	}
}

// commitBack is one attempt.
func (l *look) commitBack(ctx context.Context, r gitserver.Remote, s *repository.Snapshot, c *commit, o *apply.Observer) error {
	w := &writeback{look: l, remote: r, snapshot: s, commit: c, scratch: gitobject.NewStore(s), branch: l.gs.Spec.Ref.Branch, from: s.Commit, head: s.Commit, set: c.desired.Set}
	defer func() {
		if w.review != nil {
			w.review.Close()
		}
	}()
	l.outcome.intents = nil
	pending, err := w.pending(ctx, o)
	if err != nil || len(pending) == 0 {
		return err
	}
	if w.maker, err = w.secrets().Committer(ctx); err != nil {
		return w.give(err, pending)
	}
	if pending, err = w.base(ctx, pending); err != nil || len(pending) == 0 {
		return w.give(err, pending)
	}
	if err := w.build(ctx, pending); err != nil || len(w.made) == 0 {
		return w.give(err, pending)
	}
	u, err := newUpdate(w.scratch, w.branch, w.from, w.head)
	if err != nil {
		return err
	}
	begun := time.Now()
	err = push(ctx, w.remote, u, w.gs.Spec.TimeoutOrDefault())
	w.exchanged("push", begun, err)
	if err != nil {
		return w.give(err, pending)
	}
	for _, subject := range w.made {
		w.tell(corev1.EventTypeNormal, v1alpha1.ReasonWrittenBack, fmt.Sprintf("%s: %s", desired.CommitAt(w.branch, w.head.String()), subject))
	}
	if w.branch != w.gs.Spec.Ref.Branch {
		w.waitForReview(w.done)
		return nil
	}
	return errPushed
}

// give says on InSync why nothing was committed. It returns what is to be
// acted on elsewhere: a branch that has moved, a damaged mirror.
func (w *writeback) give(err error, pending []intent) error {
	if err == nil || w.parked != nil || errors.Is(err, gitserver.ErrBranchMoved) || repository.IsDamaged(err) || errors.Is(err, context.Canceled) {
		return err
	}
	ps := plan.ProblemsOf(err)
	if len(ps) == 0 {
		ps = plan.Problems{{Reason: v1alpha1.ReasonWriteBackFailed, Where: "GitSource " + w.name.String(), Err: errors.New(plan.OneLine(err.Error())), Retry: true}}
	}
	for _, p := range ps {
		p.Err = fmt.Errorf("%w; not written back: %s", p.Err, w.said(pending))
	}
	w.outcome.intents = append(w.outcome.intents, ps...)
	return nil
}

// said lists intents in a few words.
func (w *writeback) said(pending []intent) string {
	list := make([]string, len(pending))
	for i, in := range pending {
		list[i] = in.String()
	}
	return plan.JoinNames(list)
}

// pending returns what is to be committed. If something is not to be committed, InSync
// says so: the GitSource excludes it, or a commit took it back.
func (w *writeback) pending(ctx context.Context, o *apply.Observer) ([]intent, error) {
	if w.commit.governed == nil {
		g, err := terms.Govern(ctx, w.commit.renderer, w.commit.desired, o)
		if err != nil {
			return nil, err
		}
		w.commit.governed = g
	}
	set := w.commit.governed.Set
	if len(set.Releases) == 0 {
		return nil, nil
	}
	live := map[string]*v1alpha1.BatchRelease{}
	for i := range set.Releases {
		now, err := o.LivePlan(ctx, &set.Releases[i])
		if err != nil {
			return nil, err
		}
		if now != nil && inventory.IsOwned(now, w.gs) {
			live[plan.ReleaseName(now)] = now
		}
	}
	t, err := gittree.Open(w.snapshot, w.snapshot.Commit)
	if err != nil {
		return nil, err
	}
	approvals, _ := w.approvals(t)
	if t.Err() != nil {
		return nil, t.Err()
	}
	var pending []intent
	h := desired.NewHistory(w.commit.renderer, w.commit.desired)
	since := map[string][]pastCommit{}
	for _, in := range intents(set, live) {
		if w.onlyRollbacks && (!in.rollback || w.commit.bringsAgain(in.live)) {
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
			w.outcome.intents = append(w.outcome.intents, p...)
			continue
		}
		if _, ok := since[in.commit]; !ok {
			if since[in.commit], err = w.commitsSince(ctx, w.snapshot.Commit, plumbing.NewHash(in.commit)); err != nil {
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
			w.outcome.intents = append(w.outcome.intents, w.problem(in))
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
	approvals, _ := manifest.ReadApprovals(t, desired.ApprovalsPath(&h.Reader.Source.Spec), h.Reader.Source.Namespace, h.Reader.Source.Spec.TargetNamespace)
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
func (w *writeback) unwanted(in intent, br *v1alpha1.BatchRelease) plan.Problems {
	spec := &w.gs.Spec
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

func (w *writeback) problem(in intent) *plan.Problem {
	return in.problem(desired.CommitAt(w.gs.Spec.Ref.Branch, w.snapshot.Commit.String()), w.approvalFile(in))
}

func (w *writeback) approvals(t *gittree.Tree) ([]plan.Approval, plan.Problems) {
	approvals, ignored := manifest.ReadApprovals(t, desired.ApprovalsPath(&w.gs.Spec), w.gs.Namespace, w.gs.Spec.TargetNamespace)
	return desired.ForReleases(approvals), ignored
}

// commitsSince returns the commits of a branch that are younger than a release, as far
// as the clocks of those who commit can tell.
func (w *writeback) commitsSince(ctx context.Context, tip, release plumbing.Hash) ([]pastCommit, error) {
	c, err := object.GetCommit(w.scratch, tip)
	if err != nil {
		return nil, gittree.Missing("commit", tip, err)
	}
	var oldest time.Time
	if began, err := object.GetCommit(w.scratch, release); err == nil {
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
func (w *writeback) build(ctx context.Context, pending []intent) error {
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
func (w *writeback) attempt(err error, group ...intent) error {
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
		w.outcome.intents = append(w.outcome.intents, p)
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
func (w *writeback) add(tree plumbing.Hash, set *plan.Set, message string, said ...intent) error {
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
	w.made, w.done = append(w.made, revert.SubjectOf(message)), append(w.done, said...)
	return nil
}

// approvalFile is the file that an approval goes to if the release has none yet.
func (w *writeback) approvalFile(in intent) string {
	return desired.ApprovalsPath(&w.gs.Spec) + "/" + in.release.Plan.Name + ".yaml"
}

// approve commits an approval: in place of the one that the release had, or in
// a file of its own.
func (w *writeback) approve(in intent) error {
	t, err := gittree.OpenTree(w.scratch, w.tree)
	if err != nil {
		return err
	}
	before, _ := w.approvals(t)
	file, err := w.placeFor(t, in, before)
	if err != nil {
		return err
	}
	was, err := gitobject.EntryAt(w.scratch, w.tree, file)
	if err != nil {
		return err
	}
	var content []byte
	if was.Mode != filemode.Empty {
		if content, err = gitobject.ReadBlob(w.scratch, was.Hash); err != nil {
			return err
		}
	}
	a := v1alpha1.BatchApproval{Spec: v1alpha1.BatchApprovalSpec{Revision: in.revision, Commit: in.commit, Step: in.step}}
	a.Metadata.Namespace, a.Metadata.Name = in.release.Plan.Namespace, in.release.Plan.Name
	if content, err = manifest.PutApproval(file, content, a, "", w.gs.Namespace, w.gs.Spec.TargetNamespace); err != nil {
		return err
	}
	blob, err := w.scratch.WriteBlob(content)
	if err != nil {
		return err
	}
	there, err := w.hasBlob(file, blob)
	if there {
		// An approval that does not count says the same. The commit that brings the
		// content of a file is the one that counts, so the content has to change.
		again := "Given again on " + time.Now().UTC().Format(time.RFC3339) + "."
		if content, err = manifest.PutApproval(file, content, a, again, w.gs.Namespace, w.gs.Spec.TargetNamespace); err == nil {
			blob, err = w.scratch.WriteBlob(content)
		}
	}
	if err != nil {
		return err
	}
	tree, err := w.scratch.WriteTree(w.tree, gitobject.Files{file: {Mode: cmp.Or(was.Mode, filemode.Regular), Hash: blob}})
	if errors.Is(err, gitobject.ErrNotAFolder) {
		return &cannot{fact: "in " + file + " " + err.Error(), hint: "correct spec.approvals.path"}
	}
	if err != nil {
		return err
	}
	if err := w.checkApproval(in, tree, file, before); err != nil {
		return err
	}
	return w.add(tree, w.set, in.message(), in)
}

// hasBlob reports whether a parent of the next commit has a file with this content.
func (w *writeback) hasBlob(file string, blob plumbing.Hash) (bool, error) {
	e, err := gitobject.EntryAt(w.scratch, w.tree, file)
	if err != nil || e.Hash == blob || w.also.IsZero() {
		return err == nil && e.Hash == blob, err
	}
	hash, ok, err := gitobject.BlobAt(w.scratch, w.also, file)
	return ok && hash == blob, err
}

// placeFor returns the file for an approval, without links.
func (w *writeback) placeFor(t *gittree.Tree, in intent, approvals []plan.Approval) (string, error) {
	file := ""
	for _, a := range approvals {
		if a.Metadata.Namespace == in.release.Plan.Namespace && a.Metadata.Name == in.release.Plan.Name {
			file = a.File
		}
	}
	if a, _ := plan.MatchApproval(in.release, in.commit, approvals); a != nil {
		file = a.File
	}
	if file != "" {
		dir, base, err := t.CleanedAbs(file)
		return strings.TrimPrefix(dir.Join(base), "/"), err
	}
	folder := desired.ApprovalsPath(&w.gs.Spec)
	if dir, base, err := t.CleanedAbs(folder); err == nil && base == "" {
		folder = strings.Trim(string(dir), "/")
	}
	for i, p := 0, in.release.Plan; ; i++ {
		name := []string{p.Name, p.Namespace + "-" + p.Name}[min(i, 1)]
		if i > 1 {
			name = fmt.Sprintf("%s-%d", name, i)
		}
		file = strings.TrimPrefix(folder+"/"+name+".yaml", "/")
		if !t.Exists(file) {
			return file, t.Err()
		}
	}
}

// checkApproval makes sure that an approval counts, that all others count as
// they did, and that nothing else of what is rendered has changed.
func (w *writeback) checkApproval(in intent, tree plumbing.Hash, file string, before []plan.Approval) error {
	t, err := gittree.OpenTree(w.scratch, tree)
	if err != nil {
		return err
	}
	after, _ := w.approvals(t)
	if t.Err() != nil {
		return t.Err()
	}
	if a, why := plan.MatchApproval(in.release, in.commit, after); !in.covers(a) {
		return &cannot{fact: "it would not count in " + file + ": " + why.Error(), hint: "remove other approvals of the release"}
	}
	others := func(list []plan.Approval) []string {
		var said []string
		for _, a := range list {
			if a.Metadata.Namespace != in.release.Plan.Namespace || a.Metadata.Name != in.release.Plan.Name {
				said = append(said, fmt.Sprintf("%s %s/%s %+v", a.File, a.Metadata.Namespace, a.Metadata.Name, a.Spec))
			}
		}
		return said
	}
	if !slices.Equal(others(before), others(after)) {
		return &cannot{fact: "it would change other approvals in " + file, hint: "give each release a file of its own"}
	}
	if unchanged, err := w.commit.desired.Reads.Unchanged(t); err != nil || unchanged && !w.commit.desired.HasBases {
		return err
	}
	set, err := w.commit.renderer.Render(t)
	if err != nil {
		return cmp.Or(t.Err(), error(&cannot{fact: "with it the branch does not render: " + plan.OneLine(err.Error())}))
	}
	if where := revert.Keeps(nil, w.set, set); where != "" {
		return &cannot{fact: "it would change " + where, hint: "let spec.approvals.path be a folder that is not rendered"}
	}
	return nil
}

// tellIntents tells what the branch does not say, when that is something else
// than before.
func (l *look) tellIntents() {
	if len(l.outcome.intents) == 0 {
		return
	}
	reason, message := l.outcome.intents[0].Reason, l.outcome.intents.Error()
	was := meta.FindStatusCondition(l.before.Conditions, conditionInSync)
	if was != nil && was.Reason == reason && strings.HasPrefix(was.Message, oneCondition(message)) {
		return
	}
	l.log.Info("not in Git", "reason", reason, "commit", l.outcome.commit, "because", message)
	l.events.Eventf(l.gs, nil, corev1.EventTypeWarning, reason, "Sync", "%s", eventNote(message))
}

// newUpdate packs a commit of a scratch store.
func newUpdate(s *gitobject.Store, branch string, from, to plumbing.Hash) (gitserver.Update, error) {
	pack, err := s.Pack(to)
	if err != nil {
		return gitserver.Update{}, err
	}
	return gitserver.Update{Branch: branch, From: from, To: to, Pack: pack}, nil
}

// push is [gitserver.Remote.Push], while another sync works.
func push(ctx context.Context, r gitserver.Remote, u gitserver.Update, timeout time.Duration) error {
	_, err := turns.Exchange(ctx, func() (any, error) { return nil, r.Push(ctx, u, timeout) })
	return err
}
