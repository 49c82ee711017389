package terminal

import (
	"regexp"
	"strings"
	"unicode"
)

// Printable returns a text of a repository, of one or more lines, as a terminal may show
// it. Control characters would act on the terminal. Those that change the direction of
// writing would show another text than the one that is committed.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// colours are what Style writes.
var colours = regexp.MustCompile("\x1b\\[(?:0|1|2|31|32|33|36)m")

// Safe is Printable for an output that Style has coloured: its colours stay.
func Safe(text string) string {
	var b strings.Builder
	from := 0
	for _, at := range colours.FindAllStringIndex(text, -1) {
		b.WriteString(Printable(text[from:at[0]]) + text[at[0]:at[1]])
		from = at[1]
	}
	return b.String() + Printable(text[from:])
}
