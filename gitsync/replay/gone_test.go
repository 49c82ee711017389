package replay

import (
	"strings"
	"testing"

	"github.com/go-git/go-billy/v5/memfs"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// gone is a commit that the repository does not have.
var gone = strings.Repeat("a", 40)

// An approval does not count that was on the branch before its release. The commits that tell
// so can leave the repository, and need not be on the branch where a commit is pinned.
func TestPredates_Gone(t *testing.T) {
	t.Parallel()
	m := gittest.NewMemory(t, memfs.New())
	file := func(text string) map[string]string { return map[string]string{"a": text} }
	applied := m.Commit(nil, file("1"))
	approval := m.Commit(nil, file("2"), applied)
	tip := m.Commit(nil, file("3"), approval)
	later := m.Commit(nil, file("4"), tip)
	for name, tt := range map[string]struct {
		since           v1alpha1.ApprovalsSince
		pinned, predate bool
	}{
		"both are there":                          {v1alpha1.ApprovalsSince{AppliedCommit: applied, ObservedCommit: tip}, false, false},
		"the approval was applied":                {v1alpha1.ApprovalsSince{AppliedCommit: approval, ObservedCommit: approval}, false, true},
		"the applied one is gone":                 {v1alpha1.ApprovalsSince{AppliedCommit: gone, ObservedCommit: tip}, false, true},
		"the applied one is gone, an older tip":   {v1alpha1.ApprovalsSince{AppliedCommit: gone, ObservedCommit: applied}, false, false},
		"the tip is gone":                         {v1alpha1.ApprovalsSince{AppliedCommit: applied, ObservedCommit: gone}, false, false},
		"both are gone":                           {v1alpha1.ApprovalsSince{AppliedCommit: gone, ObservedCommit: gone}, false, true},
		"both are gone, and a commit is pinned":   {v1alpha1.ApprovalsSince{AppliedCommit: gone, ObservedCommit: gone}, true, true},
		"a commit is pinned":                      {v1alpha1.ApprovalsSince{AppliedCommit: applied, ObservedCommit: tip}, true, true},
		"a commit is pinned, on an older tip":     {v1alpha1.ApprovalsSince{AppliedCommit: tip, ObservedCommit: applied}, true, false},
		"a commit is pinned, and the tip is gone": {v1alpha1.ApprovalsSince{AppliedCommit: tip, ObservedCommit: gone}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &Check{Source: &v1alpha1.GitSource{}, Store: m.Storage, Tip: plumbing.NewHash(later), Order: gitobject.Precedence{}}
			if tt.pinned {
				c.Source.Spec.Ref.Commit = later
			}
			now := &v1alpha1.BatchRelease{}
			now.Spec.Commit, now.Spec.ApprovalsSince = "x", &tt.since
			why, err := c.Predates(t.Context(), plumbing.NewHash(approval), c.Since("x", now))
			if err != nil || (why != "") != tt.predate {
				t.Errorf("%q, %v", why, err)
			}
		})
	}
}
