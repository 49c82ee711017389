package gitsync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

func (t *target) entry() entry { return entryOf(t.Unstructured) }

// get reads an object past the cache, and nil where it or its kind is not there.
func get(ctx context.Context, c client.Reader, e entry) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(e.gvk)
	err := c.Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: e.name}, u)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", e, err)
	}
	return u, nil
}

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
			problems := apiProblems(v1alpha1.ReasonDryRunFailed, t.Object, o.gs, err)
			if len(problems) == 0 {
				return nil, err
			}
			ps = append(ps, problems...)
			continue
		}
		if t.groupKind() == namespaceKind && t.live != nil {
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
	t.early = t.groupKind() == crdKind || t.groupKind() == namespaceKind
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
		case namespaceKind:
			early[o.GetName()] = true
		case crdKind:
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
	live, err := get(ctx, o.as, t.entry())
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
	if isLeftAlone(t.Unstructured) || isLeftAlone(live) {
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
	if t.groupKind() != deploymentKind {
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
	case len(plans) > 0 && isOurs(&plans[0], o.gs):
		return afterHandBack, nil // the plan was ours, and is gone from Git
	case len(plans) > 0:
		return asGoverned, nil // by hand
	case t.live.GetLabels()[v1alpha1.LabelHeld] != "":
		return afterHandBack, nil
	default:
		return plainly, nil
	}
}

func isLeftAlone(u *unstructured.Unstructured) bool {
	return u != nil && u.GetAnnotations()[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
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
	return kind.Group == "apps" && slices.Contains([]string{deploymentKind.Kind, replicaSetKind.Kind, "StatefulSet"}, kind.Kind)
}

// ownsReplicas reports whether gitsync has applied spec.replicas: where Git has
// it no more, it would go, and come back as 1, were it not handed over.
func ownsReplicas(live *unstructured.Unstructured) bool {
	if live == nil {
		return false
	}
	owned, err := appliedSpec(live, "replicas")
	return err == nil && len(owned) > 0
}

// sourceLabels say which GitSource applies an object.
func sourceLabels(gs *v1alpha1.GitSource) map[string]string {
	return map[string]string{v1alpha1.LabelSource: labelValue(gs.Name), v1alpha1.LabelSourceNamespace: gs.Namespace}
}

// maxLabelValue is the length of a label's value; a name may have 253.
const maxLabelValue = 63

// labelValue shortens a name that is too long for a label.
func labelValue(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:54] + "-" + hex.EncodeToString(sum[:4])
}

// isOurs reports whether a GitSource applies an object: by its labels, and for
// a Deployment, which bears nothing of ours (I7), by gitsync's field manager.
// That does not tell one source's from another's; [observer.ownedByOther] and
// the source's own inventory do.
func isOurs(o client.Object, gs *v1alpha1.GitSource) bool {
	if o.GetObjectKind().GroupVersionKind().GroupKind() == deploymentKind {
		return hasGitSync(o)
	}
	labels := o.GetLabels()
	for k, v := range sourceLabels(gs) {
		if labels[k] != v {
			return false
		}
	}
	return true
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
	others := t.groupKind() != deploymentKind && t.live.GetLabels()[v1alpha1.LabelSource] != "" && !isOurs(t.live, o.gs)
	mine := has(o.gs.Status.Inventory, t.entry().id())
	if mine && !others {
		return nil
	}
	if err := o.readSources(ctx); err != nil {
		return err
	}
	if other := inventoriedByOther(o.sources, o.gs, t.entry()); other != nil {
		return ownedBy(t, other.Namespace, other.Name)
	}
	if mine || !others {
		return nil
	}
	if o.labelsTell {
		return ownedBy(t, t.live.GetLabels()[v1alpha1.LabelSourceNamespace], t.live.GetLabels()[v1alpha1.LabelSource])
	}
	for i := range o.sources.Items {
		if other := &o.sources.Items[i]; isOurs(t.live, other) && other.Status.Inventory == nil {
			return ownedBy(t, other.Namespace, other.Name)
		}
	}
	return nil
}

// readSources reads all GitSources, once in a look.
func (o *observer) readSources(ctx context.Context) (err error) {
	if o.sources == nil {
		o.sources, err = listSources(ctx, o.own)
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

// inventoriedByOther returns another GitSource that has an object in its
// inventory; nil: there is none.
func inventoriedByOther(sources *v1alpha1.GitSourceList, gs *v1alpha1.GitSource, e entry) *v1alpha1.GitSource {
	for i := range sources.Items {
		if other := &sources.Items[i]; other.UID != gs.UID && has(other.Status.Inventory, e.id()) {
			return other
		}
	}
	return nil
}

func listSources(ctx context.Context, c client.Reader) (*v1alpha1.GitSourceList, error) {
	var sources v1alpha1.GitSourceList
	if err := c.List(ctx, &sources); err != nil {
		return nil, fmt.Errorf("listing the GitSources: %w", err)
	}
	return &sources, nil
}

func has(inventory *v1alpha1.Inventory, id string) bool {
	return inventory != nil && slices.ContainsFunc(inventory.Entries, func(e v1alpha1.InventoryEntry) bool { return e.ID == id })
}

// adoption finds the Deployment that would adopt a ReplicaSet, of the commit or of the
// cluster.
func (o *observer) adoption(ctx context.Context, t *target) error {
	if t.groupKind() != replicaSetKind {
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
		if other.GroupVersionKind().GroupKind() != deploymentKind || other.GetNamespace() != t.GetNamespace() {
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

// hasGitSync reports whether gitsync has applied fields of an object.
func hasGitSync(o client.Object) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == v1alpha1.ManagerGitSync && e.Operation == metav1.ManagedFieldsOperationApply
	})
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
	plans, err := o.plansFor(ctx, workloadOf(release))
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
		return nil, fmt.Errorf("getting BatchRelease %s: %w", releaseName(release.Plan), err)
	}
	return br, nil
}

// workloadOf is the Deployment of a release.
func workloadOf(release *plan.Release) client.ObjectKey {
	return client.ObjectKey{Namespace: release.Plan.Namespace, Name: release.Plan.Spec.WorkloadRef.Name}
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

// templateOf decodes the pod template of a workload.
func templateOf(o plan.Object) (*corev1.PodTemplateSpec, error) {
	m, ok, _ := unstructured.NestedMap(o.Object, "spec", "template")
	if !ok {
		return nil, nil
	}
	t := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, t); err != nil {
		return nil, nil //nolint:nilerr // a manifest that does not decode renders no template
	}
	return t, nil
}
