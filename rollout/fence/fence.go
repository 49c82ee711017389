// Package fence asks the API server, before the writes of a round, whether what the round was
// decided on is still so. Each write is conditional on the version of the object that it
// changes. That does not cover the other objects that led to it.
package fence

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/failures"
)

// Fence reads past the cache.
type Fence struct {
	reader client.Reader

	mu     sync.Mutex
	agreed map[types.NamespacedName]generation // by BatchRelease
}

// generation is one generation of a Deployment.
type generation struct {
	deployment types.UID
	number     int64
}

// New returns a Fence that reads with a client past the cache.
func New(reader client.Reader) *Fence {
	return &Fence{reader: reader, agreed: map[types.NamespacedName]generation{}}
}

// Writes asks what has to be asked before these writes of a round. fenced: the BatchRelease was
// written just before, as it was observed.
func (f *Fence) Writes(ctx context.Context, o engine.Observed, actions []engine.Action, fenced bool) error {
	if len(actions) > 0 && !fenced {
		if err := f.Release(ctx, o.Release); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(actions, takesPods) {
		return f.Sizes(ctx, client.ObjectKeyFromObject(o.Release), o.Deployment, o.ReplicaSets)
	}
	return nil
}

// takesPods reports whether an action makes a ReplicaSet smaller.
func takesPods(a engine.Action) bool {
	resize, ok := a.(engine.Resize)
	return ok && resize.To < *resize.ReplicaSet.Spec.Replicas
}

// Release returns [failures.ErrChanged] unless a BatchRelease is the one that a round was
// decided on. The cache may not have what another leader has decided meanwhile. With a new
// ReplicaSet and an old BatchRelease, a round scales a step back.
//
// It is enough to ask once in a round. Every decision is in the status before anything is
// moved by it, so two leaders with the same BatchRelease lead to the same sizes. The
// resourceVersion of each object lets only one of them write.
func (f *Fence) Release(ctx context.Context, br *v1alpha1.BatchRelease) error {
	var live metav1.PartialObjectMetadata
	live.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BatchRelease"))
	err := client.IgnoreNotFound(f.reader.Get(ctx, client.ObjectKeyFromObject(br), &live))
	if err != nil {
		return fmt.Errorf("reading BatchRelease %s/%s before a write: %w", br.Namespace, br.Name, err)
	}
	if live.UID != br.UID || live.ResourceVersion != br.ResourceVersion {
		return fmt.Errorf("BatchRelease %s/%s was changed or deleted since it was observed: %w", br.Namespace, br.Name, failures.ErrChanged)
	}
	return nil
}

// Sizes returns [failures.ErrChanged] unless the ReplicaSets that have pods have the sizes that
// a round has observed. A round that takes pods away asks for it. Deployment and ReplicaSets come
// by two watches. The Deployment may say that the native controller has seen the hold, while the
// last size that it wrote before has not come yet.
//
// It is enough to ask once for each generation that the native controller has seen. After
// that it leaves the sizes of a held Deployment alone.
func (f *Fence) Sizes(ctx context.Context, release types.NamespacedName, d *appsv1.Deployment, sets []*appsv1.ReplicaSet) error {
	now := generation{deployment: d.UID, number: d.Generation}
	f.mu.Lock()
	agreed := f.agreed[release] == now
	f.mu.Unlock()
	if agreed {
		return nil
	}
	for _, rs := range sets {
		if ptr.Deref(rs.Spec.Replicas, 1) == 0 {
			continue
		}
		var live appsv1.ReplicaSet
		if err := client.IgnoreNotFound(f.reader.Get(ctx, client.ObjectKeyFromObject(rs), &live)); err != nil {
			return fmt.Errorf("reading ReplicaSet %s/%s before a write: %w", rs.Namespace, rs.Name, err)
		}
		if live.UID != rs.UID || ptr.Deref(live.Spec.Replicas, 1) != ptr.Deref(rs.Spec.Replicas, 1) {
			return fmt.Errorf("ReplicaSet %s/%s was resized or deleted since it was observed: %w", rs.Namespace, rs.Name, failures.ErrChanged)
		}
	}
	if d.Status.ObservedGeneration >= d.Generation {
		f.mu.Lock()
		f.agreed[release] = now
		f.mu.Unlock()
	}
	return nil
}

// Forget removes what is kept of a BatchRelease.
func (f *Fence) Forget(release types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.agreed, release)
}
