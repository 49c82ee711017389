// Package terminal draws the output of the command line. It has colours for a terminal
// that supports them, trees, bars, and a screen that is redrawn in place.
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Is reports whether a stream is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Style colours text. The zero Style colours nothing.
type Style struct{ Colour bool }

// StyleOf colours where w is a terminal that can, unless NO_COLOR is set
// (https://no-color.org).
func StyleOf(w io.Writer) Style {
	return Style{Colour: Is(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Good is what goes well or is done.
func (s Style) Good(text string) string { return s.in("32", text) }

// Busy is what is under way.
func (s Style) Busy(text string) string { return s.in("36", text) }

// Waits is what waits for a person or a time.
func (s Style) Waits(text string) string { return s.in("33", text) }

// Bad is what has failed.
func (s Style) Bad(text string) string { return s.in("31", text) }

// Faint is what matters less.
func (s Style) Faint(text string) string { return s.in("2", text) }

// Bold is what matters most.
func (s Style) Bold(text string) string { return s.in("1", text) }

func (s Style) in(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bar is width characters: # for what is done, . for what is begun, - for the
// rest of all. A part that is not nothing shows, and only all of it fills the bar.
func Bar(done, begun, all int32, width int) string {
	if all <= 0 {
		return "[" + strings.Repeat("-", width) + "]"
	}
	scale := func(n int32) int {
		n = max(0, min(n, all))
		w := int(int64(n) * int64(width) / int64(all))
		if n > 0 && w == 0 {
			w = 1
		}
		return w
	}
	d := scale(done)
	b := max(scale(begun), d)
	return "[" + strings.Repeat("#", d) + strings.Repeat(".", b-d) + strings.Repeat("-", width-b) + "]"
}

// Node is one line of a tree, and what is below it.
type Node struct {
	Text  string
	Below []Node
}

// Tree draws a node and all below it, each on a line of its own.
func Tree(n Node) string {
	var b strings.Builder
	b.WriteString(n.Text + "\n")
	branches(&b, n.Below, "")
	return b.String()
}

func branches(b *strings.Builder, nodes []Node, indent string) {
	for i, n := range nodes {
		branch, below := "├─ ", "│  "
		if i == len(nodes)-1 {
			branch, below = "└─ ", "   "
		}
		b.WriteString(indent + branch + n.Text + "\n")
		branches(b, n.Below, indent+below)
	}
}

// Screen shows a text, and the next one in its place.
type Screen struct {
	w     io.Writer
	size  func() (width, height int)
	lines int
}

// NewScreen draws on a terminal.
func NewScreen(w io.Writer) *Screen {
	return &Screen{w: w, size: func() (int, int) {
		if f, ok := w.(*os.File); ok {
			if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 1 {
				return width, height
			}
		}
		return 80, 24
	}}
}

// Draw replaces what was drawn last, in one write so that nothing flickers. Lines that
// are too wide are cut, since a wrapped line would be two. Lines that are too many are
// cut, since lines that have scrolled away cannot be redrawn.
func (s *Screen) Draw(text string) error {
	width, height := s.size()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > height-1 {
		lines = append(lines[:height-2], "…")
	}
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", s.lines)
	}
	b.WriteString("\r\x1b[J")
	for _, l := range lines {
		b.WriteString(Cut(l, width) + "\n")
	}
	s.lines = len(lines)
	_, err := io.WriteString(s.w, b.String())
	return err
}

// Cut shortens a line to a width, not counting what only colours.
func Cut(line string, width int) string {
	var b strings.Builder
	seen, escape, coloured := 0, false, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape, coloured = true, true
		case escape:
			escape = r != 'm'
		case seen == width-1 && seen < printed(line)-1:
			b.WriteRune('…')
			if coloured {
				b.WriteString("\x1b[0m")
			}
			return b.String()
		default:
			seen++
		}
		b.WriteRune(r)
	}
	return b.String()
}

// printed is how many characters of a line are seen.
func printed(line string) int {
	n, escape := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escape = true
		case escape:
			escape = r != 'm'
		default:
			n++
		}
	}
	return n
}
