package desired

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// describe puts on a BatchRelease what notifications say of its commit: the author, the
// page at the forge, and why the commit rejects a release. A commit that has left the
// repository keeps what was said of it.
func (h *History) describe(br, now *v1alpha1.BatchRelease) {
	said := map[string]string{v1alpha1.AnnotationCommitURL: CommitPage(h.Reader.Source.Spec.URL, br.Spec.Commit)}
	c, err := object.GetCommit(h.Reader.Snapshot, plumbing.NewHash(br.Spec.Commit))
	switch {
	case err == nil:
		said[v1alpha1.AnnotationCommitAuthor] = gitobject.AuthorOf(c)
		said[v1alpha1.AnnotationRejected] = rejectedBy(c, br.Namespace+"/"+br.Name).reason
	case now != nil && now.Spec.Commit == br.Spec.Commit:
		for _, key := range []string{v1alpha1.AnnotationCommitAuthor, v1alpha1.AnnotationRejected} {
			said[key] = now.Annotations[key]
		}
	}
	for _, key := range apply.CommitAnnotations {
		delete(br.Annotations, key) // a manifest does not say it
		value := said[key]
		if value == "" {
			continue
		}
		if br.Annotations == nil {
			br.Annotations = map[string]string{}
		}
		br.Annotations[key] = value
	}
}

// CommitPage is the page of a commit at the forge that a URL is of. It is empty where
// there is no forge, as for a file URL.
func CommitPage(repository, commit string) string {
	u, err := url.Parse(repository)
	if err != nil || u.Host == "" || commit == "" {
		return ""
	}
	switch u.Scheme {
	case "http", "https":
	case "ssh":
		u.Scheme, u.Host = "https", u.Hostname()
	default:
		return ""
	}
	kind := "/commit/" // GitHub, Gitea, Forgejo and others
	switch {
	case strings.Contains(u.Host, "gitlab"):
		kind = "/-/commit/"
	case strings.Contains(u.Host, "bitbucket"):
		kind = "/commits/"
	}
	page := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), ".git") + kind + commit}
	return page.String()
}

// trailerRejected says why the commit of tranche reject takes a release back.
const trailerRejected = "Tranche-Rejected"

// maxReason is how many characters of a reason are handed on.
const maxReason = 500

// Rejection is what a commit of tranche reject says.
type Rejection struct {
	Of         string // the commit of the release
	by, reason string
	in         string
}

// rejectedBy reads what a commit says of the rejection of a release; empty where it
// rejects none, or another one.
func rejectedBy(c *object.Commit, release string) Rejection {
	t := gitobject.Trailers(c.Message)
	if !slices.Contains(t[gitobject.TrailerRelease], release) || len(t[gitobject.TrailerCommit]) == 0 || len(t[trailerRejected]) == 0 {
		return Rejection{}
	}
	r := Rejection{Of: t[gitobject.TrailerCommit][0], by: gitobject.AuthorOf(c), reason: t[trailerRejected][0], in: c.Hash.String()}
	if runes := []rune(r.reason); len(runes) > maxReason {
		r.reason = string(runes[:maxReason-1]) + "…"
	}
	return r
}

// RejectionIn is what the commit of a release says.
func RejectionIn(s storer.EncodedObjectStorer, br *v1alpha1.BatchRelease) Rejection {
	c, err := object.GetCommit(s, plumbing.NewHash(br.Spec.Commit))
	if err != nil {
		return Rejection{} // it left the repository, and a note on it would be on nothing
	}
	return rejectedBy(c, br.Namespace+"/"+br.Name)
}

// rejectedLine begins the line of a note.
const rejectedLine = "Rejected: "

func (r Rejection) Line() string {
	return fmt.Sprintf("%sby %s, in %s: %s", rejectedLine, plan.OneLine(r.by), plan.ShortCommit(r.in), plan.OneLine(r.reason))
}

// WithRejection returns a paragraph with the rejection that its former text has. The
// commit with the rejection is that of the release only until the next release.
func WithRejection(p, before string) string {
	if strings.Contains(p, "\n"+rejectedLine) {
		return p
	}
	for line := range strings.Lines(before) {
		if strings.HasPrefix(line, rejectedLine) {
			return p + "\n" + strings.TrimRight(line, "\n")
		}
	}
	return p
}
