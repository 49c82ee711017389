package gitobject

import (
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/utils/diff"
	"github.com/sergi/go-diff/diffmatchpatch"
)

// maxDiffWork bounds the work of one comparison, in pairs of lines. The diff of go-git
// takes time that grows with the product of two texts: half a minute for 20,000 lines that
// all differ.
const maxDiffWork = 1 << 22

// edit puts a text in the place of the lines from start to end.
type edit struct {
	start, end int
	text       string
}

// edits returns what makes one text of another, in order. There is a line
// that stays between any two.
func edits(from, to []byte) []edit {
	c := &comparison{work: maxDiffWork}
	c.compare(splitLines(string(from)), splitLines(string(to)))
	return c.list
}

// comparison collects the edits between two texts, from their beginning.
type comparison struct {
	list []edit
	at   int  // the next line of the first text
	open bool // the last edit goes on
	work int  // that is left
}

// keep has lines of the first text stay.
func (c *comparison) keep(lines int) {
	c.at += lines
	c.open = c.open && lines == 0
}

// replace puts a text in the place of lines of the first text.
func (c *comparison) replace(lines int, text string) {
	if lines == 0 && text == "" {
		return
	}
	if !c.open {
		c.list = append(c.list, edit{start: c.at, end: c.at})
		c.open = true
	}
	last := &c.list[len(c.list)-1]
	c.at += lines
	last.end, last.text = c.at, last.text+text
}

// compare adds the edits between lines. A part can cost more than the work that is left.
// It is then compared between the lines that both sides have once, as patience diff does
// (https://bramcohen.livejournal.com/73318.html). If there are none, it is replaced as a
// whole.
func (c *comparison) compare(from, to []string) {
	before := common(from, to, func(lines []string, i int) string { return lines[i] })
	c.keep(before)
	from, to = from[before:], to[before:]
	after := common(from, to, func(lines []string, i int) string { return lines[len(lines)-1-i] })
	from, to = from[:len(from)-after], to[:len(to)-after]
	switch cost := len(from) * len(to); {
	case cost == 0:
		c.replace(len(from), strings.Join(to, ""))
	case cost <= c.work:
		c.work -= cost
		for _, d := range diff.Do(strings.Join(from, ""), strings.Join(to, "")) {
			switch d.Type {
			case diffmatchpatch.DiffEqual:
				c.keep(len(splitLines(d.Text)))
			case diffmatchpatch.DiffDelete:
				c.replace(len(splitLines(d.Text)), "")
			default:
				c.replace(0, d.Text)
			}
		}
	default:
		c.compareBetween(from, to)
	}
	c.keep(after)
}

// compareBetween compares what is between the lines that both sides have once.
func (c *comparison) compareBetween(from, to []string) {
	c.work -= len(from) + len(to)
	var anchors [][2]int
	if c.work > 0 {
		anchors = sharedOnce(from, to)
	}
	if len(anchors) == 0 {
		c.replace(len(from), strings.Join(to, ""))
		return
	}
	at := [2]int{}
	for _, a := range anchors {
		c.compare(from[at[0]:a[0]], to[at[1]:a[1]])
		c.keep(1)
		at = [2]int{a[0] + 1, a[1] + 1}
	}
	c.compare(from[at[0]:], to[at[1]:])
}

// common returns how many lines are the same, one after another.
func common(a, b []string, line func([]string, int) string) int {
	n := 0
	for n < min(len(a), len(b)) && line(a, n) == line(b, n) {
		n++
	}
	return n
}

// sharedOnce returns the longest sequence of lines that each side has once, in the same
// order, as their places in both.
func sharedOnce(from, to []string) [][2]int {
	places := [2]map[string]int{{}, {}} // -1: more than once
	for i, lines := range [][]string{from, to} {
		for at, line := range lines {
			if _, again := places[i][line]; again {
				at = -1
			}
			places[i][line] = at
		}
	}
	var pairs [][2]int
	for at, line := range from {
		if other, ok := places[1][line]; ok && other >= 0 && places[0][line] == at {
			pairs = append(pairs, [2]int{at, other})
		}
	}
	return increasing(pairs)
}

// increasing returns the longest part of pairs, which are in the order of their first
// numbers, whose second numbers increase.
func increasing(pairs [][2]int) [][2]int {
	var ends []int // by length less one, the pair with the smallest end
	previous := make([]int, len(pairs))
	for i, p := range pairs {
		n, _ := slices.BinarySearchFunc(ends, p[1], func(end, second int) int { return pairs[end][1] - second })
		previous[i] = -1
		if n > 0 {
			previous[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		}
		ends[n] = i
	}
	if len(ends) == 0 {
		return nil
	}
	list := make([][2]int, len(ends))
	for at, i := len(ends)-1, ends[len(ends)-1]; i >= 0; at, i = at-1, previous[i] {
		list[at] = pairs[i]
	}
	return list
}

// conflicts returns which edits of a text are in conflict with one of others of it.
func conflicts(of, others []edit) []bool {
	list := make([]bool, len(of))
	first := 0
	for i, e := range of {
		for first < len(others) && others[first].end < e.start {
			first++
		}
		for _, o := range others[first:] {
			if o.start > e.end {
				break
			}
			if e != o && e.overlaps(o) {
				list[i] = true
				break
			}
		}
	}
	return list
}

func splitLines(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if n := len(lines); lines[n-1] == "" {
		lines = lines[:n-1]
	}
	return lines
}
