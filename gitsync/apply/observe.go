package apply

import (
	"context"
	"fmt"
	"slices"
	"sync"

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
	"github.com/tranche-dev/tranche/gitsync/lists"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Mode is how an object is applied.
type Mode int

const (
	// Full applies the whole manifest.
	Full Mode = iota
	// ExceptRollout applies all but the fields that rollout writes.
	ExceptRollout
	// AfterHandBack waits for the end of the hold: the plan is gone from Git.
	AfterHandBack
	// Skip applies nothing, since an annotation disables it.
	Skip
	// AfterDeletion waits until the object, which is being deleted, is gone. A write to it
	// now would be lost.
	AfterDeletion
)

// Target is one object of a commit, with what is in the cluster of it.
type Target struct {
	plan.Object
	// Live is the object in the cluster, or nil.
	Live *unstructured.Unstructured
	// assumed is true if Live was not read: the source has applied nothing yet. The dry run then
	// says whether the object exists.
	assumed bool
	// Untried is true if the object is created without a dry run, see [Target.MayCreateUntried].
	Untried bool
	Mode    Mode
	// Release is that of a Deployment that a plan of the commit governs, or nil.
	Release *plan.Release
	// Restored is what a governed Deployment that was deleted is created with. If it is nil,
	// that is the template from Git.
	Restored *Restored
	// Autoscaled is true if an autoscaler writes spec.replicas.
	Autoscaled bool
	// adopter is the Deployment that would adopt a ReplicaSet by its labels, if any.
	adopter string
	// Prerequisite is true of a CRD or Namespace, which others of the commit may need.
	Prerequisite bool
	// Applied is the answer of the API server to the apply, or nil.
	Applied *unstructured.Unstructured
	// HandedOver is true if fields of the object have changed their manager in this sync.
	HandedOver bool
	// Conflicts are the fields of which other managers have other values. The dry run sets
	// them.
	Conflicts []string
	// Unchanged is true if an apply would change nothing. The dry run sets it.
	Unchanged bool
	// Deferred is true if the dry run needs a prerequisite that does not exist yet.
	// NamespacePending is true if that is the Namespace.
	Deferred, NamespacePending bool
	// Refused is true if the API server refuses the object as the commit has it.
	Refused bool
}

// IsDone reports whether nothing is left to be written of a target. Drift may stay for a while.
func (t *Target) IsDone() bool {
	switch t.Mode {
	case Full, ExceptRollout:
		return !t.Refused && (t.Unchanged || t.Applied != nil)
	case Skip:
		return !t.Refused
	case AfterHandBack, AfterDeletion:
	}
	return false
}

// Entry returns the entry of the object.
func (t *Target) Entry() inventory.Entry { return inventory.Of(t.Unstructured) }

// Observer reads the cluster's side of one sync. It keeps what it has read.
type Observer struct {
	Source *v1alpha1.GitSource
	// As reads what is applied, as the account of the GitSource.
	As client.Reader
	// Own reads what else is needed, as the controller.
	Own client.Reader

	// Lists reads many objects of a kind together, as Account, the name of that of As. nil: each
	// object is read by itself.
	Lists   *lists.Shared
	Account string

	// First says that the source has applied nothing yet, and what the namespaces of its
	// objects have. nil: all is read.
	First *First

	settling sync.Mutex // what is below, in [Observer.SettleAssumed]

	commit []plan.Object                                // all of it
	plans  map[client.ObjectKey][]v1alpha1.BatchRelease // by Deployment
	ending map[client.ObjectKey][]v1alpha1.BatchRelease // those that are being deleted
	counts map[string]*planReads                        // of plans, by namespace
	hpas   map[string][]autoscalingv2.HorizontalPodAutoscaler
	ahead  map[string]liveRead // by entry, see [Observer.ReadAhead]
	// absent are the BatchReleases that were not there when they were read. Only this sync
	// creates one of them, and its creation fails if there is one by then.
	absent map[client.ObjectKey]bool
	// Sources are nil until [Observer.ReadSources].
	Sources *v1alpha1.GitSourceList
	// LabelsOnly is true if the account may not read the sources. Labels alone then say which
	// objects other sources apply.
	LabelsOnly bool
	// Prerequisites are the namespaces and kinds that the commit brings, and that do not
	// exist yet.
	Prerequisites map[string]bool
}

// NewObserver returns an observer that has read nothing.
func NewObserver(gs *v1alpha1.GitSource, as, own client.Reader) *Observer {
	return &Observer{Source: gs, As: as, Own: own, plans: map[client.ObjectKey][]v1alpha1.BatchRelease{},
		ending: map[client.ObjectKey][]v1alpha1.BatchRelease{}, counts: map[string]*planReads{},
		hpas: map[string][]autoscalingv2.HorizontalPodAutoscaler{}, absent: map[client.ObjectKey]bool{}}
}

// Targets returns how each object of a commit is to be applied. The error has the problems of
// all objects, or is not about an object. Objects without a problem are returned with the
// problems of others.
func (o *Observer) Targets(ctx context.Context, set *plan.Set) ([]*Target, error) {
	o.Prerequisites, o.commit = Prerequisites(set), set.Objects
	defer o.ReadAhead(ctx, set.Objects)()
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

// NewTarget returns the target of an object of a set, before [Observer.Observe].
func NewTarget(set *plan.Set, object plan.Object, early map[string]bool) *Target {
	t := &Target{Object: object, Release: set.Governed(object), Autoscaled: set.Autoscaled(object)}
	t.Prerequisite = t.GroupKind() == inventory.CRDKind || t.GroupKind() == inventory.NamespaceKind
	t.NamespacePending = early[t.GetNamespace()]
	t.Deferred = t.NamespacePending || early[t.GroupKind().String()]
	return t
}

// GroupKind returns the kind without its version.
func (t *Target) GroupKind() schema.GroupKind { return t.GroupVersionKind().GroupKind() }

// Prerequisites returns the namespaces and kinds that a set brings itself.
func Prerequisites(set *plan.Set) map[string]bool {
	early := map[string]bool{}
	for _, o := range set.Objects {
		switch o.GroupVersionKind().GroupKind() {
		case inventory.NamespaceKind:
			early[o.GetName()] = true
		case inventory.CRDKind:
			early[inventory.DefinedBy(o.Unstructured).String()] = true
		}
	}
	return early
}

// PlanRefs names the plans of a Deployment, those that are being deleted included.
func (o *Observer) PlanRefs(deployment client.ObjectKey) []lists.PlanRef {
	var refs []lists.PlanRef
	for _, br := range slices.Concat(o.plans[deployment], o.ending[deployment]) {
		refs = append(refs, lists.PlanRef{Name: br.Name, UID: br.UID})
	}
	return refs
}

// Observe completes a target with what the cluster has of it.
func (o *Observer) Observe(ctx context.Context, t *Target) error {
	if t.assumed = o.First.mayAssume(t); t.assumed {
		return o.observeAbsent(ctx, t)
	}
	return o.observe(ctx, t)
}

// observe is Observe for what is read from the cluster.
func (o *Observer) observe(ctx context.Context, t *Target) error {
	live, err := o.get(ctx, t)
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
	if err := o.observeReplicas(ctx, t); err != nil {
		return err
	}
	if t.GroupKind() != inventory.DeploymentKind {
		return nil
	}
	if live == nil {
		return o.observeGone(ctx, t)
	}
	t.Mode, err = o.modeOf(ctx, t)
	return err
}

// get reads the live object of a target; nil: there is none.
func (o *Observer) get(ctx context.Context, t *Target) (*unstructured.Unstructured, error) {
	if o.isAbsent(t.Object) {
		return nil, nil
	}
	if read, ok := o.ahead[t.Entry().ID()]; ok {
		return read.live, read.err
	}
	return inventory.Get(ctx, o.As, t.Entry())
}

func (o *Observer) isAbsent(object plan.Object) bool {
	return object.GroupVersionKind().GroupKind() == inventory.ReleaseKind && o.absent[client.ObjectKeyFromObject(object)]
}

// observeReplicas finds out whether an autoscaler writes spec.replicas, where Git has the
// field, or had it.
func (o *Observer) observeReplicas(ctx context.Context, t *Target) (err error) {
	if !t.Autoscaled && t.SizedByGit() {
		t.Autoscaled, err = o.isAutoscaled(ctx, t)
	}
	return err
}

// modeOf returns the mode of a Deployment that exists.
func (o *Observer) modeOf(ctx context.Context, t *Target) (Mode, error) {
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
	case v1alpha1.HasHeld(t.Live.GetLabels()):
		return AfterHandBack, nil
	default:
		return Full, nil
	}
}

func hasReplicas(u *unstructured.Unstructured) bool {
	n, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "replicas")
	return ok && n != nil
}

// KeepsReplicas reports whether an apply leaves the size of an existing workload as it is.
// That is so if an autoscaler writes it, and if Git does not have it any more: the API server
// would set it to 1.
func (t *Target) KeepsReplicas() bool {
	return t.Live != nil && (t.Autoscaled || inventory.IsWorkload(t.GroupKind()) && !hasReplicas(t.Unstructured))
}

// SizedByGit reports whether the manifest has a size, or gitsync has applied one.
func (t *Target) SizedByGit() bool {
	return hasReplicas(t.Unstructured) || fieldmanager.OwnsReplicas(t.Live)
}

// ownedByOther refuses an object that another GitSource applies. It is in the other's
// inventory, or bears its labels while the other has no inventory, as when its status is
// lost. Labels of a source that is gone, or has let go of the object, do not count.
//
// A user who may write an object may write its labels. So labels that name this source, or
// none, prove nothing, and this source loses nothing of its inventory by them.
func (o *Observer) ownedByOther(ctx context.Context, t *Target) error {
	if t.Live == nil {
		return nil
	}
	others := t.GroupKind() != inventory.DeploymentKind && t.Live.GetLabels()[v1alpha1.LabelSource] != "" &&
		!inventory.IsOwned(t.Live, o.Source)
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

// ReadSources reads all GitSources, once in a sync.
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
		Err: fmt.Errorf("GitSource %s/%s applies it already", namespace, name),
		Hint: "keep it in one of the two; if it moves, status.kept or Ready of the other one has the reason why it does not let go; " +
			"if another object moves the other way, move one of them in an earlier commit", Retry: true,
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

// Ending returns the BatchReleases of a Deployment that are being deleted, of which
// [Observer.PlansFor] has read.
func (o *Observer) Ending(deployment client.ObjectKey) []v1alpha1.BatchRelease {
	return o.ending[deployment]
}

// LivePlan returns the plan of a release in the cluster, or nil.
func (o *Observer) LivePlan(ctx context.Context, release *plan.Release) (*v1alpha1.BatchRelease, error) {
	o.assumeNoPlan(ctx, release)
	plans, err := o.PlansFor(ctx, plan.WorkloadOf(release))
	if err != nil {
		return nil, err
	}
	for i := range plans {
		if plans[i].Name == release.Plan.Name {
			return &plans[i], nil
		}
	}
	br, key := &v1alpha1.BatchRelease{}, client.ObjectKeyFromObject(release.Plan) // it may be there for another Deployment
	if o.absent[key] {
		return nil, nil // one that was created since has decided nothing yet
	}
	if err := o.Own.Get(ctx, key, br); err != nil {
		if apierrors.IsNotFound(err) {
			o.absent[key] = true
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
	return slices.ContainsFunc(hpas, func(h autoscalingv2.HorizontalPodAutoscaler) bool {
		ref, ok := lists.ScaledBy(&h)
		return ok && ref == t.Scaled()
	}), nil
}
