package apply

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

// Mode is how an object is brought into the cluster.
type Mode int

const (
	// Full: the whole manifest is applied.
	Full Mode = iota
	// ExceptRollout: all but what rollout writes.
	ExceptRollout
	// AfterHandBack: its plan is gone from Git and the hold has not ended.
	AfterHandBack
	// Skip: an annotation says so.
	Skip
	// AfterDeletion: it is being deleted, and can be made anew when it is gone. What
	// would be written to it now would go with it.
	AfterDeletion
)

// Target is one object of a commit, with what is in the cluster of it.
type Target struct {
	plan.Object
	// live is nil where the object is not there.
	Live *unstructured.Unstructured
	Mode Mode
	// template is the one that rollout will write; only with asGoverned.
	Release *plan.Release
	// restored is what a governed Deployment that was deleted is created with; nil:
	// with the template from Git.
	Restored *Restored
	// autoscaled: spec.replicas is an autoscaler's.
	Autoscaled bool
	// adopter is the Deployment that would adopt a ReplicaSet by its labels; empty: none.
	adopter string
	// early: a CRD or Namespace that others of the commit need.
	Prerequisite bool
	// applied is what the API server answered to the apply; nil before it.
	Applied *unstructured.Unstructured
	// handedOver: fields of it have changed their manager in this look.
	HandedOver bool
	// conflicts are the fields of which others have other values; known after
	// the dry-run.
	Conflicts []string
	// asIs: an apply would change nothing; known after the dry-run.
	Unchanged bool
	// late: cannot be dry-run before those are there; homeless: it is its
	// Namespace that is not.
	Deferred, NamespacePending bool
	// refused: the API server does not take it as the commit has it.
	Refused bool
}

func (t *Target) Entry() inventory.Entry { return inventory.Of(t.Unstructured) }

// Observer reads the cluster's side of one look.
type Observer struct {
	Source *v1alpha1.GitSource
	// as reads what is applied, with the rights of those who apply it.
	As client.Reader
	// own reads what the controller needs besides.
	Own client.Reader

	commit  []plan.Object                                // all of it
	plans   map[client.ObjectKey][]v1alpha1.BatchRelease // by Deployment
	hpas    map[string][]autoscalingv2.HorizontalPodAutoscaler
	Sources *v1alpha1.GitSourceList // nil until they are asked for
	// labelsTell: who looks may not read the sources, and labels alone tell what
	// others apply.
	LabelsOnly    bool
	Prerequisites map[string]bool // namespaces and kinds that the commit brings, and that are not there yet
}

func NewObserver(gs *v1alpha1.GitSource, as, own client.Reader) *Observer {
	return &Observer{Source: gs, As: as, Own: own, plans: map[client.ObjectKey][]v1alpha1.BatchRelease{}, hpas: map[string][]autoscalingv2.HorizontalPodAutoscaler{}}
}

// Targets finds out how each object of a commit is to be applied. Problems are
// those of the objects: all of them, at once. Objects without a problem are returned
// with the problems of others.
func (o *Observer) Targets(ctx context.Context, set *plan.Set) ([]*Target, error) {
	o.Prerequisites, o.commit = Prerequisites(set), set.Objects
	var targets []*Target
	var ps plan.Problems
	for _, object := range set.Objects {
		t := NewTarget(set, object, o.Prerequisites)
		if err := o.Observe(ctx, t); err != nil {
			problems := apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, o.Source, err)
			if len(problems) == 0 {
				return nil, err
			}
			ps = append(ps, problems...)
			continue
		}
		if t.GroupKind() == inventory.NamespaceKind && t.Live != nil {
			delete(o.Prerequisites, t.GetName()) // what is in it can be tried before anything is written
		}
		targets = append(targets, t)
	}
	if len(ps) > 0 {
		return targets, ps
	}
	return targets, nil
}

// NewTarget is an object of a set, before the cluster is looked at.
func NewTarget(set *plan.Set, object plan.Object, early map[string]bool) *Target {
	t := &Target{Object: object, Release: set.Governed(object), Autoscaled: set.Autoscaled(object)}
	t.Prerequisite = t.GroupKind() == inventory.CRDKind || t.GroupKind() == inventory.NamespaceKind
	t.NamespacePending = early[t.GetNamespace()]
	t.Deferred = t.NamespacePending || early[t.GroupKind().String()]
	return t
}

func (t *Target) GroupKind() schema.GroupKind { return t.GroupVersionKind().GroupKind() }

// Prerequisites returns the namespaces and kinds that a set brings itself.
func Prerequisites(set *plan.Set) map[string]bool {
	early := map[string]bool{}
	for _, o := range set.Objects {
		switch o.GroupVersionKind().GroupKind() {
		case inventory.NamespaceKind:
			early[o.GetName()] = true
		case inventory.CRDKind:
			early[DefinedBy(o.Unstructured).String()] = true
		}
	}
	return early
}

// DefinedBy returns the kind that a CRD defines.
func DefinedBy(crd *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}

func (o *Observer) Observe(ctx context.Context, t *Target) error {
	live, err := inventory.Get(ctx, o.As, t.Entry())
	if err != nil {
		return err
	}
	t.Live = live
	if live != nil && !o.Prerequisites[t.GroupKind().String()] {
		t.Deferred = false // so its namespace and kind are there, and stay as they are
	}
	if err := o.ownedByOther(ctx, t); err != nil {
		return err
	}
	if err := o.adoption(ctx, t); err != nil {
		return err
	}
	if inventory.IsLeftAlone(t.Unstructured) || inventory.IsLeftAlone(live) {
		t.Mode = Skip
		return nil
	}
	if live != nil && live.GetDeletionTimestamp() != nil {
		t.Mode = AfterDeletion
		return nil
	}
	if !t.Autoscaled && (hasReplicas(t.Unstructured) || ownsReplicas(live)) {
		if t.Autoscaled, err = o.isAutoscaled(ctx, t); err != nil {
			return err
		}
	}
	if t.GroupKind() != inventory.DeploymentKind {
		return nil
	}
	if live == nil {
		return o.observeGone(ctx, t)
	}
	t.Mode, err = o.wayOf(ctx, t)
	return err
}

// wayOf says who writes a Deployment that is there.
func (o *Observer) wayOf(ctx context.Context, t *Target) (Mode, error) {
	if t.Release != nil {
		return ExceptRollout, nil
	}
	plans, err := o.PlansFor(ctx, client.ObjectKeyFromObject(t))
	if err != nil {
		return Full, err
	}
	switch {
	case len(plans) > 0 && inventory.IsOwned(&plans[0], o.Source):
		return AfterHandBack, nil // the plan was ours, and is gone from Git
	case len(plans) > 0:
		return ExceptRollout, nil // by hand
	case t.Live.GetLabels()[v1alpha1.LabelHeld] != "":
		return AfterHandBack, nil
	default:
		return Full, nil
	}
}

func hasReplicas(u *unstructured.Unstructured) bool {
	n, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "replicas")
	return ok && n != nil
}

// KeepsReplicas reports whether an apply leaves the size of a workload that is there as it
// is: an autoscaler's is, and one that Git has no more. The API server would make that one 1.
func (t *Target) KeepsReplicas() bool {
	return t.Live != nil && (t.Autoscaled || isWorkload(t.GroupKind()) && !hasReplicas(t.Unstructured))
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
func (o *Observer) ownedByOther(ctx context.Context, t *Target) error {
	if t.Live == nil {
		return nil
	}
	others := t.GroupKind() != inventory.DeploymentKind && t.Live.GetLabels()[v1alpha1.LabelSource] != "" && !inventory.IsOwned(t.Live, o.Source)
	mine := inventory.Has(o.Source.Status.Inventory, t.Entry().ID())
	if mine && !others {
		return nil
	}
	if err := o.ReadSources(ctx); err != nil {
		return err
	}
	if other := inventory.Owner(o.Sources, o.Source, t.Entry()); other != nil {
		return ownedBy(t, other.Namespace, other.Name)
	}
	if mine || !others {
		return nil
	}
	if o.LabelsOnly {
		return ownedBy(t, t.Live.GetLabels()[v1alpha1.LabelSourceNamespace], t.Live.GetLabels()[v1alpha1.LabelSource])
	}
	for i := range o.Sources.Items {
		if other := &o.Sources.Items[i]; inventory.IsOwned(t.Live, other) && other.Status.Inventory == nil {
			return ownedBy(t, other.Namespace, other.Name)
		}
	}
	return nil
}

// ReadSources reads all GitSources, once in a look.
func (o *Observer) ReadSources(ctx context.Context) (err error) {
	if o.Sources == nil {
		o.Sources, err = inventory.Sources(ctx, o.Own)
	}
	return err
}

// ownedBy may pass: the object may be on its way from one source to the other.
func ownedBy(t *Target, namespace, name string) *plan.Problem {
	return &plan.Problem{
		Reason: v1alpha1.ReasonOwnedByOther, Where: t.File + ": " + t.String(),
		Err: fmt.Errorf("GitSource %s/%s applies it already", namespace, name), Hint: "keep it in one of the two; if it moves, status.kept of the other one has the reason why it does not let go", Retry: true,
	}
}

// adoption finds the Deployment that would adopt a ReplicaSet, of the commit or of the
// cluster.
func (o *Observer) adoption(ctx context.Context, t *Target) error {
	if t.GroupKind() != inventory.ReplicaSetKind {
		return nil
	}
	var list appsv1.DeploymentList
	if err := o.Own.List(ctx, &list, client.InNamespace(t.GetNamespace())); err != nil {
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
func (t *Target) isSelectedBy(selector *metav1.LabelSelector) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(t.GetLabels()))
}

// PlansFor reads the BatchReleases for a Deployment, once in a look; the first one
// governs. One that is being deleted governs nothing any more, whatever its finalizers
// wait for. Past the cache: on a plan that it does not have yet, or still has, hangs who writes the
// template. The API server picks them, so that a look costs what its source has,
// and not what the namespace has.
func (o *Observer) PlansFor(ctx context.Context, deployment client.ObjectKey) ([]v1alpha1.BatchRelease, error) {
	if plans, ok := o.plans[deployment]; ok {
		return plans, nil
	}
	var list v1alpha1.BatchReleaseList
	if err := o.Own.List(ctx, &list, client.InNamespace(deployment.Namespace), client.MatchingFields{v1alpha1.FieldWorkload: deployment.Name}); err != nil {
		return nil, fmt.Errorf("listing the BatchReleases for Deployment %s: %w", deployment, err)
	}
	plans := slices.DeleteFunc(list.Items, func(br v1alpha1.BatchRelease) bool { return br.DeletionTimestamp != nil })
	slices.SortFunc(plans, func(a, b v1alpha1.BatchRelease) int { return plan.ComparePlans(&a, &b) })
	o.plans[deployment] = plans
	return plans, nil
}

// LivePlan is what the cluster has of the plan of a release; nil: nothing.
func (o *Observer) LivePlan(ctx context.Context, release *plan.Release) (*v1alpha1.BatchRelease, error) {
	plans, err := o.PlansFor(ctx, plan.WorkloadOf(release))
	if err != nil {
		return nil, err
	}
	for i := range plans {
		if plans[i].Name == release.Plan.Name {
			return &plans[i], nil
		}
	}
	br := &v1alpha1.BatchRelease{} // it may be there for another Deployment
	if err := o.Own.Get(ctx, client.ObjectKeyFromObject(release.Plan), br); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("getting BatchRelease %s: %w", plan.ReleaseName(release.Plan), err)
	}
	return br, nil
}

// isAutoscaled reports whether an autoscaler in the cluster targets the object.
func (o *Observer) isAutoscaled(ctx context.Context, t *Target) (bool, error) {
	hpas, ok := o.hpas[t.GetNamespace()]
	if !ok {
		var list autoscalingv2.HorizontalPodAutoscalerList
		if err := o.Own.List(ctx, &list, client.InNamespace(t.GetNamespace())); err != nil {
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

// TemplateApart: the template is shown as a release, and not with the object.
func (t *Target) TemplateApart() bool {
	return t.GroupKind() == inventory.DeploymentKind && (t.Release != nil || t.Mode != Full)
}
