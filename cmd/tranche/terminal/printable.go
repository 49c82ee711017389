package terminal

import (
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
