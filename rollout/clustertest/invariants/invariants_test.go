package invariants

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sequence is a story with what it breaks.
type sequence struct {
	because string
	tell    func(s *story)
	want    []string // how what is broken begins
}

// whole: a release as it should be.
var whole = []sequence{
	{"a whole release breaks nothing", func(s *story) { s.all(); s.handBack(tranche) }, nil},
}

func TestInvariants(t *testing.T) {
	for _, tc := range slices.Concat(whole, taken, totals, targets, waits, approvals, edits, back, returns, again, empty, superseded,
		unknown, handBacks, opened, fights) {
		t.Run(tc.because, func(t *testing.T) {
			s := newStory()
			tc.tell(s)
			var got []string
			for _, b := range s.v.broken {
				rule, _, _ := strings.Cut(strings.TrimPrefix(b.What, "web: "), ":")
				got = append(got, rule)
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("broken (-want +got):\n%s%v", diff, s.v.broken)
			}
		})
	}
}
