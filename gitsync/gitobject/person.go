package gitobject

import (
	"strings"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing/object"
)

// AuthorOf is a commit's author as people write it.
func AuthorOf(c *object.Commit) string {
	return Person(strings.TrimSpace(c.Author.Name + " <" + c.Author.Email + ">"))
}

// Person returns the name of a person as a BatchRelease can have it: printable, and not longer.
func Person(s string) string {
	s = Printable(s)
	if r := []rune(s); len(r) > maxAuthor {
		s = string(r[:maxAuthor-1]) + "…"
	}
	return s
}

// Printable returns a text of a commit with its control characters replaced: a terminal
// would act by them, or show another text.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// maxAuthor is how many characters of a person a BatchRelease has.
const maxAuthor = 512
