package gitobject

import (
	"bytes"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Entry is a part of a manifest. It is a line with the lines that are indented below it,
// or an element of a flow collection in one line.
type Entry struct {
	start, end int // bytes of the text
	// Below are the entries of which this one consists.
	Below []Entry
}

// Brought is what a change brought in a file.
type Brought struct {
	path   string
	change Change
	text   []byte // after the change
	// Entries are those that still stand, none of them within another.
	Entries []Entry
}

// FindEntries returns what changes brought and is still in a tree. Later changes may
// have rewritten a part of an entry. Then the other entries below it are returned.
func FindEntries(s *Store, tree plumbing.Hash, changes map[string]Change) ([]Brought, error) {
	var list []Brought
	for _, p := range slices.Sorted(maps.Keys(changes)) {
		c := changes[p]
		now, err := EntryAt(s, tree, p)
		if err != nil {
			return nil, err
		}
		if !isRegular(now) || !isRegular(c.To) || SameEntry(now, c.From) || c.From.Mode != filemode.Empty && !isRegular(c.From) {
			continue
		}
		text, err := alike(s, now, c.To, c.From)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(text, isBinary) {
			continue
		}
		text[0], text[1] = text[1], text[0]
		e := outline{lines: splitLines(string(text[0])), later: edits(text[0], text[1])}
		for _, l := range e.lines {
			e.offsets = append(e.offsets, e.size)
			e.size += len(l)
		}
		b := Brought{path: p, change: c, text: text[0]}
		for _, made := range edits(text[0], text[2]) {
			b.Entries = append(b.Entries, e.entries(made.start, made.end)...)
		}
		if len(b.Entries) > 0 {
			list = append(list, b)
		}
	}
	return list, nil
}

// Without returns the change that has brought only some entries.
func (b *Brought) Without(s *Store, entries []Entry) (map[string]Change, error) {
	entries = slices.SortedFunc(slices.Values(entries), func(a, b Entry) int { return a.start - b.start })
	var rest []byte
	at := 0
	for _, e := range entries {
		if e.start > at {
			rest = append(rest, b.text[at:e.start]...)
		}
		at = max(at, e.end)
		if next := bytes.TrimSpace(b.text[at:]); len(next) > 0 && strings.IndexByte("]}", next[0]) >= 0 {
			if kept := bytes.TrimRight(rest, " \t\r\n"); bytes.HasSuffix(kept, []byte(",")) {
				rest = append(kept[:len(kept)-1], rest[len(kept):]...) // JSON has none after the last element
			}
		}
	}
	rest = append(rest, b.text[at:]...)
	h, err := s.WriteBlob(rest)
	return map[string]Change{b.path: {From: object.TreeEntry{Name: b.change.To.Name, Mode: b.change.To.Mode, Hash: h}, To: b.change.To}}, err
}

// outline finds the entries of a text.
type outline struct {
	lines   []string
	offsets []int // of the lines
	size    int
	later   []edit // of the text
}

// entries returns the entries of some lines.
func (o *outline) entries(from, to int) []Entry {
	var list []Entry
	for at := from; at < to; {
		end := at + 1
		for end < to && isBelow(o.lines[at], o.lines[end]) {
			end++
		}
		list = append(list, o.entry(at, end)...)
		at = end
	}
	return list
}

// entry returns the entry of a line with those below. If later edits changed a part of it,
// it returns what they left.
func (o *outline) entry(at, end int) []Entry {
	var below []Entry
	if !o.isRewritten(at, at+1) {
		below = flowEntries(o.lines[at], o.offsets[at])
	}
	below = append(below, o.entries(at+1, end)...)
	if o.isRewritten(at, end) {
		return below
	}
	e := Entry{start: o.offsets[at], end: o.size, Below: below}
	if end < len(o.lines) {
		e.end = o.offsets[end]
	}
	return []Entry{e}
}

// isRewritten reports whether later edits changed lines, or put others between them.
func (o *outline) isRewritten(start, end int) bool {
	first := sort.Search(len(o.later), func(i int) bool { return o.later[i].end > start })
	return first < len(o.later) && o.later[first].start < end
}

// isBelow reports whether a line belongs to an entry that another line begins. The elements
// of a list may be indented like its key.
func isBelow(first, line string) bool {
	text := strings.TrimSpace(line)
	if text == "" {
		return true
	}
	a, b := indent(first), indent(line)
	return b > a || b == a && isElement(line) && !isElement(first)
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

func isElement(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), "- ") }

// flowEntries returns the elements of the flow collections in a line, also those within
// quotes: a patch may be in a string. Other text may be taken for an element. That does no
// harm: a manifest that does not render without it does not count.
func flowEntries(line string, offset int) []Entry {
	type collection struct {
		start int // of the element that is open
		list  []Entry
		below []Entry // of that element
	}
	stack := []collection{{}}
	for i := range len(line) {
		top := &stack[len(stack)-1]
		switch line[i] {
		case '[', '{':
			stack = append(stack, collection{start: i + 1})
		case ',', ']', '}':
			if len(stack) == 1 {
				continue
			}
			if end := i; strings.TrimSpace(line[top.start:end]) != "" {
				if line[i] == ',' {
					end++
				}
				top.list = append(top.list, Entry{offset + top.start, offset + end, top.below})
			}
			if top.start, top.below = i+1, nil; line[i] != ',' {
				stack = stack[:len(stack)-1]
				within := &stack[len(stack)-1]
				within.below = append(within.below, top.list...)
			}
		}
	}
	return stack[0].below
}
