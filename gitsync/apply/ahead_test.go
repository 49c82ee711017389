package apply

import (
	"strings"
	"sync/atomic"
	"testing"
)

// The sync of a source can recover a panic about one object, so that it ends no other source.
func TestAtOnce_Panics(t *testing.T) {
	var called atomic.Int32
	defer func() {
		p, ok := recover().(string)
		if !ok || !strings.HasPrefix(p, "of object 7\n") || !strings.Contains(p, "ahead_test.go") {
			t.Errorf("recovered: %s", p)
		}
		if n := called.Load(); n != 100 {
			t.Errorf("%d calls, want 100", n)
		}
	}()
	AtOnce(100, func(i int) {
		called.Add(1)
		if i == 7 {
			panic("of object 7")
		}
	})
}
