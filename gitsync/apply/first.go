package apply

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/lists"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// First is about the first sync of a source. Most of its objects do not exist, and to read
// each would tell no more than its dry run does. The answer to a dry run has a resourceVersion
// only if the object exists. Such an object is then read, and tried as in any other sync.
type First struct {
	Shared *lists.Shared
	// Since is when the sync was requested.
	Since time.Time
}

// FirstOf returns what a first sync knows, and nil for a source that may have applied something.
func FirstOf(status *v1alpha1.GitSourceStatus, shared *lists.Shared, since time.Time) *First {
	if status.Inventory != nil || status.ObservedCommit != "" || status.AppliedCommit != "" {
		return nil
	}
	return &First{Shared: shared, Since: since}
}

// freshFor is how old the list of the plans of a namespace may be in a first sync. That of the
// autoscalers was begun after the sync was requested. An autoscaler that is created later is
// found when the interval is over.
const freshFor = 30 * time.Second

func (f *First) since() time.Time {
	return slices.MaxFunc([]time.Time{f.Since, time.Now().Add(-freshFor)}, time.Time.Compare)
}

// assumeNoPlan spares the reads of a plan and of those of its Deployment, if a list has none.
func (o *Observer) assumeNoPlan(ctx context.Context, release *plan.Release) {
	deployment, key := plan.WorkloadOf(release), client.ObjectKeyFromObject(release.Plan)
	if _, read := o.plans[deployment]; !read && o.First.hasNone(ctx, key, deployment) {
		o.plans[deployment], o.absent[key] = nil, true
	}
}

// hasNone reports whether a namespace has no plan of a name, and none for a Deployment. If there
// is one since the list was read, its creation by this sync fails, and the next sync reads it.
func (f *First) hasNone(ctx context.Context, release, deployment client.ObjectKey) bool {
	if f == nil || release.Namespace != deployment.Namespace {
		return false
	}
	plans, _, err := f.Shared.PlansIn(ctx, lists.Query{Namespace: deployment.Namespace, Since: f.since()})
	if err != nil || len(plans[deployment.Name]) > 0 {
		return false
	}
	for _, refs := range plans {
		if slices.ContainsFunc(refs, func(r lists.PlanRef) bool { return r.Name == release.Name }) {
			return false
		}
	}
	return true
}

// FailuresIn returns the failures that a namespace keeps. In a first sync, a list that was begun
// after the sync was requested has them.
func (o *Observer) FailuresIn(ctx context.Context, namespace string) (lists.Failures, error) {
	if o.First != nil {
		found, _, err := o.First.Shared.FailuresIn(ctx, lists.Query{Namespace: namespace, Since: o.First.Since})
		if err == nil {
			return found, nil
		}
	}
	return lists.ReadFailures(ctx, o.Own, namespace, 0)
}

// mayAssume reports whether a target may be taken for one that does not exist until its dry
// run. That is so for an object of which its existence alone tells how it is applied.
func (f *First) mayAssume(t *Target) bool {
	if f == nil || t.Prerequisite || t.Deferred || t.forbidden() != nil || inventory.IsLeftAlone(t.Unstructured) {
		return false
	}
	switch t.GroupKind() {
	case inventory.ReleaseKind, inventory.ReplicaSetKind, inventory.PodKind:
		return false
	}
	return true
}

// observeAbsent completes a target that is taken for one that does not exist.
func (o *Observer) observeAbsent(ctx context.Context, t *Target) error {
	if !t.Autoscaled && hasReplicas(t.Unstructured) {
		scaled, _, err := o.First.Shared.ScaledIn(ctx, lists.Query{Namespace: t.GetNamespace(), Since: o.First.Since})
		if err != nil || scaled[t.Scaled()] {
			return o.readAssumed(ctx, t)
		}
	}
	if t.GroupKind() != inventory.DeploymentKind {
		return nil
	}
	if t.Release != nil {
		key := client.ObjectKeyFromObject(t)
		o.assumeNoPlan(ctx, t.Release)
		if plans, err := o.PlansFor(ctx, key); err != nil || len(plans)+len(o.Ending(key)) > 0 {
			return o.readAssumed(ctx, t)
		}
		return nil
	}
	plans, _, err := o.First.Shared.PlansIn(ctx, lists.Query{Namespace: t.GetNamespace(), Since: o.First.since()})
	if err != nil || len(plans[t.GetName()]) > 0 {
		return o.readAssumed(ctx, t)
	}
	return nil
}

// readAssumed reads a target that was assumed.
func (o *Observer) readAssumed(ctx context.Context, t *Target) error {
	t.assumed = false
	return o.observe(ctx, t)
}

// Scaled names the object as an autoscaler does.
func (t *Target) Scaled() lists.Scaled {
	gvk := t.GroupVersionKind()
	return lists.Scaled{Group: gvk.Group, Kind: gvk.Kind, Name: t.GetName()}
}

// dryRunAssumed tries an object that was taken for one that does not exist. It returns false if
// the object exists, or is refused: it has to be read and tried again.
func dryRunAssumed(ctx context.Context, a *Applier, t *Target) bool {
	tried := a.Manifest(t.Object)
	err := a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(tried), client.FieldOwner(v1alpha1.ManagerGitSync), client.DryRunAll)
	return err == nil && tried.GetResourceVersion() == ""
}

// MayCreateUntried reports whether a target may be created without a dry run, if nothing of the
// commit was written before. A Secret is tried, since the controller reads more of the cluster
// for one that the account may write.
func (t *Target) MayCreateUntried() bool {
	return t.assumed && t.Release == nil && t.GroupKind() != inventory.SecretKind
}

// versionOfNone is a version that no object has. The API server refuses to apply an object with
// it that exists, and creates one that does not.
const versionOfNone = "1"

// applyNew creates u by an apply, and sets it to the answer. If the object exists, the error is
// a conflict, and the object stays as it is.
func (a *Applier) applyNew(ctx context.Context, u *unstructured.Unstructured) error {
	u.SetResourceVersion(versionOfNone)
	return a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1alpha1.ManagerGitSync))
}

// CreateUntried creates an object that was taken for one that does not exist, and was not
// tried. An error leaves an object that exists as it is.
func (a *Applier) CreateUntried(ctx context.Context, t *Target) error {
	u := a.Body(t)
	err := a.applyNew(ctx, u)
	if err == nil {
		t.assumed, t.Applied = false, u
	}
	return err
}

// SettleAssumed finds out whether an object exists that was taken for one that does not. It
// returns true if it does not, and may be created. A target that was not assumed is left as it is.
// Calls for several targets may be at the same time.
func (o *Observer) SettleAssumed(ctx context.Context, a *Applier, t *Target) (absent bool, ps plan.Problems, err error) {
	if !t.assumed {
		return false, nil, nil
	}
	if dryRunAssumed(ctx, a, t) {
		return true, nil, nil
	}
	o.settling.Lock()
	defer o.settling.Unlock()
	if err = o.readAssumed(ctx, t); err == nil {
		return false, nil, nil
	}
	ps = apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, a.Source, err)
	if len(ps) == 0 {
		return false, nil, err
	}
	t.Refused = true
	return false, ps, nil
}
