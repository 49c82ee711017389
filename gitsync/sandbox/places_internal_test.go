package sandbox

import (
	"testing"
	"time"
)

// For each rendering that waits, one of another tenant is ended, and not another one while
// that takes its time to end.
func TestYoungestToEnd(t *testing.T) {
	p := &places{most: 4}
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
