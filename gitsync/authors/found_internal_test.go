package authors

import (
	"context"
	"errors"
	"testing"
)

// A search that takes too much is not repeated at each sync. One that failed is.
func TestKnown(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want int
	}{{nil, 1}, {errTooManyCommits, 1}, {errTooMuchHistory, 1}, {context.DeadlineExceeded, 2}} {
		k, n := Known{}, 0
		for range 2 {
			err := k.search("x", func() Found { n++; return Found{err: tt.err} }).err
			if !errors.Is(err, tt.err) {
				t.Errorf("%v, want %v", err, tt.err)
			}
		}
		if n != tt.want {
			t.Errorf("%v: %d searches, want %d", tt.err, n, tt.want)
		}
	}
}
