package desired

import (
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The name of an author may have what a terminal acts by.
func TestAuthor(t *testing.T) {
	c := &object.Commit{Author: object.Signature{Name: "Ada\x1b[999D\x1b[2K 10/10\u009b8m", Email: "ada@example.org"}}
	if got, want := AuthorOf(c), "Ada\ufffd[999D\ufffd[2K 10/10\ufffd8m <ada@example.org>"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// So may the first line of a message, which the message of a revert repeats.
func TestRevertMessage_Subject(t *testing.T) {
	of := revertedCommit{subject: subjectOf("web: v2\x1b[2K\u009b8m \r\n\nmore\x1b[8m\n")}
	list := []intent{{release: &plan.Release{Plan: &v1alpha1.BatchRelease{}}}}
	got, _, _ := strings.Cut(revertMessage(list, []revertedCommit{of}), "\n")
	if want := "Revert \"web: v2\ufffd[2K\ufffd8m\""; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
