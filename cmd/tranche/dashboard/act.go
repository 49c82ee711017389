package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/commit"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/feed"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Clone is the folder in which the person has started the dashboard. The commits that the
// page asks for are made there, by that person's git. The server keeps no credential of it.
type Clone struct {
	Dir        string
	Connection *cli.Connection

	mu sync.Mutex // one action at a time: they share the clone

	asked   sync.Mutex
	authors map[string]authorIn // by the URL of the repository
}

// authorIn is who commits in a clone, or why the folder is no clone of a source.
type authorIn struct {
	name  string
	err   error
	until time.Time
}

// knownFor is how long an answer of git about the clone counts.
const knownFor = 30 * time.Second

// author returns who would commit for a source.
func (c *Clone) author(ctx context.Context, gs *v1alpha1.GitSource, now time.Time) (string, error) {
	c.asked.Lock()
	defer c.asked.Unlock()
	if known, ok := c.authors[gs.Spec.URL]; ok && now.Before(known.until) {
		return known.name, known.err
	}
	name := ""
	in, err := clone.Find(ctx, c.Dir, gs.Spec.URL)
	if err == nil {
		name, err = in.Author(ctx)
	}
	if c.authors == nil {
		c.authors = map[string]authorIn{}
	}
	c.authors[gs.Spec.URL] = authorIn{name, err, now.Add(knownFor)}
	return name, err
}

// Action is what the page offers for a release.
type Action struct {
	Verb commit.Verb `json:"verb"`
	Step int32       `json:"step,omitempty"`
	// Refused says why it is not offered; empty: it is.
	Refused string `json:"refused,omitempty"`
	// Command is the same for a terminal.
	Command string `json:"command"`
}

// Actions are those of a release.
type Actions struct {
	// InClone reports whether the server can show and carry out the actions.
	InClone bool `json:"inClone"`
	// Elsewhere says why it cannot.
	Elsewhere string   `json:"elsewhere,omitempty"`
	List      []Action `json:"list"`
	// Forge is the page of the forge in which the approval can be committed.
	Forge string `json:"forge,omitempty"`
}

// actions returns what can be done about a release. An action that would be refused has the
// reason.
func (s *Server) actions(ctx context.Context, f *view.Facts) *Actions {
	if f.Source == nil {
		return nil
	}
	author, err := "", errors.New("the dashboard was not started in a clone")
	if s.Clone != nil {
		author, err = s.Clone.author(ctx, f.Source, s.Now())
	}
	made := &Actions{InClone: err == nil}
	if err != nil {
		made.Elsewhere = err.Error()
	}
	for _, verb := range verbs(f.Release) {
		a := commit.Action{Verb: verb, Name: f.Release.Name, Step: f.Release.Status.CurrentStepIndex}
		offered := Action{Verb: verb, Command: fmt.Sprintf("tranche %s %s -n %s --push", verb, f.Release.Name, f.Release.Namespace)}
		if f.Signs(verb == commit.Approve) {
			offered.Command += " --sign"
		}
		if verb == commit.Approve {
			offered.Step = a.Step
		}
		if err := errors.Join(a.Refusal(f.Release, f.Source), sameAuthor(f, verb, author)); err != nil {
			offered.Refused = err.Error()
		} else if verb == commit.Approve {
			made.Forge = forgePage(f)
		}
		made.List = append(made.List, offered)
	}
	return made
}

// verbs returns the actions that belong to the state of a release.
func verbs(br *v1alpha1.BatchRelease) (all []commit.Verb) {
	over := br.Status.Phase == "" || br.Status.Phase == v1alpha1.PhaseCompleted
	if !over && !br.Status.RollingBack {
		all = append(all, commit.Approve)
	}
	switch {
	case br.Spec.Paused:
		all = append(all, commit.Resume)
	case !over && !br.Status.RollingBack:
		all = append(all, commit.Pause)
	}
	return append(all, commit.Rollback)
}

// sameAuthor refuses an approval of a person's own change where that does not count.
func sameAuthor(f *view.Facts, verb commit.Verb, author string) error {
	approvals := f.Source.Spec.Approvals
	wrote := view.NewRow(f.Release).Author
	if verb != commit.Approve || approvals == nil || !approvals.DistinctAuthor || author == "" || wrote != author {
		return nil
	}
	return errors.New("you wrote the change, and its author may not approve it (spec.approvals.distinctAuthor)")
}

// forgePage returns the page of a forge for a new file with the approval; empty: the forge
// has none, or is not known. An approval that has to be signed is not made there.
func forgePage(f *view.Facts) string {
	at, err := url.Parse(f.Source.Spec.URL)
	if err != nil || f.Signs(true) || (at.Scheme != "https" && at.Scheme != "ssh") {
		return ""
	}
	page := url.URL{Scheme: "https", Host: at.Host}
	if at.Scheme == "ssh" { // its port is not that of the page
		page.Host = at.Hostname()
	}
	repository := "/" + strings.TrimSuffix(strings.Trim(at.Path, "/"), ".git")
	file, branch := f.ApprovalPath(), f.Source.Spec.Ref.Branch
	text := cli.ApprovalFile(f.Release, f.Release.Status.CurrentStepIndex)
	switch forgeOf(at.Hostname()) {
	case "github":
		page.Path, page.RawQuery = repository+"/new/"+branch, url.Values{"filename": {file}, "value": {text}}.Encode()
	case "gitlab":
		page.Path, page.RawQuery = repository+"/-/new/"+branch, url.Values{"file_name": {file}, "content": {text}}.Encode()
	case "gitea":
		page.Path = repository + "/_new/" + path.Join(branch, path.Dir(file))
		page.RawQuery = url.Values{"filename": {path.Base(file)}, "value": {text}}.Encode()
	default:
		return ""
	}
	return page.String()
}

// forgeOf returns which forge serves a host, by the name that it has; empty: not known.
func forgeOf(host string) string {
	switch strings.ToLower(host) {
	case "github.com":
		return "github"
	case "codeberg.org":
		return "gitea"
	}
	for label := range strings.SplitSeq(strings.ToLower(host), ".") {
		switch label {
		case "gitlab", "gitea":
			return label
		case "forgejo":
			return "gitea"
		}
	}
	return ""
}

// actWithin is how long git may take. It may wait for a passphrase at the terminal.
const actWithin = 2 * time.Minute

// act shows what an action would commit, or carries it out with the digest of what was
// shown.
func (s *Server) act(w http.ResponseWriter, r *http.Request, u *access.User) {
	if s.Clone == nil {
		refuse(w, http.StatusNotFound, "the dashboard was not started in a clone; it commits for no reader")
		return
	}
	var body struct {
		Verb      commit.Verb `json:"verb"`
		Namespace string      `json:"namespace"`
		Name      string      `json:"name"`
		Step      int32       `json:"step"`
		Digest    string      `json:"digest"`
	}
	if !read(w, r, &body) {
		return
	}
	if down := s.Feed.Down(); down != nil {
		refuseDown(w, down)
		return
	}
	ctx, stop := context.WithTimeout(r.Context(), actWithin)
	defer stop()
	f, _, err := s.facts(ctx, u, types.NamespacedName{Namespace: body.Namespace, Name: body.Name})
	if err != nil || f == nil || f.Source == nil {
		refuse(w, http.StatusNotFound, "there is no such release with a source")
		return
	}
	author, err := s.Clone.author(ctx, f.Source, s.Now())
	if err = errors.Join(err, sameAuthor(f, body.Verb, author)); err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	at := *s.Clone.Connection
	at.Namespace = body.Namespace
	a := commit.Action{Verb: body.Verb, Name: body.Name, Step: body.Step, Dir: s.Clone.Dir, Sign: f.Signs(body.Verb == commit.Approve)}
	s.Clone.mu.Lock()
	defer s.Clone.mu.Unlock()
	var answer any
	if body.Digest == "" {
		answer, err = a.Propose(ctx, &at)
	} else {
		var said string
		said, err = a.Commit(ctx, &at, body.Digest)
		answer = map[string]string{"said": said}
	}
	if down := (*feed.DownError)(nil); errors.As(err, &down) {
		refuseDown(w, down)
		return
	}
	if err != nil {
		refuse(w, http.StatusConflict, err.Error())
		return
	}
	reply(w, answer)
}

// refuseDown refuses an action that the API server would have to be asked about. All questions
// come before the commit.
func refuseDown(w http.ResponseWriter, down *feed.DownError) {
	refuse(w, http.StatusServiceUnavailable, down.Error()+". Nothing was committed. Try again once the page is live.")
}
