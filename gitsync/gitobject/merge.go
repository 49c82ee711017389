package gitobject

import (
	"bytes"
	"cmp"
	"slices"
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
	stays, all := edits(base, ours), edits(base, theirs)
	var taken []edit
	for i, isIn := range conflicts(all, stays) {
		if !isIn {
			taken = append(taken, all[i])
		}
	}
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

func writeLines(b *bytes.Buffer, lines []string) {
	for _, l := range lines {
		b.WriteString(l)
	}
}

// isBinary is git's guess, except for UTF-16, which a manifest may have.
func isBinary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), 8000)], 0) >= 0 && !isUTF16(content)
}
