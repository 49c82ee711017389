package gitobject

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Whatever work is left, the edits make one text of the other, in order, with a line that
// stays between any two.
func TestEdits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(letters int) []string {
		lines := make([]string, r.IntN(40))
		for i := range lines {
			lines[i] = fmt.Sprintf("%c\n", 'a'+r.IntN(letters))
		}
		if len(lines) > 0 && r.IntN(3) == 0 {
			lines[len(lines)-1] = "end"
		}
		return lines
	}
	for range 20_000 {
		letters := 1 + r.IntN(60)
		from, to := text(letters), text(letters)
		c := &comparison{work: r.IntN(1200)}
		work := c.work
		c.compare(from, to)
		var got strings.Builder
		at := 0
		for i, e := range c.list {
			if e.start < at || i > 0 && e.start == at || e.end < e.start || e.start == e.end && e.text == "" {
				t.Fatalf("work %d: %q to %q: edits %+v", work, from, to, c.list)
			}
			got.WriteString(strings.Join(from[at:e.start], "") + e.text)
			at = e.end
		}
		got.WriteString(strings.Join(from[at:], ""))
		if got.String() != strings.Join(to, "") {
			t.Fatalf("work %d: %q to %q: edits %+v make %q", work, from, to, c.list, got.String())
		}
		others := edits([]byte(strings.Join(from, "")), []byte(strings.Join(text(letters), "")))
		for i, isIn := range conflicts(c.list, others) {
			e := c.list[i]
			if want := slices.ContainsFunc(others, func(o edit) bool { return e != o && e.overlaps(o) }); isIn != want {
				t.Fatalf("%+v is in conflict with one of %+v: %t", e, others, isIn)
			}
		}
	}
}

// A line that both sides have once parts what is compared, when it is too much at a time.
func TestEdits_Large(t *testing.T) {
	side := func(prefix string) string {
		var b strings.Builder
		for i := range 30_000 {
			if i%1000 == 0 {
				fmt.Fprintf(&b, "part %d\n", i)
			}
			fmt.Fprintf(&b, "%s %d\n", prefix, i)
		}
		return b.String()
	}
	list := edits([]byte(side("one")), []byte(side("two")))
	if len(list) != 30 {
		t.Errorf("%d edits", len(list))
	}
}
