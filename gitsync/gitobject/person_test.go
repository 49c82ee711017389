package gitobject

import (
	"testing"

	"github.com/go-git/go-git/v5/plumbing/object"
)

// The name of an author may have what a terminal acts by.
func TestAuthor(t *testing.T) {
	c := &object.Commit{Author: object.Signature{Name: "Ada\x1b[999D\x1b[2K 10/10\u009b8m", Email: "ada@example.org"}}
	if got, want := AuthorOf(c), "Ada\ufffd[999D\ufffd[2K 10/10\ufffd8m <ada@example.org>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.Author.Name = "Ada \u202egnal\u2069"
	if got, want := AuthorOf(c), "Ada \ufffdgnal\ufffd <ada@example.org>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.Author.Name = ""
	if got, want := AuthorOf(c), "<ada@example.org>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
