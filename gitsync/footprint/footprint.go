package footprint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/lists"
	"github.com/tranche-dev/tranche/plan"
)

// Footprint is what the cluster had of a source when all of a commit was applied. It has the
// versions of the objects, the plans of the Deployments, and what autoscalers resize. If all of
// that is the same, a sync of the same commit would read the same, and write nothing. It is
// never changed.
type Footprint struct {
	versions map[place]map[string]lists.Version // by name
	plans    map[client.ObjectKey][]lists.PlanRef
	scaled   map[client.ObjectKey]scale
}

// place is where objects of a kind are.
type place struct {
	gvk       schema.GroupVersionKind
	namespace string
}

type scale struct {
	lists.Scaled
	autoscaled bool
}

// Of returns the footprint of a commit that is applied; nil if something of it has to
// be read at each sync.
func Of(set *plan.Set, o *apply.Observer, targets ...*apply.Target) *Footprint {
	f := &Footprint{
		versions: map[place]map[string]lists.Version{},
		plans:    map[client.ObjectKey][]lists.PlanRef{},
		scaled:   map[client.ObjectKey]scale{},
	}
	for _, t := range targets {
		if !f.add(set, o, t) {
			return nil
		}
	}
	return f
}

func (f *Footprint) add(set *plan.Set, o *apply.Observer, t *apply.Target) bool {
	now := t.Live
	if t.Applied != nil {
		now = t.Applied
	}
	// Deployments may adopt a ReplicaSet or Pod, which is then refused.
	adoptable := slices.Contains([]schema.GroupKind{inventory.ReplicaSetKind, inventory.PodKind}, t.GroupKind())
	if adoptable || now == nil || now.GetResourceVersion() == "" || !t.IsDone() {
		return false
	}
	at := place{t.GroupVersionKind(), t.GetNamespace()}
	if f.versions[at] == nil {
		f.versions[at] = map[string]lists.Version{}
	}
	f.versions[at][t.GetName()] = lists.VersionOf(now)
	key := client.ObjectKeyFromObject(t)
	if t.SizedByGit() && !set.Autoscaled(t.Object) {
		f.scaled[key] = scale{t.Scaled(), t.Autoscaled}
	}
	if t.GroupKind() == inventory.DeploymentKind {
		f.plans[key] = o.PlanRefs(key)
	}
	return true
}

// Count returns how many objects of a kind there are in a namespace.
func (f *Footprint) Count(gvk schema.GroupVersionKind, namespace string) int {
	return len(f.versions[place{gvk, namespace}])
}

// Counts adds how many objects of a kind there are to those of each namespace.
func (f *Footprint) Counts(gvk schema.GroupVersionKind, byNamespace map[string]int) {
	for at, versions := range f.versions {
		if at.gvk == gvk {
			byNamespace[at.namespace] += len(versions)
		}
	}
}

// deployments are what plans and autoscalers are asked for.
var deployments = appsv1.SchemeGroupVersion.WithKind(inventory.DeploymentKind.Kind)

// ErrMoved says that the cluster has something else of a source than its footprint.
var ErrMoved = errors.New("it is not as it was applied")

// Reading is how a footprint is compared with the cluster.
type Reading struct {
	Shared *lists.Shared
	// As reads as the account of the source, which Account names.
	As      client.Reader
	Account string
	// Since is when the lists were begun at the earliest.
	Since time.Time
	// Known returns how many objects of a kind in a namespace sources have applied. Spread
	// returns how many they have in all, and in how many namespaces.
	Known  func(gvk schema.GroupVersionKind, namespace string) int
	Spread func(gvk schema.GroupVersionKind) (objects, namespaces int)
}

// query is what is asked for of a namespace, by lists about a kind.
func (r *Reading) query(namespace string, about schema.GroupVersionKind) lists.Query {
	return lists.Query{Namespace: namespace, Since: r.Since, Spread: func() (int, int) { return r.Spread(about) }}
}

// versionsIn returns the versions of the objects that are in a place.
func (r *Reading) versionsIn(ctx context.Context, at place) (map[string]lists.Version, time.Time, error) {
	known := func() int { return r.Known(at.gvk, at.namespace) }
	kind := lists.Kind{GroupVersionKind: at.gvk, As: r.As, Account: r.Account, Known: known}
	return r.Shared.VersionsIn(ctx, kind, r.query(at.namespace, at.gvk))
}

// Holds compares a footprint with the cluster, by lists that it shares with other sources. It
// returns when the oldest of them was begun. The error is [ErrMoved], or says why the lists
// cannot be read: each object has to be read then.
func (f *Footprint) Holds(ctx context.Context, r Reading) (time.Time, error) {
	oldest := time.Now()
	note := func(begun time.Time) {
		if begun.Before(oldest) {
			oldest = begun
		}
	}
	for at, versions := range f.versions {
		now, begun, err := r.versionsIn(ctx, at)
		if err != nil {
			return begun, err
		}
		note(begun)
		for name, version := range versions {
			if now[name] != version {
				return begun, fmt.Errorf("%s %s/%s: %w", at.gvk.Kind, at.namespace, name, ErrMoved)
			}
		}
	}
	for key, refs := range f.plans {
		now, begun, err := r.Shared.PlansIn(ctx, r.query(key.Namespace, deployments))
		if err != nil {
			return begun, err
		}
		note(begun)
		if !sameRefs(refs, now[key.Name]) {
			return begun, fmt.Errorf("the plans of Deployment %s: %w", key, ErrMoved)
		}
	}
	for key, scale := range f.scaled {
		now, begun, err := r.Shared.ScaledIn(ctx, r.query(key.Namespace, deployments))
		if err != nil {
			return begun, err
		}
		note(begun)
		if now[scale.Scaled] != scale.autoscaled {
			return begun, fmt.Errorf("the autoscaler of %s %s: %w", scale.Kind, key, ErrMoved)
		}
	}
	return oldest, nil
}

func sameRefs(a, b []lists.PlanRef) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(r lists.PlanRef) bool { return !slices.Contains(b, r) })
}
