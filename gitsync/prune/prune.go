package prune

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// annotationPruneEnabled is the value of v1alpha1.AnnotationPrune without
// which what holds data or other objects is not deleted.
const (
	annotationPruneEnabled  = "enabled"
	annotationPruneDisabled = "disabled"
)

// Action is what happens to an object that left the branch.
type Action int

const (
	// Delete it from the cluster.
	Delete Action = iota
	// Leave it: it stays in the cluster and leaves the inventory.
	Leave
	// Keep: it stays in both, and is looked at again.
	Keep
	// Absent: it is gone, or being deleted.
	Absent
)

// Decide says what happens to an object that left the branch, and why. What it
// does not remove it leaves to people.
func Decide(live *unstructured.Unstructured, gs *v1alpha1.GitSource, used Used) (Action, string) {
	annotation := live.GetAnnotations()[v1alpha1.AnnotationPrune]
	kind := live.GroupVersionKind().GroupKind()
	switch {
	case !inventory.IsOwned(live, gs):
		return Leave, "this GitSource does not apply it"
	case kind != inventory.ReleaseKind && metav1.GetControllerOf(live) != nil: // a held Deployment may have adopted it as its stable ReplicaSet
		owner := metav1.GetControllerOf(live)
		return Leave, "it is controlled by " + owner.Kind + " " + owner.Name
	case annotation == annotationPruneDisabled:
		return Leave, "annotation " + v1alpha1.AnnotationPrune + " is " + annotationPruneDisabled
	case inventory.IsLeftAlone(live):
		return Leave, "annotation " + v1alpha1.AnnotationReconcile + " is " + v1alpha1.AnnotationReconcileDisabled
	case kind == inventory.SecretKind && inventory.FieldNaming(gs, live.GetNamespace(), live.GetName()) != "":
		return Leave, inventory.NamesSecret(gs, live.GetNamespace(), live.GetName())
	case needsConsent(kind) && annotation != annotationPruneEnabled:
		return Leave, "a " + kind.Kind + " is deleted only with annotation " + v1alpha1.AnnotationPrune + ": " + annotationPruneEnabled
	case used.by(kind, live.GetNamespace(), live.GetName()) != "":
		return Keep, used.by(kind, live.GetNamespace(), live.GetName()) + " uses it"
	default:
		return Delete, ""
	}
}

// needsConsent names the kinds that take data or other objects with them.
func needsConsent(gk schema.GroupKind) bool {
	return gk == inventory.ClaimKind || gk == inventory.NamespaceKind || gk == inventory.CRDKind
}

// Input deletes what left the branch.
type Input struct {
	Source *v1alpha1.GitSource
	As     client.Client // reads and deletes what was applied
	Own    client.Reader
}

// Result is what became of the objects that left the branch.
type Result struct {
	Deleted []string // said as people say it
	Left    []Left
	// kept stays in the inventory; used are those of it that are in use, or that finalizers
	// keep.
	Kept  inventory.Set
	InUse []v1alpha1.KeptObject
}

// Left is an object that stays in the cluster and leaves the inventory.
type Left struct {
	inventory.Entry
	Because string
}

// Run deletes, in the order given. What cannot be deleted stays in the
// inventory, and the others are deleted all the same.
func Run(ctx context.Context, p Input, gone []inventory.Entry) (Result, error) {
	result := Result{Kept: inventory.Set{}}
	lives, unread, d, err := p.read(ctx, gone)
	if err != nil {
		result.Kept = inventory.SetOf(gone)
		return result, err
	}
	var ps plan.Problems
	for _, e := range gone {
		live, v, because, err := p.pruneOne(ctx, e, lives[e.ID()], unread[e.ID()], d)
		switch {
		case apierrors.IsForbidden(err) && p.isEnding(ctx, e.Namespace): // it goes with its namespace, as the account's rights have gone
		case err != nil:
			result.Kept.Add(e)
			ps = append(ps, apiproblem.Of(v1alpha1.ReasonPruneFailed, plan.Object{Unstructured: inventory.Named(e)}, p.Source, err)...)
		case v == Leave:
			result.Left = append(result.Left, Left{e, because})
		case v == Keep:
			result.Kept.Add(e)
			result.InUse = append(result.InUse, v1alpha1.KeptObject{ID: e.ID(), UsedBy: d.used.by(e.GVK.GroupKind(), e.Namespace, e.Name)})
		case v == Delete:
			result.Deleted = append(result.Deleted, e.String())
			result.keepUntilGone(e, live)
		case v == Absent: // nothing brings it back
			result.keepUntilGone(e, live)
		}
	}
	if len(ps) > 0 {
		return result, ps
	}
	return result, nil
}

// read reads the objects, those that are not readable with why, and what is decided by. The
// objects come before the other sources: see [pruner.others].
func (p Input) read(ctx context.Context, gone []inventory.Entry) (lives map[string]*unstructured.Unstructured, unread map[string]error, d *decider, err error) {
	d = &decider{gs: p.Source}
	if d.used, err = ReadUsed(ctx, p.Own, gone); err != nil {
		return nil, nil, nil, err
	}
	lives, unread = map[string]*unstructured.Unstructured{}, map[string]error{}
	for _, e := range gone {
		lives[e.ID()], unread[e.ID()] = inventory.GetServed(ctx, p.As, e)
	}
	if d.others, err = p.others(ctx, gone); err != nil {
		return nil, nil, nil, err
	}
	d.naming, err = p.naming(ctx, gone)
	return lives, unread, d, err
}

// decider is what the decision about an object is made by.
type decider struct {
	gs     *v1alpha1.GitSource
	used   Used
	others *v1alpha1.GitSourceList // see [pruner.others]
	naming []v1alpha1.GitSource    // see [pruner.naming]
}

func (d *decider) decide(e inventory.Entry, live *unstructured.Unstructured) (Action, string) {
	if why := namedByOther(d.naming, e); why != "" {
		return Leave, why
	}
	if other := inventory.Owner(d.others, d.gs, e); other != nil && e.GVK.GroupKind() == inventory.DeploymentKind {
		return Leave, "GitSource " + other.Namespace + "/" + other.Name + " applies it"
	}
	return Decide(live, d.gs, d.used)
}

// keepUntilGone keeps an object that is deleted in the inventory while it has finalizers:
// until they are removed it is there, and status.kept says why.
func (p *Result) keepUntilGone(e inventory.Entry, live *unstructured.Unstructured) {
	if live == nil || len(live.GetFinalizers()) == 0 {
		return
	}
	p.Kept.Add(e)
	p.InUse = append(p.InUse, v1alpha1.KeptObject{ID: e.ID(), UsedBy: "its finalizers " + plan.JoinNames(live.GetFinalizers())})
}

// maxPrune is how often an object is judged again in one sync because it has changed.
const maxPrune = 10

// pruneOne deletes an object if that is the verdict on it. One that has changed since it
// was read is read and judged again: a controller may have adopted it in between. It returns
// the object as it was read last.
func (p Input) pruneOne(ctx context.Context, e inventory.Entry, live *unstructured.Unstructured, err error, d *decider) (*unstructured.Unstructured, Action, string, error) {
	for range maxPrune {
		if err != nil && !apierrors.IsConflict(err) {
			break
		}
		if apierrors.IsConflict(err) {
			if live, err = inventory.GetServed(ctx, p.As, e); err != nil {
				break
			}
		}
		if live == nil || live.GetDeletionTimestamp() != nil {
			return live, Absent, "", nil
		}
		v, because := d.decide(e, live)
		if v != Delete {
			return live, v, because, nil
		}
		if err = client.IgnoreNotFound(inventory.DeleteUnchanged(ctx, p.As, live)); err == nil {
			return live, Delete, "", nil
		}
	}
	return live, Keep, "", err
}

// others are the GitSources whose a Deployment may be by now, since it bears no
// labels that tell: after a crash, what was deleted may have been made anew by the
// one that it has moved to. That one had it in its inventory before it made it,
// so who reads the sources after the Deployment knows. None where none goes.
func (p Input) others(ctx context.Context, gone []inventory.Entry) (*v1alpha1.GitSourceList, error) {
	if !slices.ContainsFunc(gone, func(e inventory.Entry) bool { return e.GVK.GroupKind() == inventory.DeploymentKind }) {
		return &v1alpha1.GitSourceList{}, nil
	}
	return inventory.Sources(ctx, p.Own)
}

// naming returns the GitSources that may name a Secret which goes. A name with a hash of
// the content is of no Secret that a GitSource names.
func (p Input) naming(ctx context.Context, gone []inventory.Entry) ([]v1alpha1.GitSource, error) {
	var all []v1alpha1.GitSource
	seen := sets.New[string]()
	for _, e := range gone {
		if e.GVK.GroupKind() != inventory.SecretKind || e.WithoutHash() != (inventory.Entry{}) || seen.Has(e.Namespace) {
			continue
		}
		seen.Insert(e.Namespace)
		var sources v1alpha1.GitSourceList
		if err := p.Own.List(ctx, &sources, client.InNamespace(e.Namespace)); err != nil {
			return nil, fmt.Errorf("listing the GitSources of namespace %s: %w", e.Namespace, err)
		}
		all = append(all, sources.Items...)
	}
	return all, nil
}

// namedByOther returns which GitSource names a Secret; empty: none.
func namedByOther(sources []v1alpha1.GitSource, e inventory.Entry) string {
	for i := range sources {
		if e.GVK.GroupKind() == inventory.SecretKind && inventory.FieldNaming(&sources[i], e.Namespace, e.Name) != "" {
			return inventory.NamesSecret(&sources[i], e.Namespace, e.Name)
		}
	}
	return ""
}

// isEnding reports whether a namespace is being deleted, or has been.
func (p Input) isEnding(ctx context.Context, namespace string) bool {
	if namespace == "" {
		return false
	}
	var ns corev1.Namespace
	err := p.Own.Get(ctx, client.ObjectKey{Name: namespace}, &ns)
	return apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp != nil // else what was refused is told
}
