package rollout

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// sourcesWithin is how long after the start of a leader a held Deployment without a plan
// stays held. The branch may have the plan again, since the leader before deleted it and
// died. The sources are synced in that time, and bring it back.
const sourcesWithin = 30 * time.Second

// startup knows which Deployments had a plan since this process began to lead. A plan of
// these that goes has left the branch now.
type startup struct {
	mu     sync.Mutex
	uptime func() time.Duration
	begun  bool
	began  time.Duration
	seen   map[types.NamespacedName]bool
	// returns has the Deployments of plans that [returns] was true of last. The value is the
	// uptime until which such a plan may be created again, and 0 until the old one is gone.
	returns map[types.NamespacedName]time.Duration
}

// saw notes that a Deployment has a plan.
func (s *startup) saw(deployment types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.returns, deployment)
	if s.left() > 0 {
		s.seen[deployment] = true
	} else {
		s.seen = nil
	}
}

// left returns how much of the time is left, which begins with the first call.
func (s *startup) left() time.Duration {
	if !s.begun {
		s.begun, s.began = true, s.uptime()
	}
	return max(0, s.began+sourcesWithin-s.uptime())
}

// wait returns how long the hand-back of a Deployment without a plan waits for its source.
func (s *startup) wait(deployment types.NamespacedName) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until, ok := s.returns[deployment]; ok {
		if until == 0 {
			until = s.uptime() + sourcesWithin
			s.returns[deployment] = until
		}
		if left := until - s.uptime(); left > 0 {
			return left
		}
		delete(s.returns, deployment)
	}
	if s.seen[deployment] {
		return 0
	}
	return s.left()
}

// awaitReturn notes that the plan of a Deployment is to be created again once the old one,
// which a finalizer keeps, is gone.
func (s *startup) awaitReturn(deployment types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returns[deployment] = 0
}

// endReturn notes that the branch does not have the plan of a Deployment any more.
func (s *startup) endReturn(deployment types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.returns, deployment)
}

// returning reports whether the branch has the plan of a Deployment again, and it cannot be
// created yet. A finalizer keeps the old one, which is being deleted.
func (a *abandonment) returning(ctx context.Context, deployment types.NamespacedName) (bool, error) {
	var plans v1alpha1.BatchReleaseList
	if err := a.List(ctx, &plans, client.InNamespace(deployment.Namespace), client.MatchingFields{v1alpha1.FieldWorkload: deployment.Name}); err != nil {
		return false, fmt.Errorf("listing the plans of Deployment %s: %w", deployment, err)
	}
	switch {
	case slices.ContainsFunc(plans.Items, returns):
		a.startup.awaitReturn(deployment)
		return true, nil
	case len(plans.Items) > 0: // else it is created now
		a.startup.endReturn(deployment)
	}
	return false, nil
}

// returns reports whether a plan is being deleted, and the branch has it again.
func returns(br v1alpha1.BatchRelease) bool {
	return isGone(&br) && br.Annotations[v1alpha1.AnnotationReturns] != ""
}

// awaitSource returns how long the hand-back of a held Deployment waits for its source. One
// that no GitSource applies waits for nothing.
func (a *abandonment) awaitSource(ctx context.Context, deployment types.NamespacedName) (time.Duration, error) {
	wait := a.startup.wait(deployment)
	if wait == 0 {
		return 0, nil
	}
	var live appsv1.Deployment // the cache has no managedFields
	if err := a.reader.Get(ctx, deployment, &live); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return 0, nil
		}
		return 0, fmt.Errorf("reading Deployment %s before it is handed back: %w", deployment, err)
	}
	if !slices.ContainsFunc(live.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == v1alpha1.ManagerGitSync }) {
		return 0, nil
	}
	return wait, nil
}
