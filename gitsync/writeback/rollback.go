package writeback

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/revert"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// maxBack bounds how many commits are gone back for what is stable.
	maxBack = 10_000
	// maxRenders bounds how many of them are rendered.
	maxRenders = 200
	// maxNarrowed is the number of files of a commit up to which it is tried
	// to take back only some of them.
	maxNarrowed = 32
)

// movesOthers says that a revert would move other releases than it should: those of this
// source by their names, or those of other sources.
type movesOthers struct {
	names     []string
	elsewhere *elsewhere // nil: not asked, since names has some
}

func (m *movesOthers) Error() string {
	names := m.names
	var unsure []string
	if m.elsewhere != nil {
		names, unsure = m.elsewhere.names(), m.elsewhere.unsure()
	}
	var facts []string
	if len(names) > 0 {
		facts = append(facts, "it would move "+plan.JoinNames(names)+", too")
	}
	if len(unsure) > 0 {
		facts = append(facts, "it changes files that "+plan.JoinNames(unsure)+" read and cannot render, so what it would move there is not known")
	}
	return strings.Join(facts, ", and ")
}

// refusal is what InSync says of a revert that would move others. Those of other sources
// may be rolled back, too, or render again, without a commit to this source.
func (m *movesOthers) refusal() *cannot {
	if m.elsewhere != nil {
		hint := "roll all of them back with tranche rollback NAME --with NAMESPACE/NAME, or give each source a file of its own for the image"
		return &cannot{fact: m.Error(), hint: hint, again: true}
	}
	return &cannot{fact: m.Error(), hint: "put the old state back by hand, or roll the others back, too"}
}

// goal is a release that is to be reverted, and the template to come to.
type goal struct {
	intent
	template *corev1.PodTemplateSpec
}

// revert commits that the branch takes back what the group's releases brought. That is
// the whole change of the commits that made the releases, as far as this source
// renders it. If that would move other releases as well, it leaves out the files that
// would move them.
func (w *attempt) revert(ctx context.Context, group []intent) error {
	goals, commits, err := w.cause(ctx, group)
	if err != nil {
		return err
	}
	tree, set, err := w.takeBack(ctx, goals, commits, nil)
	if moves, ok := errors.AsType[*movesOthers](err); ok {
		var without map[string]bool
		if without, tree, set, err = w.narrow(ctx, goals, commits); isRefusal(err) {
			err = moves
		}
		for i := range commits {
			commits[i].Only = slices.Sorted(maps.Keys(commits[i].ChangesBut(without)))
		}
	}
	if err != nil {
		return err
	}
	return w.add(tree, set, revertMessage(group, commits), group...)
}

// isRefusal tells what cannot be committed from what went wrong.
func isRefusal(err error) bool {
	_, cannot := errors.AsType[*cannot](err)
	_, moves := errors.AsType[*movesOthers](err)
	return cannot || moves
}

// cause finds the commits that brought what failed, newest first. For each release it
// finds the template that the cluster has gone back to, as Git had it.
func (w *attempt) cause(ctx context.Context, group []intent) ([]goal, []revert.Commit, error) {
	goals := make([]goal, len(group))
	by := map[plumbing.Hash]revert.Commit{}
	for i, in := range group {
		template, commits, err := w.back(ctx, in)
		if err != nil {
			return nil, nil, err
		}
		goals[i] = goal{in, template}
		for _, c := range commits {
			by[c.Hash] = c
		}
	}
	commits := slices.SortedFunc(maps.Values(by), func(a, b revert.Commit) int { return cmp.Compare(a.Place, b.Place) })
	for i := range commits {
		if err := commits[i].Read(w.Snapshot, w.Reader); err != nil {
			return nil, nil, err
		}
	}
	return goals, commits, nil
}

// back goes from the tip along first parents to the first commit that renders what
// runs now. It returns that template, and the commits on the way with which the
// template changed. They are the one that began the release, and those of releases
// that it superseded.
func (w *attempt) back(ctx context.Context, in intent) (*corev1.PodTemplateSpec, []revert.Commit, error) {
	runs, err := running(ctx, w.Account, w.Source, in.release)
	if err != nil {
		return nil, nil, err
	}
	if now, err := runs(in.release.Template); err != nil || now {
		return nil, nil, cmp.Or(err, error(&cannot{fact: "the Deployment has not gone back yet", passes: true}))
	}
	h := desired.NewHistory(w.Reader, w.State)
	var commits []revert.Commit
	at, reads, template := w.Snapshot.Commit, w.State.Reads, in.release.Template
	for place, renders := 0, 0; place < maxBack && renders < maxRenders; place++ {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		c, err := object.GetCommit(w.Snapshot, at)
		if err != nil {
			return nil, nil, gittree.Missing("commit", at, err)
		}
		if len(c.ParentHashes) == 0 {
			break
		}
		parent := c.ParentHashes[0]
		before, next, err := templateBefore(h, parent, reads, in.release, template)
		if err != nil {
			return nil, nil, err
		}
		if before == nil || !plan.EqualTemplate(before, template) {
			renders++
			commits = append(commits,
				revert.Commit{Hash: at, Parent: parent, Subject: revert.SubjectOf(c.Message), Merge: len(c.ParentHashes) > 1, Place: place})
			if before != nil {
				now, err := runs(before)
				if err != nil || now {
					return before, commits, err
				}
			}
		}
		at, reads, template = parent, next, before
	}
	return nil, nil, &cannot{fact: fmt.Sprintf("no commit of the branch renders what the cluster has gone back to, %s", in.stable),
		hint: "commit the state that you want by hand"}
}

// templateBefore returns the template that a commit renders, nil where it does not. If
// nothing changed that was read for the commit after it, it is the template of that
// commit.
func templateBefore(
	h *desired.History, commit plumbing.Hash, reads gittree.Reads, r *plan.Release, after *corev1.PodTemplateSpec,
) (*corev1.PodTemplateSpec, gittree.Reads, error) {
	t, err := gittree.Open(h.Reader.Snapshot, commit)
	if err != nil {
		return nil, nil, err
	}
	if h.Reader.Bases == nil {
		unchanged, err := reads.Unchanged(t)
		if err != nil || unchanged {
			return after, reads, err
		}
	}
	d, err := h.Older(commit, t)
	if err != nil || d.Set == nil {
		return nil, d.Reads, err
	}
	return desired.TemplateIn(d.Set, r), d.Reads, nil
}

// running returns a function that tells whether a template of Git is what the
// release's Deployment has now. The API server fills in its defaults for the
// comparison. It does so in a dry run of the write that a release makes, as the
// account of gs.
func running(
	ctx context.Context, as client.Client, gs *v1alpha1.GitSource, r *plan.Release,
) (func(*corev1.PodTemplateSpec) (bool, error), error) {
	var live appsv1.Deployment
	key := client.ObjectKey{Namespace: r.Deployment.GetNamespace(), Name: r.Deployment.GetName()}
	if err := as.Get(ctx, key, &live); err != nil {
		return nil, fmt.Errorf("getting Deployment %s: %w", key, err)
	}
	return func(template *corev1.PodTemplateSpec) (bool, error) {
		patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec/template", "value": template}})
		if err != nil {
			return false, fmt.Errorf("encoding a template of %s: %w", r, err)
		}
		answer := live.DeepCopy()
		err = as.Patch(ctx, answer, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(v1alpha1.ManagerRollout), client.DryRunAll)
		if err != nil {
			return false, apiproblem.Or(apiproblem.Of(v1alpha1.ReasonWriteBackConflict, r.Deployment, gs, err), err)
		}
		return plan.EqualTemplate(&answer.Spec.Template, &live.Spec.Template), nil
	}, nil
}

// takeBack undoes commits on the head, except for some files, and checks what
// comes out.
func (w *attempt) takeBack(
	ctx context.Context, goals []goal, commits []revert.Commit, without map[string]bool,
) (plumbing.Hash, *plan.Set, error) {
	tree := w.tree
	var conflicts []string
	for _, c := range commits {
		next, more, err := c.Undo(w.scratch, tree, without)
		if err != nil {
			return plumbing.ZeroHash, nil, err
		}
		tree, conflicts = next, append(conflicts, more...)
	}
	if len(conflicts) > 0 {
		fact, err := w.conflictOf(conflicts)
		return plumbing.ZeroHash, nil, cmp.Or(err, error(&cannot{fact: fact, hint: "put the old state back by hand"}))
	}
	set, err := w.yields(goals, tree)
	if err != nil {
		return plumbing.ZeroHash, nil, err
	}
	if moved := w.moved(goals, set); len(moved) > 0 {
		return plumbing.ZeroHash, nil, &movesOthers{names: moved}
	}
	if where := revert.Keeps(commits, w.set, set); where != "" {
		return plumbing.ZeroHash, nil,
			&cannot{fact: "it would change " + where + ", which is not of the release", hint: "put the old state back by hand"}
	}
	others, err := w.sharers.movedBy(ctx, w.scratch, w.tree, tree)
	if err == nil && !others.isEmpty() {
		err = &movesOthers{elsewhere: others}
	}
	return tree, set, err
}

// conflictOf says why files cannot be taken back: other lines, or the file is gone.
func (w *attempt) conflictOf(files []string) (string, error) {
	slices.Sort(files)
	var changed, gone, facts []string
	for _, p := range slices.Compact(files) {
		e, err := gitobject.EntryAt(w.scratch, w.tree, p)
		switch {
		case err != nil:
			return "", err
		case e.Mode == filemode.Empty:
			gone = append(gone, p)
		default:
			changed = append(changed, p)
		}
	}
	if len(changed) > 0 {
		facts = append(facts, plan.JoinNames(changed)+" changed since in the same lines")
	}
	if len(gone) > 0 {
		facts = append(facts, "later commits removed or renamed "+plan.JoinNames(gone))
	}
	return strings.Join(facts, ", and "), nil
}

// yields renders a tree and makes sure that it brings the templates to come to.
func (w *attempt) yields(goals []goal, tree plumbing.Hash) (*plan.Set, error) {
	t, err := gittree.OpenTree(w.scratch, tree)
	if err != nil {
		return nil, err
	}
	set, err := w.Reader.Render(t)
	if t.Err() != nil {
		return nil, t.Err()
	}
	if err != nil {
		return nil, &cannot{fact: "the result does not render: " + plan.OneLine(err.Error()), hint: "put the old state back by hand"}
	}
	for _, g := range goals {
		if template := desired.TemplateIn(set, g.release); template == nil || !plan.EqualTemplate(template, g.template) {
			return nil, &cannot{fact: fmt.Sprintf("taking the release's change back does not bring back %s, since other changes "+
				"came since", g.stable), hint: "put the old state back by hand"}
		}
	}
	return set, nil
}

// moved returns the releases, except for those to be reverted, whose template is no
// longer what the head says.
func (w *attempt) moved(goals []goal, set *plan.Set) []string {
	var moved []string
	for i := range w.set.Releases {
		r := &w.set.Releases[i]
		if slices.ContainsFunc(goals, func(g goal) bool { return plan.ReleaseName(g.release.Plan) == plan.ReleaseName(r.Plan) }) {
			continue
		}
		if template := desired.TemplateIn(set, r); template == nil || !plan.EqualTemplate(template, r.Template) {
			moved = append(moved, plan.ReleaseName(r.Plan))
		}
	}
	return moved
}

// narrow takes back what a commit changed without the files that move other releases.
// First it takes as few files as it takes to come to the templates, and then each of
// the others that moves nothing else.
func (w *attempt) narrow(ctx context.Context, goals []goal, commits []revert.Commit) (map[string]bool, plumbing.Hash, *plan.Set, error) {
	all := map[string]bool{}
	for _, c := range commits {
		for p := range c.Changes {
			all[p] = true
		}
	}
	if len(all) > maxNarrowed {
		return nil, plumbing.ZeroHash, nil, &cannot{fact: "it cannot be taken back in part"}
	}
	without := map[string]bool{}
	for _, p := range slices.Sorted(maps.Keys(all)) {
		without[p] = true
		_, _, err := w.takeBack(ctx, goals, commits, without)
		if _, ok := errors.AsType[*cannot](err); ok {
			delete(without, p)
		} else if err != nil && !isRefusal(err) {
			return nil, plumbing.ZeroHash, nil, err
		}
	}
	for _, p := range slices.Sorted(maps.Keys(without)) {
		delete(without, p)
		if _, _, err := w.takeBack(ctx, goals, commits, without); isRefusal(err) {
			without[p] = true
		} else if err != nil {
			return nil, plumbing.ZeroHash, nil, err
		}
	}
	tree, set, err := w.takeBack(ctx, goals, commits, without)
	return without, tree, set, err
}
