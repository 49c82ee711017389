package desired

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/replay"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// History answers what the branch says about a release.
type History struct {
	Reader *Reader
	// Replay finds out which approvals are too old for a release.
	Replay   *replay.Check
	State    *State
	rendered map[plumbing.Hash]State // older commits
	// approvers are who signed the approvals that are signed, by file.
	approvers map[string]signature.Signature
}

// NewHistory returns what the branch of a reader says, at a state that the reader has read.
func NewHistory(r *Reader, d *State) *History {
	check := &replay.Check{Source: r.Source, Order: r.Order}
	if r.Snapshot != nil { // a preview may have none
		check.Store, check.Tip = r.Snapshot, r.Snapshot.Tip
	}
	return &History{Reader: r, Replay: check, State: d, rendered: map[plumbing.Hash]State{}, approvers: map[string]signature.Signature{}}
}

// ReleaseCommit returns the commit that names a release, together with its
// revision: the first of the present run of commits that render its template.
//
// A release that is in the cluster already keeps its commit while its run lasts. A
// docs commit on top of it is no other release. The run is over if the branch took the
// template away and brought it again since the last synced commit. That holds even if
// the cluster never saw it. Then it is another release, which needs an approval of its
// own. Whether the controller looked in between makes no difference.
//
// If history was rewritten, this cannot be known, and the release keeps its commit, on
// the branch or not. The release under way is the one that the branch has. A rebase
// neither starts it again nor takes its approvals.
func (h *History) ReleaseCommit(ctx context.Context, r *plan.Release, live *v1alpha1.BatchRelease) (string, error) {
	switch {
	case live == nil:
		return h.State.Commit, nil
	case live.Spec.Commit == "" || !plan.EqualTemplate(live.Spec.Template, r.Template):
		first, err := h.runStart(ctx, r)
		return first.String(), err
	case live.Labels[v1alpha1.LabelSource] != "" && !inventory.IsOwned(live, h.Reader.Source):
		return live.Spec.Commit, nil // handed over by another source, whose history this one does not render
	}
	left, err := h.leftAndCame(ctx, r, live)
	if err != nil || !left {
		return live.Spec.Commit, err
	}
	first, err := h.runStart(ctx, r)
	return first.String(), err
}

// MaxWalk is how many commits are looked at to find where a release began. It
// takes a second or two, once; in a longer run the oldest of them names it.
const MaxWalk = 10_000

// visit is a commit of a walk, with what is read for the answer of the commits after it.
type visit struct {
	commit *object.Commit
	reads  gittree.Reads
}

// insertByDate puts a commit into a queue of which the newest commit is first.
func insertByDate(queue []visit, next visit) []visit {
	i, _ := slices.BinarySearchFunc(queue, next, func(v, next visit) int {
		return next.commit.Committer.When.Compare(v.commit.Committer.When)
	})
	return slices.Insert(queue, i, next)
}

// leftAndCame reports whether the branch took the template of a release in the cluster
// away and brought it again, since the last synced commit. Then the tip's history has
// that commit, but no way from the tip leads to it through commits that render the
// template. Newer commits are visited first, so that the merge of an old branch costs
// no walk through its past.
func (h *History) leftAndCame(ctx context.Context, r *plan.Release, live *v1alpha1.BatchRelease) (bool, error) {
	synced, named := plumbing.NewHash(h.Reader.Source.Status.AppliedCommit), plumbing.NewHash(live.Spec.Commit)
	if synced.IsZero() || h.Reader.Bases != nil {
		return false, nil // bases elsewhere: what an older commit rendered is not known
	}
	tip, err := object.GetCommit(h.Reader.Snapshot, h.Reader.Snapshot.Commit)
	if err != nil {
		return false, gittree.Missing("commit", h.Reader.Snapshot.Commit, err)
	}
	isKnown := func(commit plumbing.Hash) bool { return commit == synced || commit == named }
	if isKnown(tip.Hash) {
		return false, nil
	}
	queue, seen := []visit{{tip, h.State.Reads}}, map[plumbing.Hash]bool{tip.Hash: true}
	for looked := 0; len(queue) > 0; looked++ {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if looked > MaxWalk {
			return false, nil
		}
		at := queue[0]
		queue = queue[1:]
		for _, parent := range at.commit.ParentHashes {
			if seen[parent] {
				continue
			}
			if isKnown(parent) {
				return false, nil
			}
			seen[parent] = true
			answer, reads, err := h.Renders(parent, at.reads, r)
			if err != nil {
				return false, err
			}
			if answer == RendersOther {
				continue
			}
			c, err := object.GetCommit(h.Reader.Snapshot, parent)
			if err != nil {
				return false, gittree.Missing("commit", parent, err)
			}
			queue = insertByDate(queue, visit{c, reads})
		}
	}
	rewritten, err := h.Reader.Snapshot.ForcePushed(synced)
	return !rewritten, err
}

// runStart walks from the tip along first parents, while the parent renders an equal
// template and was not synced before.
func (h *History) runStart(ctx context.Context, r *plan.Release) (plumbing.Hash, error) {
	synced := plumbing.NewHash(h.Reader.Source.Status.AppliedCommit)
	reads := h.State.Reads
	at := h.Reader.Snapshot.Commit
	for range MaxWalk {
		if err := ctx.Err(); err != nil {
			return plumbing.ZeroHash, err
		}
		c, err := object.GetCommit(h.Reader.Snapshot, at)
		if err != nil {
			return plumbing.ZeroHash, gittree.Missing("commit", at, err)
		}
		if len(c.ParentHashes) == 0 || c.ParentHashes[0] == synced {
			return at, nil
		}
		parent := c.ParentHashes[0]
		answer, next, err := h.Renders(parent, reads, r)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if answer != RendersSame {
			return at, nil
		}
		at, reads = parent, next
	}
	return at, nil
}

// answer is what a commit has for a release.
type answer int

const (
	// RendersSame: the template of the release.
	RendersSame answer = iota
	// RendersOther: another template, or no such Deployment.
	RendersOther
	// rendersNothing: it does not render, and was never applied.
	rendersNothing
)

// Renders returns what a commit renders for a release, and what was read for the
// answer. If nothing can be rendered, that is as much as the commit after it has read.
// Most commits change nothing that was read for the one after them, and are not
// rendered.
func (h *History) Renders(commit plumbing.Hash, reads gittree.Reads, r *plan.Release) (answer, gittree.Reads, error) {
	t, err := gittree.Open(h.Reader.Snapshot, commit)
	if err != nil {
		return rendersNothing, nil, err
	}
	if h.Reader.Bases == nil {
		unchanged, err := reads.Unchanged(t)
		if err != nil || unchanged {
			return RendersSame, reads, err
		}
	}
	d, err := h.Older(commit, t)
	if err != nil || d.Set == nil {
		return rendersNothing, reads, err
	}
	if template := TemplateIn(d.Set, r); template != nil && plan.EqualTemplate(template, r.Template) {
		return RendersSame, d.Reads, nil
	}
	return RendersOther, d.Reads, nil
}

// keptRenderings is how many older commits are kept as rendered during a sync: all
// releases of a source ask for the same few.
const keptRenderings = 64

// unknownRendering is the error of what depends on what an older commit renders, while
// that is not known. To take such a commit for one that renders nothing would hide who has
// written what in it.
type unknownRendering struct {
	commit plumbing.Hash
	err    error
}

func (u *unknownRendering) Error() string {
	return fmt.Sprintf("what commit %s renders is not known: %s", plan.ShortCommit(u.commit.String()), plan.OneLine(u.err.Error()))
}

// Older renders an older commit; the set is nil where it does not render, and where
// unknown says why that is not known. The cluster is not asked for the scope of its kinds:
// what a commit said does not change with the kinds that the cluster knows.
func (h *History) Older(commit plumbing.Hash, t *gittree.Tree) (State, error) {
	if d, ok := h.rendered[commit]; ok {
		return d, nil
	}
	known := h.Reader.Exceeded.of(h.Reader)
	if known != nil && known.older[commit].Reads != nil {
		return known.older[commit], nil
	}
	d, failed, err := h.Reader.renderPast(t, commit)
	if err != nil {
		return State{}, err
	}
	if !d.HasBases {
		known.noteOlder(commit, d, failed)
	}
	if len(h.rendered) < keptRenderings {
		h.rendered[commit] = d
	}
	return d, nil
}

// ApprovedSteps are the replicas of the steps that a plan had in a commit. They
// are kept between syncs, or a plan that was edited after its approval would cost
// one rendering for each sync. A nil value says that the commit has no such plan.
type ApprovedSteps map[string][]intstr.IntOrString

// keptSteps bounds them.
const keptSteps = 100

// StepsIn returns the replicas of the steps that the plan of a release's Deployment had
// in a commit. They are nil if the commit does not render, or has no valid plan of that
// name for the Deployment. If this cannot be found out, it returns an error. A plan may be
// renamed without an approval, and an approval names the plan. The name must not lead
// from the approved Deployment to another one.
func (h *History) StepsIn(commit string, r *plan.Release) ([]intstr.IntOrString, error) {
	key := strings.Join([]string{h.Reader.Key(), commit, r.Deployment.GetNamespace(), r.Deployment.GetName(), r.Plan.Name}, " ")
	if steps, ok := h.Reader.Approved[key]; ok {
		return steps, nil
	}
	t, err := gittree.Open(h.Reader.Snapshot, plumbing.NewHash(commit))
	if err != nil {
		return nil, err
	}
	same := commit == h.State.Commit
	if !same && h.Reader.Bases == nil {
		if same, err = h.State.Reads.Unchanged(t); err != nil {
			return nil, err
		}
	}
	if same {
		return stepsOf(h.State.Set, r), nil
	}
	d, err := h.Older(plumbing.NewHash(commit), t)
	if err != nil {
		return nil, err
	}
	if d.unknown != nil {
		return nil, d.unknown
	}
	steps := stepsOf(cmp.Or(d.Set, d.Valid), r)
	if h.Reader.Approved != nil && h.Reader.Bases == nil {
		if len(h.Reader.Approved) >= keptSteps {
			clear(h.Reader.Approved)
		}
		h.Reader.Approved[key] = steps
	}
	return steps, nil
}

// stepsOf returns the replicas of the steps that a set has for the Deployment of a
// release, by the plan of its name.
func stepsOf(set *plan.Set, r *plan.Release) []intstr.IntOrString {
	if set == nil {
		return nil
	}
	then := set.Governed(r.Deployment)
	if then == nil || then.Plan.Name != r.Plan.Name {
		return nil
	}
	return plan.StepReplicas(then.Plan.Spec.Strategy.Steps)
}
