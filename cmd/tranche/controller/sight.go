package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
)

// The times of reads that are refused.
const (
	// longestBlind is how long the API server may refuse them. A grant that is made again within it costs no restart.
	longestBlind = time.Minute
	// blindAgain is the most between two refusals that have no success between them. A Reflector waits for up
	// to a minute.
	blindAgain = 2 * time.Minute
)

// sight notices that this process may no longer list or watch objects of a kind, as after a change
// of RBAC. The cache keeps what it had, and no error reaches who reads it. So the process ends.
// The next one begins no work before it has read all objects, and another replica takes the lease.
type sight struct {
	mu      sync.Mutex
	refused map[*toolscache.Reflector]refusals
	because error         // why the process has to end
	lost    chan struct{} // closed with because
}

// refusals are those of one kind's reads since the last other answer.
type refusals struct{ first, last time.Time }

func newSight() *sight {
	return &sight{refused: map[*toolscache.Reflector]refusals{}, lost: make(chan struct{})}
}

// failed handles the end of a list or watch of a cache.
func (s *sight) failed(ctx context.Context, r *toolscache.Reflector, err error) {
	toolscache.DefaultWatchErrorHandler(ctx, r, err)
	s.note(r, err, time.Now())
}

func (s *sight) note(r *toolscache.Reflector, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isRefusal(err) {
		delete(s.refused, r)
		return
	}
	before, ok := s.refused[r]
	if !ok || now.Sub(before.last) > blindAgain {
		before.first = now
	}
	before.last = now
	s.refused[r] = before
	if away := now.Sub(before.first); away >= longestBlind && s.because == nil {
		s.because = blind(r.TypeDescription(), away, err)
		close(s.lost)
	}
}

func isRefusal(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// blind is why the process ends when the reads of a kind have been refused for so long.
func blind(kind string, away time.Duration, err error) error {
	return fmt.Errorf("%s could not be read for %s, and what is known of them is old; the process ends to read all objects again: %w",
		kind, away.Round(time.Second), err)
}
