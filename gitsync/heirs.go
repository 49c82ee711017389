package gitsync

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// heir is the GitSource to whose path a commit has moved the manifest of an object.
type heir struct {
	source types.NamespacedName
	// unknown: it may have the object, but does not render.
	unknown bool
}

// heirs are the heirs by the ids of the objects.
type heirs map[string]heir

// heirsOf returns the heirs of objects that left the branch. An heir follows the same
// branch of the same URL and renders the object at the same commit, and its account may
// write the object: a source of another tenant would else keep objects from being pruned.
//
// The source that the object leaves asks, and not the one that it comes to, since either
// may look first. Nothing is rendered where nothing leaves the branch. A ConfigMap or
// Secret that kustomize generates under another name does not leave it.
func (l *look) heirsOf(ctx context.Context, s *snapshot, wanted inventory) (heirs, error) {
	generated := wanted.generated()
	var gone []entry
	for _, e := range readInventory(l.gs.Status.Inventory).without(wanted) {
		if !generated[e.generated()] {
			gone = append(gone, e)
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	sources, err := listSources(ctx, l.own)
	if err != nil {
		return nil, err
	}
	found := heirs{}
	for i := range sources.Items {
		other := &sources.Items[i]
		if other.UID == l.gs.UID || other.DeletionTimestamp != nil || !sameBranch(other, l.gs) || neverRead(other) {
			continue
		}
		if err := l.inherits(ctx, s, other, gone, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// neverRead reports whether a source has looked, and has never read its branch: it may be
// that of a tenant who lacks the right to.
func neverRead(gs *v1alpha1.GitSource) bool {
	return gs.Status.ObservedGeneration != 0 && gs.Status.ObservedCommit == ""
}

// inherits adds the objects that another source has at the commit of a snapshot, and may
// write: for one that may write none of them, nothing is rendered. What it rendered in its
// own last look is used where the commit has not changed that.
func (l *look) inherits(ctx context.Context, s *snapshot, other *v1alpha1.GitSource, gone []entry, found heirs) error {
	as, err := l.writers.as(other.Namespace, other.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	var may []entry
	for _, e := range gone {
		if h, ok := found[e.id()]; (!ok || h.unknown) && mayPatch(ctx, as, e) {
			may = append(may, e)
		}
	}
	if len(may) == 0 {
		return ctx.Err()
	}
	name := client.ObjectKeyFromObject(other)
	r := &renderer{snapshot: s, gs: other, mapper: l.mapper, bases: l.bases(ctx), in: l.options.Renderer}
	d, _, err := r.desired(l.recall(name).desired)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	renders, unknown := inventory{}, err != nil
	if !unknown {
		for _, o := range d.set.Objects {
			renders.add(entryOf(o.Unstructured))
		}
		for i := range d.set.Releases {
			renders.add(planEntry(d.set.Releases[i].Plan))
		}
	}
	for _, e := range may {
		if _, ok := renders[e.id()]; ok || unknown {
			found[e.id()] = heir{name, unknown}
		}
	}
	return nil
}

// mayPatch reports whether an account may write an object that is there.
func mayPatch(ctx context.Context, as client.Client, e entry) bool {
	nothing := client.RawPatch(types.MergePatchType, []byte("{}"))
	return as.Patch(ctx, named(e), nothing, client.FieldOwner(v1alpha1.ManagerGitSync), client.DryRunAll) == nil
}

// certain are the objects that have an heir which renders them.
func (h heirs) certain() inventory {
	inv := inventory{}
	for id, heir := range h {
		if !heir.unknown {
			inv[id] = entry{}
		}
	}
	return inv
}

// split takes the objects that have an heir out of those that left the branch: those that
// go over to it, and those that stay for now, since it does not render.
func (h heirs) split(gone []entry) (left, over, unclear []entry) {
	for _, e := range gone {
		switch heir, ok := h[e.id()]; {
		case !ok:
			left = append(left, e)
		case heir.unknown:
			unclear = append(unclear, e)
		default:
			over = append(over, e)
		}
	}
	return left, over, unclear
}

// String names the heir.
func (h heir) String() string { return fmt.Sprintf("GitSource %s", h.source) }
