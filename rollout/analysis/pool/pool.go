package pool

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

const (
	// Places is how many questions are asked at the same time, with one more for each namespace
	// that would have none. PlacesOfHost is how many of them are of one host.
	Places       = 32
	PlacesOfHost = 4

	firstBackoff = 5 * time.Second
	maxBackoff   = time.Minute
	firstPoll    = 2 * time.Second
	maxPoll      = 15 * time.Second
)

// Question is asked until it has an answer. K names it.
type Question[K comparable, V any] struct {
	Key K
	// Host is the server that is asked, or another name for what a question takes a place of.
	Host string
	// At is when to ask, and not before.
	At time.Time
	// Run asks. It returns an *unknown.Error where there is no value. If that may pass, the
	// pool runs it again later, with its value kept in the meantime.
	Run func(ctx context.Context) (V, error)
}

// Options of a pool.
type Options struct {
	Now func() time.Time
	// Answered is called when a question of a release has an answer, or another one than
	// before. It must not block.
	Answered func(release types.NamespacedName)
}

// Pool asks questions. Its zero value is not usable; see [New].
type Pool[K comparable, V any] struct {
	o    Options
	wake chan struct{} // has room for one

	mu       sync.Mutex
	ctx      context.Context //nolint:containedctx // that of Start, in which the questions are asked; nil before
	releases map[types.NamespacedName]*release[K, V]
	busy     busy
	turn     uint64 // counts the questions that were begun
	wg       sync.WaitGroup
}

// release is what is asked for one release.
type release[K comparable, V any] struct {
	name  types.NamespacedName
	asked map[K]*asked[K, V]
	turn  uint64 // when its last question was begun
}

// asked is one question, and its answer if there is one.
type asked[K comparable, V any] struct {
	Question[K, V]
	of       *release[K, V]
	cancel   context.CancelFunc // not nil: it is being asked
	done     bool               // it is not asked again
	answered bool
	value    V
	tries    int
	polls    int
}

// busy counts the places that are taken.
type busy struct {
	all     int
	of      map[string]int // by namespace
	hosts   map[string]int
	ofHosts map[[2]string]int // by namespace and host
}

// New returns a pool that begins with [Pool.Start].
func New[K comparable, V any](o Options) *Pool[K, V] {
	return &Pool[K, V]{
		o: o, wake: make(chan struct{}, 1), releases: map[types.NamespacedName]*release[K, V]{},
		busy: busy{of: map[string]int{}, hosts: map[string]int{}, ofHosts: map[[2]string]int{}},
	}
}

// Start asks until ctx ends, and returns when nothing of it runs any more.
func (p *Pool[K, V]) Start(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			p.wg.Wait()
			return nil
		case <-timer.C:
		case <-p.wake:
		}
		if next := p.begin(); next > 0 {
			timer.Reset(next)
		}
	}
}

// Ask says what is asked for a release from now on. Questions that are asked already go on.
func (p *Pool[K, V]) Ask(name types.NamespacedName, questions []Question[K, V]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.releases[name]
	switch {
	case r == nil && len(questions) == 0:
		return
	case r == nil:
		r = &release[K, V]{name: name, asked: map[K]*asked[K, V]{}}
		p.releases[name] = r
	}
	named := make(map[K]bool, len(questions))
	for _, q := range questions {
		named[q.Key] = true
		if a := r.asked[q.Key]; a == nil {
			r.asked[q.Key] = &asked[K, V]{Question: q, of: r}
		}
	}
	for key, a := range r.asked {
		if !named[key] {
			if a.cancel != nil {
				a.cancel()
			}
			delete(r.asked, key)
		}
	}
	if len(r.asked) == 0 {
		delete(p.releases, name)
	}
	p.signal()
}

// Answers returns the answers that a release has.
func (p *Pool[K, V]) Answers(name types.NamespacedName) []V {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.releases[name]
	if r == nil {
		return nil
	}
	var values []V
	for _, a := range r.asked {
		if a.answered {
			values = append(values, a.value)
		}
	}
	return values
}

func (p *Pool[K, V]) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// begin begins the questions that are due and have a place. It returns the time until the
// next one is due; 0: none is.
func (p *Pool[K, V]) begin() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.Now()
	for p.ctx.Err() == nil {
		next, wait := p.choose(now)
		if next == nil {
			return wait
		}
		p.run(next)
	}
	return 0
}

// choose returns the question to begin, of the release that has waited for the longest. If no
// question can begin it returns the time until one is due.
func (p *Pool[K, V]) choose(now time.Time) (best *asked[K, V], wait time.Duration) {
	for _, r := range p.releases {
		for _, a := range r.asked {
			if a.done || a.cancel != nil {
				continue
			}
			if until := a.At.Sub(now); until > 0 {
				if wait == 0 || until < wait {
					wait = until
				}
				continue
			}
			if p.busy.hasPlace(r.name.Namespace, a.Host) && (best == nil || before(a, best)) {
				best = a
			}
		}
	}
	return best, wait
}

func before[K comparable, V any](a, b *asked[K, V]) bool {
	if a.of.turn != b.of.turn {
		return a.of.turn < b.of.turn
	}
	return a.At.Before(b.At)
}

func (b *busy) hasPlace(namespace, host string) bool {
	here := b.ofHosts[[2]string{namespace, host}]
	free, freeHere := Places-b.all, PlacesOfHost-b.hosts[host]
	return (free > b.of[namespace] || b.of[namespace] == 0) && (freeHere > 1 || freeHere == 1 && here == 0)
}

func (b *busy) add(namespace, host string, n int) {
	b.all += n
	plus(b.of, namespace, n)
	plus(b.hosts, host, n)
	plus(b.ofHosts, [2]string{namespace, host}, n)
}

func plus[K comparable](m map[K]int, key K, n int) {
	if m[key] += n; m[key] == 0 {
		delete(m, key)
	}
}

// run begins a question, with the lock held.
func (p *Pool[K, V]) run(a *asked[K, V]) {
	ctx, cancel := context.WithCancel(p.ctx)
	a.cancel = cancel
	p.turn++
	a.of.turn = p.turn
	p.busy.add(a.of.name.Namespace, a.Host, 1)
	p.wg.Go(func() {
		defer cancel()
		value, err := a.Run(ctx)
		p.ended(ctx, a, value, err)
	})
}

// ended takes an answer, unless the question was cancelled.
func (p *Pool[K, V]) ended(ctx context.Context, a *asked[K, V], value V, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.signal()
	p.busy.add(a.of.name.Namespace, a.Host, -1)
	a.cancel = nil
	if ctx.Err() != nil || a.of.asked[a.Key] != a {
		return
	}
	var why *unknown.Error
	if err != nil {
		why = unknown.Of(err)
	}
	switch {
	case why != nil && why.Pending:
		a.At = p.o.Now().Add(min(firstPoll<<min(a.polls, 8), maxPoll))
		a.polls++
		return
	case why != nil && why.Retry:
		a.At = p.o.Now().Add(max(why.After, min(firstBackoff<<min(a.tries, 8), maxBackoff)))
		a.tries++
	default:
		a.done = true
	}
	a.value, a.answered = value, true
	if p.o.Answered != nil {
		p.o.Answered(a.of.name)
	}
}
