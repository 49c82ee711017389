package prune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// few is how many objects may be deleted at once without a confirmation, whatever their
// share is.
const few = 2

// Change is what a commit changes in the inventory of its GitSource.
type Change struct {
	Source *v1alpha1.GitSource
	// Before is the inventory, and Wanted that of the commit, with the objects that move to
	// another source.
	Before, Wanted inventory.Set
	Commit         string
	// Releases are the plans of the commit.
	Releases []plan.Release
	// Unclear says, by the ids of objects that left the branch, which source may have them and cannot
	// apply them.
	Unclear map[string]string
	// Elsewhere says which fields of the spec were edited, so that the source looks elsewhere
	// than where Before comes from; empty: none.
	Elsewhere string
}

// CheckLimit refuses a commit that would delete more than half of what was applied. That is
// more likely a slip in a path, or a kustomization that lost its list, than meant. An
// annotation of the GitSource with the commit confirms it. Objects in status.kept have left
// the branch before, and do not count. Neither do objects that kustomize generates under
// another name, nor those that are not in the cluster. The inventory has all of a commit of which
// the API server refused a part.
//
// A deletion by an edit of the spec is refused in any number: no commit has deleted the object. So is
// another namespace or name for a Deployment with a plan, since all its pods would go and come at once. So is
// the move of its plan alone, and the deletion of a GitSource that would take more with it than its own
// manifest says.
func CheckLimit(ctx context.Context, as client.Reader, c Change) error {
	before, gone := c.gone()
	all, gs := len(before), c.Source
	if c.isConfirmed() {
		return nil
	}
	stranded, strands := c.strands(ctx, as)
	for _, e := range stranded {
		if !slices.Contains(gone, e) { // it is one of status.kept
			gone, all = append(gone, e), all+1
		}
	}
	because := cmp.Or(c.Elsewhere, c.moves(gone), c.renames(ctx, as, gone), strands, c.takes(ctx, as, gone))
	if because == "" && (!gs.Spec.Prune || !exceeds(len(gone), all)) {
		return nil
	}
	switch was := len(gone); {
	case because != "":
		gone, because = c.deleted(ctx, as, gone), ", since "+because
		if len(gone) == 0 {
			return nil
		}
	case gs.Status.AppliedWith == "":
		gone = slices.DeleteFunc(gone, func(e inventory.Entry) bool { return isAbsent(ctx, as, e) })
		all -= was - len(gone)
		if !exceeds(len(gone), all) {
			return nil
		}
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonPruneRefused, Where: gs.Spec.Ref.String() + "@" + plan.ShortCommit(c.Commit),
		Err: fmt.Errorf("%d of the %d objects that were applied would be deleted%s: %s",
			len(gone), all, because, plan.JoinNames(inventory.Names(gone))),
		Hint: fmt.Sprintf("if that is meant, kubectl annotate -n %s gitsource %s --overwrite %s=%s%s",
			gs.Namespace, gs.Name, v1alpha1.AnnotationConfirmPrune, plan.ShortCommit(c.Commit), c.suffix()),
	}
}

// gone returns the objects that count, and those of them that the commit does not have.
func (c *Change) gone() (before inventory.Set, gone []inventory.Entry) {
	before = maps.Clone(c.Before)
	for _, k := range c.Source.Status.Kept {
		delete(before, k.ID)
	}
	generated := c.Wanted.Generated()
	return before, slices.DeleteFunc(before.Without(c.Wanted), func(e inventory.Entry) bool { return generated[e.WithoutHash()] })
}

// suffix is what an annotation has behind the commit. An edit of the spec brings no commit, and
// the one that is applied may be confirmed already. So the confirmation is for the generation.
func (c *Change) suffix() string {
	if c.Elsewhere == "" {
		return ""
	}
	return fmt.Sprintf(".%d", c.Source.Generation)
}

func (c *Change) isConfirmed() bool {
	commit, ok := strings.CutSuffix(strings.ToLower(c.Source.Annotations[v1alpha1.AnnotationConfirmPrune]), c.suffix())
	return ok && len(commit) >= shortestCommit && strings.HasPrefix(c.Commit, commit)
}

// moves says which Deployment with a plan comes under the same name in another namespace; empty:
// none. The plan goes with it.
func (c *Change) moves(gone []inventory.Entry) string {
	plans := map[string]bool{}
	for _, e := range gone {
		plans[e.Namespace] = plans[e.Namespace] || inventory.IsRelease(e)
	}
	for _, e := range gone {
		if e.GVK.GroupKind() != inventory.DeploymentKind || !plans[e.Namespace] {
			continue
		}
		for id, to := range c.Wanted {
			if _, known := c.Before[id]; !known && to.GVK.GroupKind() == e.GVK.GroupKind() && to.Name == e.Name {
				return fmt.Sprintf("the commit has %s in namespace %s, where all pods of its template come at once", e, to.Namespace)
			}
		}
	}
	return ""
}

// renames says which Deployment with a plan another one replaces in its namespace; empty: none. The other
// one may be the same under another name. With signers it has been approved that this one goes.
func (c *Change) renames(ctx context.Context, as client.Reader, gone []inventory.Entry) string {
	if a := c.Source.Spec.Approvals; a != nil && a.Signers != nil {
		return ""
	}
	for _, e := range gone {
		to := c.comesWith(e)
		if to == "" || len(c.deleted(ctx, as, []inventory.Entry{e})) == 0 || !c.hasPlan(ctx, as, e) {
			continue
		}
		return fmt.Sprintf("the commit has %s in place of %s: all pods of the new one come without gates, while all of the old one go "+
			"(push the new one first, and remove the old one by a later push)", to, e)
	}
	return ""
}

// comesWith names a Deployment that is new in the namespace of one that goes; empty: none is.
func (c *Change) comesWith(gone inventory.Entry) string {
	if gone.GVK.GroupKind() != inventory.DeploymentKind {
		return ""
	}
	var names []string
	for id, e := range c.Wanted {
		if _, known := c.Before[id]; !known && e.GVK.GroupKind() == inventory.DeploymentKind && e.Namespace == gone.Namespace {
			names = append(names, e.String())
		}
	}
	slices.Sort(names)
	return strings.Join(names[:min(1, len(names))], "")
}

// hasPlan reports whether a plan that was applied is for a Deployment. One that cannot be read may be.
func (c *Change) hasPlan(ctx context.Context, as client.Reader, deployment inventory.Entry) bool {
	for _, e := range c.Before {
		if inventory.IsRelease(e) && e.Namespace == deployment.Namespace && isFor(ctx, as, e, deployment.Name) {
			return true
		}
	}
	return false
}

// isFor reports whether a plan in the cluster is for a Deployment. One that cannot be read may be.
func isFor(ctx context.Context, as client.Reader, plan inventory.Entry, deployment string) bool {
	live, err := inventory.Get(ctx, as, plan)
	if err != nil || live == nil || live.GetDeletionTimestamp() != nil {
		return err != nil
	}
	of, _, _ := unstructured.NestedString(live.Object, "spec", "workloadRef", "name")
	return of == deployment
}

// strands returns the plans that another source may have, and of which the Deployment stays; it says which
// one. A plan is of no use there, and the Deployment would be handed back, past its gates. With
// signers it has been approved that the plan goes.
func (c *Change) strands(ctx context.Context, as client.Reader) (plans []inventory.Entry, because string) {
	if a := c.Source.Spec.Approvals; a != nil && a.Signers != nil {
		return nil, ""
	}
	for _, e := range c.Before.Without(c.Wanted) {
		by, unclear := c.Unclear[e.ID()]
		if !unclear || !inventory.IsRelease(e) {
			continue
		}
		if d := c.staysWithout(ctx, as, e); d != "" {
			plans, because = append(plans, e), fmt.Sprintf("%s would stay without a plan; %s (move both by one commit)", d, by)
		}
	}
	return plans, because
}

// staysWithout names the Deployment of a plan in the cluster for which the commit has no plan; empty: it
// has no such Deployment. A plan that cannot be read may be for each.
func (c *Change) staysWithout(ctx context.Context, as client.Reader, plan inventory.Entry) string {
	var names []string
	for _, d := range c.Wanted {
		if d.GVK.GroupKind() == inventory.DeploymentKind && d.Namespace == plan.Namespace && !c.isGoverned(d) && isFor(ctx, as, plan, d.Name) {
			names = append(names, d.String())
		}
	}
	slices.Sort(names)
	return strings.Join(names[:min(1, len(names))], "")
}

// isGoverned reports whether the commit has a plan for a Deployment.
func (c *Change) isGoverned(deployment inventory.Entry) bool {
	return slices.ContainsFunc(c.Releases, func(r plan.Release) bool {
		return plan.WorkloadOf(&r) == client.ObjectKey{Namespace: deployment.Namespace, Name: deployment.Name}
	})
}

// takes says which GitSource would be deleted that takes other objects with it; empty: none. It is
// the source itself, one that prunes more than few objects, or one with a plan. A Deployment with a
// plan would be handed back, past the gates of its release.
func (c *Change) takes(ctx context.Context, as client.Reader, gone []inventory.Entry) string {
	for _, e := range gone {
		if e.GVK.GroupKind() != inventory.SourceKind || len(c.deleted(ctx, as, []inventory.Entry{e})) == 0 {
			continue
		}
		if e.Namespace == c.Source.Namespace && e.Name == c.Source.Name {
			return e.String() + " is this source, which deletes all that it has applied when it is deleted"
		}
		live, err := inventory.Get(ctx, as, e)
		if err != nil || live == nil {
			return e.String() + " may delete what it has applied, and it could not be read"
		}
		var gs v1alpha1.GitSource
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &gs); err != nil {
			return e.String() + " may delete what it has applied, and its status is not valid"
		}
		if says := takenWith(&gs); says != "" && !gs.Spec.Suspend {
			return e.String() + says
		}
	}
	return ""
}

// takenWith says what a GitSource takes with it; empty: too little to ask.
func takenWith(gs *v1alpha1.GitSource) string {
	applied := inventory.Read(gs.Status.Inventory)
	for _, e := range applied {
		if inventory.IsRelease(e) {
			return " applies " + e.String() + ", and its Deployment would be handed back or deleted"
		}
	}
	if !gs.Spec.Prune || len(applied) <= few {
		return ""
	}
	return fmt.Sprintf(" would delete the %d objects that it has applied", len(applied))
}

// deleted returns which of the objects are in the cluster and would be deleted. A plan whose Deployment
// stays is, whatever its annotations: the Deployment is handed back.
func (c *Change) deleted(ctx context.Context, as client.Reader, gone []inventory.Entry) []inventory.Entry {
	return slices.DeleteFunc(gone, func(e inventory.Entry) bool {
		if !c.Source.Spec.Prune && !inventory.IsRelease(e) {
			return true
		}
		live, err := inventory.Get(ctx, as, e)
		if err != nil {
			return false
		}
		if live == nil || live.GetDeletionTimestamp() != nil {
			return true
		}
		action, _ := Decide(live, c.Source, nil)
		return action == Leave && (!inventory.IsRelease(e) || !inventory.IsOwned(live, c.Source) || c.staysWithout(ctx, as, e) == "")
	})
}

// exceeds reports whether so many of all objects are not deleted without a confirmation.
func exceeds(gone, all int) bool { return gone > few && 2*gone > all }

// isAbsent reports whether an object is surely not in the cluster.
func isAbsent(ctx context.Context, as client.Reader, e inventory.Entry) bool {
	live, err := inventory.Get(ctx, as, e)
	return err == nil && live == nil
}

// shortestCommit is the minimum length of a commit in the annotation.
const shortestCommit = 7

// RefuseEmpty refuses a commit that has no objects at all: that is rather a mistake in
// a path than the intention to remove everything (G1).
func RefuseEmpty(gs *v1alpha1.GitSource, set *plan.Set) error {
	if len(set.Objects) > 0 || len(set.Releases) > 0 || gs.Status.Inventory == nil {
		return nil
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonNothingToApply, Where: gs.Spec.Path,
		Err: errors.New("nothing is rendered, and all that was applied would have to go"),
		Hint: "correct spec.path; to remove everything, delete the GitSource; if all has moved to another GitSource, keep one object " +
			"here until that one has the rest",
	}
}
