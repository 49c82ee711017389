package gitobject

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/utils/diff"
	"github.com/sergi/go-diff/diffmatchpatch"
)

// Merge3 takes what was changed from base to theirs into ours, by lines. It
// returns false where both changed the same lines, and differently.
//
// Changes of lines that are neighbours are no conflict here, though git has them for one.
// In a manifest they are different fields more often than not, and the result is rendered
// before it is pushed.
func Merge3(base, ours, theirs []byte) ([]byte, bool) {
	if slices.ContainsFunc([][]byte{base, ours, theirs}, isBinary) {
		return nil, false
	}
	return mergeEdits(base, edits(base, ours), edits(base, theirs))
}

// MergeWhatFits does what Merge3 does, and leaves out the changes to theirs that are in
// conflict with one to ours. It returns false for what is no text.
func MergeWhatFits(base, ours, theirs []byte) ([]byte, bool) {
	if slices.ContainsFunc([][]byte{base, ours, theirs}, isBinary) {
		return nil, false
	}
	stays := edits(base, ours)
	taken := slices.DeleteFunc(edits(base, theirs), func(e edit) bool {
		return slices.ContainsFunc(stays, func(o edit) bool { return e != o && e.overlaps(o) })
	})
	return mergeEdits(base, stays, taken)
}

// overlaps reports whether two edits are in conflict, unless they are the same.
func (e edit) overlaps(o edit) bool {
	if e.start > o.start || e.start == o.start && e.end > o.end {
		e, o = o, e
	}
	return o.start < e.end || e.start == o.start && e.end == e.start && o.end == o.start
}

func mergeEdits(base []byte, ours, theirs []edit) ([]byte, bool) {
	all := slices.Concat(ours, theirs)
	slices.SortStableFunc(all, func(a, b edit) int {
		// An insertion between two lines comes before a change of the second line.
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
	lines := splitLines(string(base))
	var out bytes.Buffer
	at := 0
	var last *edit
	for i := range all {
		e := &all[i]
		if last != nil {
			if *e == *last {
				continue // both did the same
			}
			if last.overlaps(*e) {
				return nil, false
			}
		}
		writeLines(&out, lines[at:e.start])
		out.WriteString(e.text)
		at, last = e.end, e
	}
	writeLines(&out, lines[at:])
	return out.Bytes(), true
}

// edit puts a text in the place of the lines from start to end.
type edit struct {
	start, end int
	text       string
}

// edits returns what makes one text of another, in order. There is a line
// that stays between any two.
func edits(from, to []byte) []edit {
	var list []edit
	var open *edit
	at := 0
	for _, d := range diff.Do(string(from), string(to)) {
		n := len(splitLines(d.Text))
		if d.Type == diffmatchpatch.DiffEqual {
			open = nil
			at += n
			continue
		}
		if open == nil {
			list = append(list, edit{start: at, end: at})
			open = &list[len(list)-1]
		}
		if d.Type == diffmatchpatch.DiffDelete {
			at += n
			open.end = at
		} else {
			open.text += d.Text
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

func writeLines(b *bytes.Buffer, lines []string) {
	for _, l := range lines {
		b.WriteString(l)
	}
}

// isBinary is git's guess.
func isBinary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), 8000)], 0) >= 0
}
