// Package startup says how long a Deployment without a plan waits for its source before it is handed back.
package startup

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// sourcesWithin is how long after the start of a leader a held Deployment without a plan
// stays held. The branch may have the plan again, since the leader before deleted it and
// died. The sources are synced in that time, and bring it back.
const sourcesWithin = 30 * time.Second

// Plans knows which Deployments had a plan since this process began to lead. A plan of
// these that goes has left the branch now.
type Plans struct {
	mu     sync.Mutex
	uptime func() time.Duration
	begun  bool
	began  time.Duration
	seen   map[types.NamespacedName]bool
	// returns has the Deployments whose plan is to be created again, by the uptime until which
	// that may be. It is 0 until the old plan is gone.
	returns map[types.NamespacedName]time.Duration
}

// New returns Plans by a time that nothing sets, from any moment on. The start is the first call
// of another function.
func New(uptime func() time.Duration) *Plans {
	return &Plans{uptime: uptime, seen: map[types.NamespacedName]bool{}, returns: map[types.NamespacedName]time.Duration{}}
}

// Saw notes that a Deployment has a plan.
func (s *Plans) Saw(deployment types.NamespacedName) {
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
func (s *Plans) left() time.Duration {
	if !s.begun {
		s.begun, s.began = true, s.uptime()
	}
	return max(0, s.began+sourcesWithin-s.uptime())
}

// Wait returns how long the hand-back of a Deployment without a plan waits for its source.
func (s *Plans) Wait(deployment types.NamespacedName) time.Duration {
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

// AwaitReturn notes that the plan of a Deployment is to be created again once the old one,
// which a finalizer keeps, is gone.
func (s *Plans) AwaitReturn(deployment types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returns[deployment] = 0
}

// EndReturn notes that the branch does not have the plan of a Deployment any more.
func (s *Plans) EndReturn(deployment types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.returns, deployment)
}
