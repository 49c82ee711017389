package gitsync

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// way is how an object is brought into the cluster.
type way int

const (
	// plainly: the whole manifest is applied.
	plainly way = iota
	// asGoverned: all but what rollout writes.
	asGoverned
	// afterHandBack: its plan is gone from Git and the hold has not ended.
	afterHandBack
	// notAtAll: an annotation says so.
	notAtAll
	// onceGone: it is being deleted, and can be made anew when it is gone. What
	// would be written to it now would go with it.
	onceGone
)

// target is one object of a commit, with what is in the cluster of it.
type target struct {
	plan.Object
	// live is nil where the object is not there.
	live *unstructured.Unstructured
	way  way
	// template is the one that rollout will write; only with asGoverned.
	release *plan.Release
	// restored is what a governed Deployment that was deleted is created with; nil:
	// with the template from Git.
	restored *restored
	// autoscaled: spec.replicas is an autoscaler's.
	autoscaled bool
	// adopter is the Deployment that would adopt a ReplicaSet by its labels; empty: none.
	adopter string
	// early: a CRD or Namespace that others of the commit need.
	early bool
	// applied is what the API server answered to the apply; nil before it.
	applied *unstructured.Unstructured
	// handedOver: fields of it have changed their manager in this look.
	handedOver bool
	// conflicts are the fields of which others have other values; known after
	// the dry-run.
	conflicts []string
	// asIs: an apply would change nothing; known after the dry-run.
	asIs bool
	// late: cannot be dry-run before those are there; homeless: it is its
	// Namespace that is not.
	late, homeless bool
	// refused: the API server does not take it as the commit has it.
	refused bool
}

func (t *target) entry() inventory.Entry { return inventory.Of(t.Unstructured) }

// observer reads the cluster's side of one look.
type observer struct {
	gs *v1alpha1.GitSource
	// as reads what is applied, with the rights of those who apply it.
	as client.Reader
	// own reads what the controller needs besides.
	own client.Reader

	commit  []plan.Object                                // all of it
	plans   map[client.ObjectKey][]v1alpha1.BatchRelease // by Deployment
	hpas    map[string][]autoscalingv2.HorizontalPodAutoscaler
	sources *v1alpha1.GitSourceList // nil until they are asked for
	// labelsTell: who looks may not read the sources, and labels alone tell what
	// others apply.
	labelsTell bool
	early      map[string]bool // namespaces and kinds that the commit brings, and that are not there yet
}

func newObserver(gs *v1alpha1.GitSource, as, own client.Reader) *observer {
	return &observer{gs: gs, as: as, own: own, plans: map[client.ObjectKey][]v1alpha1.BatchRelease{}, hpas: map[string][]autoscalingv2.HorizontalPodAutoscaler{}}
}

// targets finds out how each object of a commit is to be applied. Problems are
// those of the objects: all of them, at once. Objects without a problem are returned
// with the problems of others.
func (o *observer) targets(ctx context.Context, set *plan.Set) ([]*target, error) {
	o.early, o.commit = earlyOf(set), set.Objects
	var targets []*target
	var ps plan.Problems
	for _, object := range set.Objects {
		t := newTarget(set, object, o.early)
		if err := o.observe(ctx, t); err != nil {
			problems := apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, o.gs, err)
			if len(problems) == 0 {
				return nil, err
			}
			ps = append(ps, problems...)
			continue
		}
		if t.groupKind() == inventory.NamespaceKind && t.live != nil {
			delete(o.early, t.GetName()) // what is in it can be tried before anything is written
		}
		targets = append(targets, t)
	}
	if len(ps) > 0 {
		return targets, ps
	}
	return targets, nil
}

// newTarget is an object of a set, before the cluster is looked at.
func newTarget(set *plan.Set, object plan.Object, early map[string]bool) *target {
	t := &target{Object: object, release: set.Governed(object), autoscaled: set.Autoscaled(object)}
	t.early = t.groupKind() == inventory.CRDKind || t.groupKind() == inventory.NamespaceKind
	t.homeless = early[t.GetNamespace()]
	t.late = t.homeless || early[t.groupKind().String()]
	return t
}

func (t *target) groupKind() schema.GroupKind { return t.GroupVersionKind().GroupKind() }

// earlyOf returns the namespaces and kinds that a set brings itself.
func earlyOf(set *plan.Set) map[string]bool {
	early := map[string]bool{}
	for _, o := range set.Objects {
		switch o.GroupVersionKind().GroupKind() {
		case inventory.NamespaceKind:
			early[o.GetName()] = true
		case inventory.CRDKind:
			early[definedBy(o.Unstructured).String()] = true
		}
	}
	return early
}

// definedBy returns the kind that a CRD defines.
func definedBy(crd *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}

func (o *observer) observe(ctx context.Context, t *target) error {
	live, err := inventory.Get(ctx, o.as, t.entry())
	if err != nil {
		return err
	}
	t.live = live
	if live != nil && !o.early[t.groupKind().String()] {
		t.late = false // so its namespace and kind are there, and stay as they are
	}
	if err := o.ownedByOther(ctx, t); err != nil {
		return err
	}
	if err := o.adoption(ctx, t); err != nil {
		return err
	}
	if inventory.IsLeftAlone(t.Unstructured) || inventory.IsLeftAlone(live) {
		t.way = notAtAll
		return nil
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		t.way = onceGone
		return nil
	}
	if !t.autoscaled && (hasReplicas(t.Unstructured) || ownsReplicas(live)) {
		if t.autoscaled, err = o.isAutoscaled(ctx, t); err != nil {
			return err
		}
	}
	if t.groupKind() != inventory.DeploymentKind {
		return nil
	}
	if live == nil {
		return o.observeGone(ctx, t)
	}
	t.way, err = o.wayOf(ctx, t)
	return err
}

// wayOf says who writes a Deployment that is there.
func (o *observer) wayOf(ctx context.Context, t *target) (way, error) {
	if t.release != nil {
		return asGoverned, nil
	}
	plans, err := o.plansFor(ctx, client.ObjectKeyFromObject(t))
	if err != nil {
		return plainly, err
	}
	switch {
	case len(plans) > 0 && inventory.IsOwned(&plans[0], o.gs):
		return afterHandBack, nil // the plan was ours, and is gone from Git
	case len(plans) > 0:
		return asGoverned, nil // by hand
	case t.live.GetLabels()[v1alpha1.LabelHeld] != "":
		return afterHandBack, nil
	default:
		return plainly, nil
	}
}

func hasReplicas(u *unstructured.Unstructured) bool {
	n, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "replicas")
	return ok && n != nil
}

// keepsReplicas reports whether an apply leaves the size of a workload that is there as it
// is: an autoscaler's is, and one that Git has no more. The API server would make that one 1.
func (t *target) keepsReplicas() bool {
	return t.live != nil && (t.autoscaled || isWorkload(t.groupKind()) && !hasReplicas(t.Unstructured))
}

func isWorkload(kind schema.GroupKind) bool {
	return kind.Group == "apps" && slices.Contains([]string{inventory.DeploymentKind.Kind, inventory.ReplicaSetKind.Kind, "StatefulSet"}, kind.Kind)
}

// ownsReplicas reports whether gitsync has applied spec.replicas: where Git has
// it no more, it would go, and come back as 1, were it not handed over.
func ownsReplicas(live *unstructured.Unstructured) bool {
	if live == nil {
		return false
	}
	owned, err := fieldmanager.AppliedSpec(live, "replicas")
	return err == nil && len(owned) > 0
}

// ownedByOther refuses an object that another GitSource applies: one that is in
// the other's inventory, or bears its labels while the other has no inventory, as
// when its status is lost. The labels of one that is gone, or has let go of the
// object, bind nobody; and whoever may write an object may write its labels, so
// those that name this source, or none, are not believed, and what is in this
// source's inventory is not lost by them.
func (o *observer) ownedByOther(ctx context.Context, t *target) error {
	if t.live == nil {
		return nil
	}
	others := t.groupKind() != inventory.DeploymentKind && t.live.GetLabels()[v1alpha1.LabelSource] != "" && !inventory.IsOwned(t.live, o.gs)
	mine := inventory.Has(o.gs.Status.Inventory, t.entry().ID())
	if mine && !others {
		return nil
	}
	if err := o.readSources(ctx); err != nil {
		return err
	}
	if other := inventory.Owner(o.sources, o.gs, t.entry()); other != nil {
		return ownedBy(t, other.Namespace, other.Name)
	}
	if mine || !others {
		return nil
	}
	if o.labelsTell {
		return ownedBy(t, t.live.GetLabels()[v1alpha1.LabelSourceNamespace], t.live.GetLabels()[v1alpha1.LabelSource])
	}
	for i := range o.sources.Items {
		if other := &o.sources.Items[i]; inventory.IsOwned(t.live, other) && other.Status.Inventory == nil {
			return ownedBy(t, other.Namespace, other.Name)
		}
	}
	return nil
}

// readSources reads all GitSources, once in a look.
func (o *observer) readSources(ctx context.Context) (err error) {
	if o.sources == nil {
		o.sources, err = inventory.Sources(ctx, o.own)
	}
	return err
}

// ownedBy may pass: the object may be on its way from one source to the other.
func ownedBy(t *target, namespace, name string) *plan.Problem {
	return &plan.Problem{
		Reason: v1alpha1.ReasonOwnedByOther, Where: t.File + ": " + t.String(),
		Err: fmt.Errorf("GitSource %s/%s applies it already", namespace, name), Hint: "keep it in one of the two; if it moves, status.kept of the other one has the reason why it does not let go", Retry: true,
	}
}

// adoption finds the Deployment that would adopt a ReplicaSet, of the commit or of the
// cluster.
func (o *observer) adoption(ctx context.Context, t *target) error {
	if t.groupKind() != inventory.ReplicaSetKind {
		return nil
	}
	var list appsv1.DeploymentList
	if err := o.own.List(ctx, &list, client.InNamespace(t.GetNamespace())); err != nil {
		return fmt.Errorf("listing the Deployments of %s: %w", t.GetNamespace(), err)
	}
	for i := range list.Items {
		if t.isSelectedBy(list.Items[i].Spec.Selector) {
			t.adopter = list.Items[i].Name
		}
	}
	for _, other := range o.commit {
		if other.GroupVersionKind().GroupKind() != inventory.DeploymentKind || other.GetNamespace() != t.GetNamespace() {
			continue
		}
		d := &appsv1.Deployment{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(other.Object, d); err == nil && t.isSelectedBy(d.Spec.Selector) {
			t.adopter = d.Name
		}
	}
	return nil
}

// isSelectedBy reports whether a selector matches the labels of t. The one of a Deployment
// is not empty.
func (t *target) isSelectedBy(selector *metav1.LabelSelector) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(t.GetLabels()))
}

// plansFor reads the BatchReleases for a Deployment, once in a look; the first one
// governs. One that is being deleted governs nothing any more, whatever its finalizers
// wait for. Past the cache: on a plan that it does not have yet, or still has, hangs who writes the
// template. The API server picks them, so that a look costs what its source has,
// and not what the namespace has.
func (o *observer) plansFor(ctx context.Context, deployment client.ObjectKey) ([]v1alpha1.BatchRelease, error) {
	if plans, ok := o.plans[deployment]; ok {
		return plans, nil
	}
	var list v1alpha1.BatchReleaseList
	if err := o.own.List(ctx, &list, client.InNamespace(deployment.Namespace), client.MatchingFields{v1alpha1.FieldWorkload: deployment.Name}); err != nil {
		return nil, fmt.Errorf("listing the BatchReleases for Deployment %s: %w", deployment, err)
	}
	plans := slices.DeleteFunc(list.Items, func(br v1alpha1.BatchRelease) bool { return br.DeletionTimestamp != nil })
	slices.SortFunc(plans, func(a, b v1alpha1.BatchRelease) int { return plan.ComparePlans(&a, &b) })
	o.plans[deployment] = plans
	return plans, nil
}

// liveOf is what the cluster has of the plan of a release; nil: nothing.
func (o *observer) liveOf(ctx context.Context, release *plan.Release) (*v1alpha1.BatchRelease, error) {
	plans, err := o.plansFor(ctx, plan.WorkloadOf(release))
	if err != nil {
		return nil, err
	}
	for i := range plans {
		if plans[i].Name == release.Plan.Name {
			return &plans[i], nil
		}
	}
	br := &v1alpha1.BatchRelease{} // it may be there for another Deployment
	if err := o.own.Get(ctx, client.ObjectKeyFromObject(release.Plan), br); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("getting BatchRelease %s: %w", plan.ReleaseName(release.Plan), err)
	}
	return br, nil
}

// isAutoscaled reports whether an autoscaler in the cluster targets the object.
func (o *observer) isAutoscaled(ctx context.Context, t *target) (bool, error) {
	hpas, ok := o.hpas[t.GetNamespace()]
	if !ok {
		var list autoscalingv2.HorizontalPodAutoscalerList
		if err := o.own.List(ctx, &list, client.InNamespace(t.GetNamespace())); err != nil {
			return false, fmt.Errorf("listing the HorizontalPodAutoscalers of %s: %w", t.GetNamespace(), err)
		}
		hpas = list.Items
		o.hpas[t.GetNamespace()] = hpas
	}
	for _, h := range hpas {
		ref := h.Spec.ScaleTargetRef
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if err == nil && ref.Name == t.GetName() && ref.Kind == t.GetKind() && gv.Group == t.GroupVersionKind().Group {
			return true, nil
		}
	}
	return false, nil
}
