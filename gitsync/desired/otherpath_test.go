package desired

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// next has files in another folder than deploy.
func next(files map[string]string) map[string]string {
	moved := map[string]string{}
	for name, text := range files {
		moved["next"+strings.TrimPrefix(name, "deploy")] = text
	}
	return moved
}

// The source is changed to another folder. A commit of that folder since the last release has
// authors as any other. A folder that was there before has none, so no approval of it counts.
func TestDistinctAuthor_OtherPath(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tell func(m *signed, author *gittest.Key)
		// others: an approval by another person than the author counts; own: the author's does.
		others, own bool
	}{
		"copied with another image": {func(m *signed, author *gittest.Key) {
			m.by(author, next(gittest.Web("v2")))
		}, true, false},
		"copied as it was, and an image of another": {func(m *signed, author *gittest.Key) {
			m.by(author, next(gittest.Web("v1")))
			m.by(&m.ada, next(gittest.Web("v2")))
		}, true, false},
		"copied with a rule, and an image of another": {func(m *signed, author *gittest.Key) {
			m.by(author, next(reviewed("1", gittest.Web("v1"), kustomized("images:\n"+rule("v2")))))
			m.by(&m.ada, next(gittest.Web("v2")))
		}, true, false},
		"a folder that was there": {func(m *signed, author *gittest.Key) {
			m.by(author, next(gittest.Web("v2")))
			m.completed("v1", m.by(&m.ada, reviewed("1")))
			m.by(&m.ada, map[string]string{"README.md": "x"})
		}, false, false},
		"a folder that was there, and another's image": {func(m *signed, author *gittest.Key) {
			m.by(author, next(gittest.Web("v2")))
			m.completed("v1", m.by(&m.ada, reviewed("1")))
			m.by(&m.ada, next(gittest.Web("v3")))
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, own := range []bool{false, true} {
				m := newSigned(t)
				m.path = "next"
				v1 := m.by(&m.ada, gittest.Web("v1"))
				m.completed("v1", v1)
				author, want := &m.forge, tt.others
				if own {
					author, want = &m.grace, tt.own
				}
				tt.tell(m, author)
				m.by(&m.grace, next(approvalOf(m.Head())))
				if got, ignored := m.approve(t, v1, true); (got != nil) != want {
					t.Errorf("grace wrote it %t: %+v; ignored:\n%s", own, got, ignored)
				}
			}
		})
	}
}
