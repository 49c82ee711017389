package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// For each rendering that waits, one of another tenant is ended, and not another one while
// that takes its time to end.
func TestYoungestToEnd(t *testing.T) {
	p := &places{most: 4, slowAfter: time.Hour}
	for _, tenant := range []string{"evil", "other", "evil", "evil"} {
		p.running = append(p.running, &place{tenant: tenant, process: &process{}, begun: time.Now().Add(-2 * waitAtMost)})
	}
	p.waiting = []*waiter{{tenant: "shop"}}
	ended := p.youngestToEnd("shop")
	if ended != p.running[3] {
		t.Fatalf("ended %+v", ended)
	}
	ended.taken = true
	if again := p.youngestToEnd("shop"); again != nil {
		t.Errorf("ended %+v, too", again)
	}
	p.waiting = append(p.waiting, &waiter{tenant: "toys"})
	if next := p.youngestToEnd("toys"); next != p.running[2] {
		t.Errorf("ended %+v for another tenant", next)
	}
}

// rivals hold all places of a pool for long, one each, and try again and again.
type rivals struct {
	pool  *Pool
	holds map[string]*place
}

func newRivals(t *testing.T) *rivals {
	t.Helper()
	r := &rivals{NewPool(Options{Workers: 3, Timeout: time.Hour}), map[string]*place{}}
	for _, tenant := range []string{"a", "b", "c"} {
		w, err := r.pool.take(tenant)
		if err != nil {
			t.Fatal(err)
		}
		r.holds[tenant] = w
	}
	time.Sleep(time.Minute)
	for range 5 {
		r.try(t)
	}
	return r
}

// try lets all rivals try to get one more place.
func (r *rivals) try(t *testing.T) {
	t.Helper()
	for _, tenant := range []string{"a", "b", "c"} {
		if _, err := r.pool.take(tenant); err == nil {
			t.Errorf("%s has one more place", tenant)
		}
	}
}

func parkedAt(t *testing.T, p *Pool, tenant string) *busyError {
	t.Helper()
	_, err := p.take(tenant)
	e, ok := errors.AsType[*busyError](err)
	if !ok {
		t.Fatalf("%s has a place: %v", tenant, err)
	}
	return e
}

func hasPlace(e *busyError) bool {
	select {
	case _, free := <-e.Free():
		return free
	default:
		return false
	}
}

// A tenant that has no place gets the one that becomes free. It takes a moment to come back, and
// others try all the time. The next one gets the next place.
func TestPlaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		shop, toys := parkedAt(t, r.pool, "shop"), parkedAt(t, r.pool, "toys")
		r.pool.giveBack(r.holds["a"])
		if !hasPlace(shop) || hasPlace(toys) {
			t.Fatal("not the one that has waited for the longest has the place")
		}
		time.Sleep(promisedFor / 2)
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() { r.try(t) })
		}
		synctest.Wait()
		w, err := r.pool.take("shop")
		if err != nil {
			t.Fatal(err)
		}
		waiting.Wait()
		shop.Leave()
		r.try(t)
		r.pool.giveBack(w)
		if !hasPlace(toys) {
			t.Fatal("the next one has no place")
		}
		r.try(t)
		if _, err := r.pool.take("toys"); err != nil {
			t.Fatal(err)
		}
	})
}

// A place that was kept in vain is for others: at once if its rendering is not needed any more,
// and else after a while.
func TestPlaceIsKept_NotForEver(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		t.Run(fmt.Sprintf("leaves %t", leaves), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRivals(t)
				shop, toys := parkedAt(t, r.pool, "shop"), parkedAt(t, r.pool, "toys")
				r.pool.giveBack(r.holds["a"])
				if !hasPlace(shop) {
					t.Fatal("the first one has no place")
				}
				if leaves {
					shop.Leave()
				} else {
					time.Sleep(promisedFor)
					synctest.Wait()
				}
				if !hasPlace(toys) {
					t.Error("the next one has no place")
				}
				toys.Leave()
				toys.Leave()
				if _, free := <-toys.Free(); free {
					t.Error("it has a place after it has left")
				}
				if n := len(r.pool.places.promised); n != 1 {
					t.Errorf("%d places are kept, want one for a rival", n)
				}
				if !slices.ContainsFunc([]string{"a", "b", "c"}, func(rival string) bool { _, err := r.pool.take(rival); return err == nil }) {
					t.Error("no rival gets the place")
				}
			})
		})
	}
}

// Tenants whose renderings take long have all places but one together, until one of theirs
// takes less. If they have all, one is ended for a tenant that is not slow.
func TestSlowTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		places := &r.pool.places
		places.slowAfter, places.parked = 10*time.Second, nil
		for _, w := range r.holds {
			w.process = &process{}
		}
		if w := places.youngestToEnd("shop"); w != r.holds["c"] {
			t.Errorf("ended for shop: %+v", w)
		}
		places.slow["d"] = true
		if w := places.youngestToEnd("d"); w != nil {
			t.Errorf("ended for a slow tenant: %+v", w)
		}
		r.holds["c"].taken, r.holds["c"].process = true, nil
		r.pool.giveBack(r.holds["c"])
		for _, slow := range []string{"a", "b", "c", "d"} {
			if places.mayHave(slow) {
				t.Errorf("%s may have the last place", slow)
			}
		}
		for range 3 { // each ends soon
			w, err := r.pool.take("shop")
			if err != nil {
				t.Fatal(err)
			}
			r.pool.giveBack(w)
		}
		r.holds["a"].process = nil
		r.pool.giveBack(r.holds["a"])
		w, err := r.pool.take("d")
		if err != nil {
			t.Fatal(err)
		}
		r.pool.giveBack(w)
		if places.isSlow("d") || !places.isSlow("a") {
			t.Errorf("slow: %v", places.slow)
		}
	})
}

// Tenants that have all places are found to be slow while another one waits.
func TestSlowTenants_FoundLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRivals(t)
		places := &r.pool.places
		places.slowAfter, places.parked = 10*time.Second, nil
		for _, w := range r.holds {
			w.begun, w.process = time.Now(), &process{}
			w.process.ending.Do(func() {}) // there is no process to kill
		}
		shop := parkedAt(t, r.pool, "shop")
		taken := func() (n int) {
			for _, w := range r.holds {
				if w.taken {
					n++
				}
			}
			return n
		}
		time.Sleep(places.slowAfter - time.Second)
		if n := taken(); n > 0 {
			t.Fatalf("%d renderings were ended before they had taken long", n)
		}
		time.Sleep(2 * time.Second)
		if n := taken(); n != 1 || !r.holds["c"].taken {
			t.Fatalf("%d renderings were ended, want the last one: %+v", n, r.holds["c"])
		}
		r.holds["c"].process = nil
		r.pool.giveBack(r.holds["c"])
		if !hasPlace(shop) {
			t.Error("the place is not for the one that waits")
		}
	})
}
