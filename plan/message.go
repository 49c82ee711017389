package plan

import (
	"fmt"
	"strings"
	"unicode"
)

// OneLine makes what a server sent fit for a message: one line, no control
// characters, none that turns the direction of writing, not too long.
func OneLine(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)
	}), " ")
	if r := []rune(s); len(r) > 240 {
		s = string(r[:240]) + "…"
	}
	return s
}

// JoinNames lists the first three, and how many more there are.
func JoinNames(list []string) string {
	if more := len(list) - 3; more > 0 {
		return strings.Join(list[:3], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(list, ", ")
}

// ShortCommit is a commit as it stands in messages.
func ShortCommit(commit string) string { return commit[:min(len(commit), 12)] }
