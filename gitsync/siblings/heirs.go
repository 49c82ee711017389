package siblings

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Heir is the GitSource to whose path a commit has moved the manifest of an object.
type Heir struct {
	Source types.NamespacedName
	// Cannot is why it may never apply the object; empty: it can.
	Cannot string
	// Suspended: it applies the object only once it is resumed.
	Suspended bool
}

// Heirs are the heirs by the ids of the objects.
type Heirs map[string]Heir

// HeirsOf returns the heirs of objects that left the branch. An heir follows the same
// branch of the same URL and renders the object at the same commit, and its account may
// write the object. Without that condition a source of another tenant could keep objects
// from being pruned. If an heir refuses the commit, the object stays with the source that
// it leaves. Otherwise it would have no owner while that lasts.
//
// The source that the object leaves asks, and not the one that it comes to, since either
// may sync first. Nothing is rendered where nothing leaves the branch. A ConfigMap or
// Secret that kustomize generates under another name does not leave it.
func (a Access) HeirsOf(ctx context.Context, gs *v1alpha1.GitSource, s *repository.Snapshot, wanted inventory.Set) (Heirs, error) {
	generated := wanted.Generated()
	var gone []inventory.Entry
	for _, e := range inventory.Read(gs.Status.Inventory).Without(wanted) {
		if !generated[e.WithoutHash()] {
			gone = append(gone, e)
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	sources, err := OfBranch(ctx, a.Own, gs)
	if err != nil {
		return nil, err
	}
	found := Heirs{}
	for _, other := range sources {
		if err := a.inherits(ctx, gs, s, other, gone, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// inherits adds the objects that another source has at the commit of a snapshot, and may
// write. If it may write none of them, nothing is rendered. If the commit has not changed
// what it rendered in its own last sync, that rendering is used.
func (a Access) inherits(
	ctx context.Context, gs *v1alpha1.GitSource, s *repository.Snapshot, other *v1alpha1.GitSource, gone []inventory.Entry, found Heirs,
) error {
	as, err := a.As(other.Namespace, other.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	may := found.mayHave(ctx, as, gone)
	if len(may) == 0 {
		return ctx.Err()
	}
	d, err := a.render(s, other)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		found.Add(other, may, nil, "which may have it now and does not render")
		return nil
	}
	cannot, err := Refusal(ctx, a.Own, s, other)
	if err == nil && cannot == "" {
		cannot, err = a.unfit(ctx, gs, other, as, d.Set, may)
	}
	if err != nil {
		return err
	}
	found.Add(other, may, inventory.OfSet(d.Set), cannot)
	return nil
}

// mayHave returns the objects without an heir that an account may write.
func (h Heirs) mayHave(ctx context.Context, as client.Client, gone []inventory.Entry) []inventory.Entry {
	var may []inventory.Entry
	for _, e := range gone {
		if heir, ok := h[e.ID()]; (!ok || heir.Cannot != "") && mayPatch(ctx, as, e) {
			may = append(may, e)
		}
	}
	return may
}

// render returns what another source has at the commit of a snapshot.
func (a Access) render(s *repository.Snapshot, other *v1alpha1.GitSource) (*desired.State, error) {
	r := &desired.Reader{Snapshot: s, Source: other, Mapper: a.Mapper, Bases: a.Bases, Folders: a.Folders}
	d, _, err := r.Read(a.Rendered(client.ObjectKeyFromObject(other)))
	return d, err
}

// Add notes a source as the heir of what it renders, of objects that left the branch; of
// all of them where renders is nil.
func (h Heirs) Add(source *v1alpha1.GitSource, gone []inventory.Entry, renders inventory.Set, cannot string) {
	for _, e := range gone {
		if before, ok := h[e.ID()]; ok && before.Cannot == "" {
			continue
		}
		if _, ok := renders[e.ID()]; ok || renders == nil {
			h[e.ID()] = Heir{client.ObjectKeyFromObject(source), cannot, source.Spec.Suspend}
		}
	}
}

// unfit is why another source cannot apply its part of a commit. The API server refuses
// an object of it, and then that source applies none. Empty: it can, or has none of the
// objects that left the branch. The API server's words are not passed on to other
// namespaces.
func (a Access) unfit(
	ctx context.Context, gs, other *v1alpha1.GitSource, as client.Client, set *plan.Set, gone []inventory.Entry,
) (string, error) {
	objects, err := firstOf(set, gone)
	if err != nil {
		return "", err
	}
	o := apply.NewObserver(other, as, a.Own)
	o.Prerequisites, o.Sources = apply.Prerequisites(set), &v1alpha1.GitSourceList{} // the objects are still this source's
	applier := &apply.Applier{Source: other, Client: as}
	for _, object := range objects {
		ps, err := tryFor(ctx, o, applier, apply.NewTarget(set, object, o.Prerequisites))
		if err != nil {
			return "", fmt.Errorf("trying %s as GitSource %s: %w", inventory.Of(object.Unstructured), client.ObjectKeyFromObject(other), err)
		}
		if len(ps) == 0 {
			continue
		}
		why := ps[0].Reason
		if other.Namespace == gs.Namespace {
			why = ps[0].Error()
		}
		return fmt.Sprintf("which has it now and cannot apply the commit (%s)", why), nil
	}
	return "", nil
}

// firstOf returns the objects and plans of a commit, those of the entries first; none
// where the commit has none of these.
func firstOf(set *plan.Set, first []inventory.Entry) ([]plan.Object, error) {
	all := slices.Clone(set.Objects)
	for i := range set.Releases {
		object, err := apply.ReleaseObject(inventory.WithKind(set.Releases[i].Plan), set.Releases[i].File)
		if err != nil {
			return nil, err
		}
		all = append(all, object)
	}
	is := inventory.SetOf(first)
	n := 0
	for i, o := range all {
		if _, ok := is[inventory.Of(o.Unstructured).ID()]; ok {
			all[n], all[i] = o, all[n]
			n++
		}
	}
	if n == 0 {
		return nil, nil
	}
	return all, nil
}

// tryFor has the API server check an object, and returns why it cannot be applied.
func tryFor(ctx context.Context, o *apply.Observer, a *apply.Applier, t *apply.Target) (plan.Problems, error) {
	if p := credentials.NotFromGit(a.Source, t.Object); p != nil {
		return plan.Problems{p}, nil
	}
	if err := o.Observe(ctx, t); err != nil {
		if ps := apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, a.Source, err); len(ps) > 0 {
			return ps, nil
		}
		return nil, err
	}
	if t.Deferred {
		return nil, nil // what the commit brings has to be there before
	}
	return a.DryRun(ctx, t)
}

// mayPatch reports whether an account may write an object that is there.
func mayPatch(ctx context.Context, as client.Client, e inventory.Entry) bool {
	nothing := client.RawPatch(types.MergePatchType, []byte("{}"))
	return as.Patch(ctx, inventory.Named(e), nothing, client.FieldOwner(v1alpha1.ManagerGitSync), client.DryRunAll) == nil
}

// Certain are the objects that have an heir which can apply them.
func (h Heirs) Certain() inventory.Set {
	inv := inventory.Set{}
	for id, heir := range h {
		if heir.Cannot == "" {
			inv[id] = inventory.Entry{}
		}
	}
	return inv
}

// Unclear says, by the ids of objects that have an heir which cannot apply them, which one that is.
func (h Heirs) Unclear() map[string]string {
	said := map[string]string{}
	for id, heir := range h {
		if heir.Cannot != "" {
			said[id] = heir.String() + ", " + heir.Cannot
		}
	}
	return said
}

// Split takes the objects that have an heir out of those that left the branch. Some go
// over to the heir; others stay, since the heir cannot apply them.
func (h Heirs) Split(gone []inventory.Entry) (left, over, unclear []inventory.Entry) {
	for _, e := range gone {
		switch heir, ok := h[e.ID()]; {
		case !ok:
			left = append(left, e)
		case heir.Cannot != "":
			unclear = append(unclear, e)
		default:
			over = append(over, e)
		}
	}
	return left, over, unclear
}

// String names the heir.
func (h Heir) String() string { return fmt.Sprintf("GitSource %s", h.Source) }

// Has says when the heir has the object.
func (h Heir) Has() string {
	if h.Suspended {
		return h.String() + " has it once it is resumed: it is suspended, and nothing of it is applied until then"
	}
	return h.String() + " has it now"
}
