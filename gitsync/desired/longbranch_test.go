package desired

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A merge of a long side branch can combine more commits than the search may visit. Then
// the approval does not count, and its problem has the reason.
func TestDistinctAuthor_LongSideBranch(t *testing.T) {
	t.Parallel()
	m := newSigned(t)
	v1 := m.by(nil, gittest.Web("v1"))
	m.completed("v1", m.by(&m.ada, componentised("x", map[string]string{"x": "v1", "yy": "v1"})))
	m.Git("checkout", "-q", "-b", "side")
	m.by(&m.forge, componentised("x", map[string]string{"yy": "v666"}))
	m.Git("checkout", "-q", "main")
	m.Import("side", gittest.Chain(authors.MaxWalk+1), func(i int) int { return 1_000_000 + i })
	m.by(&m.ada, componentised("yy", nil))
	m.merge(&m.forge, "side")
	m.by(&m.grace, approvalOf(m.Head()))
	if got, ignored := m.approve(t, v1, true); got != nil || !strings.Contains(ignored, "too many to look at who signed them") {
		t.Errorf("approved: %+v; ignored: %s", got, ignored)
	}
}
