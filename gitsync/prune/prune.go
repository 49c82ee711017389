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
	// Leave it in the cluster, and remove it from the inventory.
	Leave
	// Keep it in both. The next sync decides again.
	Keep
	// Absent is an object that does not exist, or is being deleted.
	Absent
)

// Decide returns what happens to an object that left the branch, and why. used is what the
// pods of the object's namespace refer to.
func Decide(live *unstructured.Unstructured, gs *v1alpha1.GitSource, used inventory.Used) (Action, string) {
	annotation := live.GetAnnotations()[v1alpha1.AnnotationPrune]
	kind := live.GroupVersionKind().GroupKind()
	switch {
	case !inventory.IsOwned(live, gs):
		return Leave, "this GitSource does not apply it"
	// a held Deployment may have adopted it as its stable ReplicaSet
	case kind != inventory.ReleaseKind && metav1.GetControllerOf(live) != nil:
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
	case used.By(kind, live.GetNamespace(), live.GetName()) != "":
		return Keep, used.By(kind, live.GetNamespace(), live.GetName()) + " uses it"
	default:
		return Delete, ""
	}
}

// needsConsent names the kinds that take data or other objects with them.
func needsConsent(gk schema.GroupKind) bool {
	return gk == inventory.ClaimKind || gk == inventory.NamespaceKind || gk == inventory.CRDKind
}

// Input is the GitSource that objects left, and the clients for them.
type Input struct {
	Source *v1alpha1.GitSource
	// As reads and deletes the objects, as the account of the GitSource.
	As client.Client
	// Own reads GitSources, namespaces and pods, as the controller.
	Own client.Reader
}

// Result says what happened to the objects that left the branch.
type Result struct {
	// Deleted are the objects as in messages.
	Deleted []string
	Left    []Left
	// Kept are the objects that stay in the inventory. InUse are those of them that are in
	// use, or have finalizers.
	Kept  inventory.Set
	InUse []v1alpha1.KeptObject
}

// Left is an object that stays in the cluster and leaves the inventory.
type Left struct {
	inventory.Entry
	Because string
}

// Run deletes objects, in the order given. An object that it cannot delete stays in the
// inventory, and Run goes on with the others. The error has a problem for each of those.
func Run(ctx context.Context, in Input, gone []inventory.Entry) (Result, error) {
	result := Result{Kept: inventory.Set{}}
	lives, unread, d, err := in.read(ctx, gone)
	if err != nil {
		result.Kept = inventory.SetOf(gone)
		return result, err
	}
	var ps plan.Problems
	for _, e := range gone {
		live, action, because, err := in.pruneOne(ctx, e, lives[e.ID()], unread[e.ID()], d)
		switch {
		case apierrors.IsForbidden(err) && in.isEnding(ctx, e.Namespace): // it goes with its namespace, as the account's rights have gone
		case err != nil:
			result.Kept.Add(e)
			ps = append(ps, apiproblem.Of(v1alpha1.ReasonPruneFailed, plan.Object{Unstructured: inventory.Named(e)}, in.Source, err)...)
		case action == Leave:
			result.Left = append(result.Left, Left{e, because})
		case action == Keep:
			result.Kept.Add(e)
			result.InUse = append(result.InUse, v1alpha1.KeptObject{ID: e.ID(), UsedBy: d.used.By(e.GVK.GroupKind(), e.Namespace, e.Name)})
		case action == Delete:
			result.Deleted = append(result.Deleted, e.String())
			result.keepUntilGone(e, live)
		case action == Absent: // nothing brings it back
			result.keepUntilGone(e, live)
			if err := inventory.UnmarkReturn(ctx, in.As, in.Source, live); err != nil {
				ps = append(ps, apiproblem.Of(v1alpha1.ReasonPruneFailed, plan.Object{Unstructured: inventory.Named(e)}, in.Source, err)...)
			}
		}
	}
	if len(ps) > 0 {
		return result, ps
	}
	return result, nil
}

// read reads the objects, with an error for each that is not readable, and what the
// decisions depend on. It reads the objects before the other sources, see [Input.others].
func (in Input) read(
	ctx context.Context, gone []inventory.Entry,
) (lives map[string]*unstructured.Unstructured, unread map[string]error, d *decider, err error) {
	d = &decider{gs: in.Source}
	if d.used, err = inventory.ReadUsed(ctx, in.Own, gone); err != nil {
		return nil, nil, nil, err
	}
	lives, unread = map[string]*unstructured.Unstructured{}, map[string]error{}
	for _, e := range gone {
		lives[e.ID()], unread[e.ID()] = inventory.GetServed(ctx, in.As, e)
	}
	if d.others, err = in.others(ctx, gone); err != nil {
		return nil, nil, nil, err
	}
	d.naming, err = in.naming(ctx, gone)
	return lives, unread, d, err
}

// decider has what the decisions depend on.
type decider struct {
	gs     *v1alpha1.GitSource
	used   inventory.Used
	others *v1alpha1.GitSourceList // see [Input.others]
	naming []v1alpha1.GitSource    // see [Input.naming]
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
func (r *Result) keepUntilGone(e inventory.Entry, live *unstructured.Unstructured) {
	if live == nil || len(live.GetFinalizers()) == 0 {
		return
	}
	r.Kept.Add(e)
	r.InUse = append(r.InUse, v1alpha1.KeptObject{ID: e.ID(), UsedBy: "its finalizers " + plan.JoinNames(live.GetFinalizers())})
}

// maxPrune is how often Run decides about one object that changes.
const maxPrune = 10

// pruneOne deletes an object if that is the decision. If the object has changed since it
// was read, pruneOne reads it and decides again: a controller may have adopted it. It returns
// the object as it was read last.
func (in Input) pruneOne(
	ctx context.Context, e inventory.Entry, live *unstructured.Unstructured, err error, d *decider,
) (*unstructured.Unstructured, Action, string, error) {
	for range maxPrune {
		if err != nil && !apierrors.IsConflict(err) {
			break
		}
		if apierrors.IsConflict(err) {
			if live, err = inventory.GetServed(ctx, in.As, e); err != nil {
				break
			}
		}
		if live == nil || live.GetDeletionTimestamp() != nil {
			return live, Absent, "", nil
		}
		action, because := d.decide(e, live)
		if action != Delete {
			return live, action, because, nil
		}
		if err = client.IgnoreNotFound(inventory.DeleteUnchanged(ctx, in.As, live)); err == nil {
			return live, Delete, "", nil
		}
	}
	return live, Keep, "", err
}

// others returns the GitSources to which a Deployment may belong by now. The Deployment has
// no label of a source. After a crash, the source to which it has moved may have created it
// again. That source had it in its inventory before, so others reads the sources after the
// Deployment. It returns none if no Deployment goes.
func (in Input) others(ctx context.Context, gone []inventory.Entry) (*v1alpha1.GitSourceList, error) {
	if !slices.ContainsFunc(gone, func(e inventory.Entry) bool { return e.GVK.GroupKind() == inventory.DeploymentKind }) {
		return &v1alpha1.GitSourceList{}, nil
	}
	return inventory.Sources(ctx, in.Own)
}

// naming returns the GitSources that may name a Secret which goes. No GitSource names a
// Secret whose name has a hash of the content.
func (in Input) naming(ctx context.Context, gone []inventory.Entry) ([]v1alpha1.GitSource, error) {
	var all []v1alpha1.GitSource
	seen := sets.New[string]()
	for _, e := range gone {
		if e.GVK.GroupKind() != inventory.SecretKind || e.WithoutHash() != (inventory.Entry{}) || seen.Has(e.Namespace) {
			continue
		}
		seen.Insert(e.Namespace)
		var sources v1alpha1.GitSourceList
		if err := in.Own.List(ctx, &sources, client.InNamespace(e.Namespace)); err != nil {
			return nil, fmt.Errorf("listing the GitSources of namespace %s: %w", e.Namespace, err)
		}
		all = append(all, sources.Items...)
	}
	return all, nil
}

// namedByOther returns which GitSource names a Secret, or an empty string.
func namedByOther(sources []v1alpha1.GitSource, e inventory.Entry) string {
	for i := range sources {
		if e.GVK.GroupKind() == inventory.SecretKind && inventory.FieldNaming(&sources[i], e.Namespace, e.Name) != "" {
			return inventory.NamesSecret(&sources[i], e.Namespace, e.Name)
		}
	}
	return ""
}

// isEnding reports whether a namespace is being deleted, or has been.
func (in Input) isEnding(ctx context.Context, namespace string) bool {
	if namespace == "" {
		return false
	}
	var ns corev1.Namespace
	err := in.Own.Get(ctx, client.ObjectKey{Name: namespace}, &ns)
	return apierrors.IsNotFound(err) || err == nil && ns.DeletionTimestamp != nil // else the refusal is reported
}
