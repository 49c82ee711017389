package sandbox

import (
	"errors"
	"slices"
	"time"
)

// A tenant whose renderings take long must not keep the others waiting:
//
//   - A tenant has at most all places but one.
//   - No rendering waits for long, so that a tenant that has many folders to render does
//     not hold the goroutines of all. If the places that it may have are held for longer
//     than waitAtMost, one of a tenant waits, and the others do not.
//   - A place that is free goes to the tenant that has the fewest. Among equals it goes to
//     the one that has had none for the longest. A tenant that is to come back for it is
//     promised the place: one that tries all the time would else take it first.
//   - Slow tenants, those whose last rendering took long, have all places but one together.
//   - If a tenant without a place has waited in vain, a rendering of a tenant with several
//     is ended, the one that began last. It begins again later. So is one of the slow tenants
//     if they have all places, and this one is not slow.
//
// So each of several tenants has a place, and with more tenants than places, none has two. A
// tenant that is not slow has its turn soon, however many are.

// waitAtMost is how long a rendering waits for a place.
const waitAtMost = 250 * time.Millisecond

// errTakenAway is why a rendering is ended for another tenant.
var errTakenAway = errors.New("its place was given to another tenant")

// place is a worker's, which may have to be started yet.
type place struct {
	tenant  string
	process *process
	begun   time.Time
	// taken: its process is killed for another tenant.
	taken bool
}

// end ends the rendering, which is to be begun again.
func (w *place) end() {
	w.taken = true
	if w.process != nil {
		w.process.end(errTakenAway)
	}
}

// waiter waits for a place.
type waiter struct {
	tenant string
	given  chan *place // nil: the pool is closed
}

// promisedFor is how long a promised place is kept. On a busy machine a sync takes a while to
// come as far as its rendering.
const promisedFor = 10 * time.Second

// places are the places of a pool. They are used with the pool locked.
type places struct {
	most    int
	running []*place
	waiting []*waiter
	parked  []*busyError // those that did not get a place
	// promised are those of them for which a place is kept.
	promised []*busyError
	// granted counts the places that were given, and last has that of each tenant's last.
	granted int
	last    map[string]int
	// slowAfter is how long a rendering takes that makes its tenant a slow one.
	slowAfter time.Duration
	slow      map[string]bool
}

func newPlaces(most int, slowAfter time.Duration) places {
	return places{most: most, slowAfter: slowAfter, last: map[string]int{}, slow: map[string]bool{}}
}

// free returns how many places are neither used nor promised.
func (p *places) free() int { return p.most - len(p.running) - len(p.promised) }

// of returns how many places a tenant has, or is promised.
func (p *places) of(tenant string) int {
	n := 0
	for _, e := range p.promised {
		if e.tenant == tenant {
			n++
		}
	}
	for _, w := range p.running {
		if w.tenant == tenant {
			n++
		}
	}
	return n
}

// mayHave reports whether a tenant may have one more place, of those that are free.
func (p *places) mayHave(tenant string) bool {
	return p.free() > 0 && p.of(tenant) < p.most-1 && (!p.isSlow(tenant) || p.ofSlow() < p.most-1)
}

func (p *places) isSlow(tenant string) bool {
	return p.slow[tenant] || slices.ContainsFunc(p.running, func(w *place) bool {
		return w.tenant == tenant && time.Since(w.begun) > p.slowAfter
	})
}

// ofSlow returns how many places slow tenants have, or are promised.
func (p *places) ofSlow() int {
	n := 0
	for _, w := range p.running {
		if p.isSlow(w.tenant) {
			n++
		}
	}
	for _, e := range p.promised {
		if p.isSlow(e.tenant) {
			n++
		}
	}
	return n
}

// waits reports whether a rendering of a tenant waits.
func (p *places) waits(tenant string) bool {
	return slices.ContainsFunc(p.waiting, func(w *waiter) bool { return w.tenant == tenant })
}

// isStuck reports whether all places that a tenant may have are held for long.
func (p *places) isStuck(tenant string) bool {
	own, slow := p.of(tenant) >= p.most-1, p.isSlow(tenant) && p.ofSlow() >= p.most-1
	return !slices.ContainsFunc(p.running, func(w *place) bool {
		return (w.tenant == tenant || !own) && (p.isSlow(w.tenant) || !slow) && time.Since(w.begun) < waitAtMost
	})
}

// give gives a place to a tenant.
func (p *places) give(tenant string) *place {
	w := &place{tenant: tenant, begun: time.Now()}
	p.running = append(p.running, w)
	if len(p.last) > 10_000 { // they are of tenants that may be gone
		clear(p.last)
		clear(p.slow)
	}
	p.granted++
	p.last[tenant] = p.granted
	return w
}

// next returns which of some tenants is to have a place first: -1, none of them.
func (p *places) next(tenants []string) int {
	best := -1
	for i, t := range tenants {
		switch {
		case !p.mayHave(t):
		case best < 0, p.of(t) < p.of(tenants[best]),
			p.of(t) == p.of(tenants[best]) && p.last[t] < p.last[tenants[best]]:
			best = i
		}
	}
	return best
}

// youngestToEnd returns the rendering to end for a tenant that has no place. It is the one that
// was begun last by a tenant that has several, or by a slow one if these have all places. nil:
// there is none, or as many are being ended already as wait. On a busy machine a process may
// take long to end.
func (p *places) youngestToEnd(tenant string) *place {
	ending := 0
	for _, w := range p.running {
		if w.taken {
			ending++
		}
	}
	if p.of(tenant) > 0 || p.free() > 0 || ending > 0 && ending >= len(p.waiting) {
		return nil
	}
	behindSlow := !p.isSlow(tenant) && p.ofSlow() >= p.most
	for _, w := range slices.Backward(p.running) {
		if w.process != nil && !w.taken && time.Since(w.begun) >= waitAtMost && (behindSlow || p.of(w.tenant) > 1) {
			return w
		}
	}
	return nil
}

// remove takes back a place whose rendering has ended.
func (p *places) remove(w *place) {
	p.running = slices.DeleteFunc(p.running, func(other *place) bool { return other == w })
	switch {
	case time.Since(w.begun) > p.slowAfter:
		p.slow[w.tenant] = true
	case !w.taken:
		delete(p.slow, w.tenant)
	}
}

// close lets all that wait try again, and ends what is being rendered.
func (p *places) close() {
	for _, w := range p.running {
		w.end()
	}
	for _, w := range p.waiting {
		w.given <- nil
	}
	for _, e := range p.parked {
		e.free <- struct{}{}
	}
	p.waiting, p.parked, p.promised = nil, nil, nil
}

// redeem reports whether a tenant was promised a place, which it has to be given.
func (p *places) redeem(tenant string) bool {
	i := slices.IndexFunc(p.promised, func(e *busyError) bool { return e.tenant == tenant })
	if i >= 0 {
		p.promised = slices.Delete(p.promised, i, i+1)
	}
	return i >= 0
}

// leave forgets a rendering that did not get a place.
func (p *places) leave(e *busyError) {
	is := func(other *busyError) bool { return other == e }
	p.parked, p.promised = slices.DeleteFunc(p.parked, is), slices.DeleteFunc(p.promised, is)
}

// take waits for a place, for a moment.
func (p *Pool) take(tenant string) (*place, error) {
	p.mu.Lock()
	if !p.closed && (p.places.redeem(tenant) || p.places.mayHave(tenant) && len(p.places.waiting) == 0) {
		defer p.mu.Unlock()
		return p.equip(p.places.give(tenant)), nil
	}
	if p.closed || p.places.isStuck(tenant) && p.places.waits(tenant) {
		p.mu.Unlock()
		return nil, p.park(tenant)
	}
	me := &waiter{tenant, make(chan *place, 1)}
	p.places.waiting = append(p.places.waiting, me)
	p.share() // others that wait may not have what is free
	p.mu.Unlock()
	w := p.await(me)
	if w == nil {
		return nil, p.park(tenant)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.equip(w), nil
}

// await waits until a waiter is given a place, or has waited for long enough. If another
// rendering is ended for it, it waits for the end of that one.
func (p *Pool) await(me *waiter) *place {
	for range 2 {
		select {
		case given := <-me.given:
			return given
		case <-time.After(waitAtMost):
		}
		p.mu.Lock()
		w := p.places.youngestToEnd(me.tenant)
		if w != nil {
			w.end()
		}
		p.mu.Unlock()
		if w == nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case given := <-me.given:
		return given
	default:
		p.places.waiting = slices.DeleteFunc(p.places.waiting, func(w *waiter) bool { return w == me })
		return nil
	}
}

// equip gives a place a worker, if one is idle. The pool is locked.
func (p *Pool) equip(w *place) *place {
	if n := len(p.idle); n > 0 {
		w.process = p.idle[n-1]
		p.idle = p.idle[:n-1]
		w.process.idle.Stop()
	}
	return w
}

// share gives what is free to those that wait, and promises it to those that are to come
// back. The pool is locked.
func (p *Pool) share() {
	for {
		var tenants []string
		for _, w := range p.places.waiting {
			tenants = append(tenants, w.tenant)
		}
		for _, e := range p.places.parked {
			tenants = append(tenants, e.tenant)
		}
		i := p.places.next(tenants)
		switch waiting := len(p.places.waiting); {
		case i < 0:
			return
		case i < waiting:
			w := p.places.waiting[i]
			p.places.waiting = slices.Delete(p.places.waiting, i, i+1)
			w.given <- p.places.give(w.tenant)
		default:
			e := p.places.parked[i-waiting]
			p.places.parked = slices.Delete(p.places.parked, i-waiting, i-waiting+1)
			p.promise(e)
		}
	}
}

// promise keeps a place for a rendering that is to be tried again. The pool is locked.
func (p *Pool) promise(e *busyError) {
	p.places.promised = append(p.places.promised, e)
	p.places.last[e.tenant] = p.places.granted // behind others that have waited as long, if it does not come
	e.free <- struct{}{}
	time.AfterFunc(promisedFor, e.Leave)
}

// park returns the error of a rendering that did not get a place.
func (p *Pool) park(tenant string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &busyError{pool: p, tenant: tenant, free: make(chan struct{}, 1)}
	if p.closed {
		e.free <- struct{}{}
		return e
	}
	p.places.parked = append(p.places.parked, e)
	p.share() // a place may have become free since
	time.AfterFunc(p.places.slowAfter, func() { p.endFor(e) })
	return e
}

// endFor ends a rendering for one that did not get a place, if it still waits for one. Tenants
// that had all places since are slow by now.
func (p *Pool) endFor(e *busyError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.places.parked, e) {
		return
	}
	if w := p.places.youngestToEnd(e.tenant); w != nil {
		w.end()
	}
}

func (p *Pool) giveBack(w *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places.remove(w)
	switch s := w.process; {
	case s == nil:
	case p.closed || w.taken || s.broken || s.jobs >= jobsOfWorker:
		s.end(nil)
	default:
		s.idle = time.AfterFunc(idleFor, func() { p.retire(s) })
		p.idle = append(p.idle, s)
	}
	p.share()
}
