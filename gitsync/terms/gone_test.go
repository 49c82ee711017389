package terms

import (
	"strings"
	"testing"
)

// An approval of a plan is newer than the plan that governs. If the commit of that plan has
// left the repository, an approval counts that comes from now on.
func TestPlanApproval_SinceIsGone(t *testing.T) {
	t.Parallel()
	gone := strings.Repeat("a", 40)
	for name, tt := range map[string]struct {
		since, tip string // as the status has them; empty: as they were
		counts     bool
	}{
		"both are there":                   {"", "", true},
		"the commit is gone":               {gone, "", false},
		"the tip of a pinned one is gone":  {"", gone, false},
		"both are gone":                    {gone, gone, false},
		"the tip of a pinned one is there": {gone, "first", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAdversary(t, 1)
			a.head = a.commit(0, state{})
			a.sync()
			first := a.head
			agreed := document{name: "web", namespace: "shop", plan: termsOfVariant(1).Digest(), at: 1}
			a.edit(1, func(s *state) { s.files[0] = agreed })
			a.edit(0, func(s *state) { s.variants[0] = 1 })
			for i := range a.gs.Status.Plans {
				p := &a.gs.Status.Plans[i]
				if tt.since != "" {
					p.Since = tt.since
				}
				if p.Tip = tt.tip; tt.tip == "first" {
					p.Tip = first
				}
			}
			if terms, _ := a.sync(); (terms == termsOfVariant(1)) != tt.counts {
				t.Errorf("%s governs", terms)
			}
			again := agreed
			again.at = 2
			a.edit(1, func(s *state) { s.files[0] = again })
			if terms, _ := a.sync(); terms != termsOfVariant(1) {
				t.Errorf("after another approval %s governs", terms)
			}
		})
	}
}
