package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Receiver is one place to tell.
type Receiver struct {
	// Name tells receivers apart, in logs.
	Name string `json:"name"`
	// Type: slack, msteams, webhook (CloudEvents), github, gitlab, gitea
	// (commit statuses).
	Type string `json:"type"`
	// URL of an incoming webhook; of a forge, of its API, with a default for
	// github.com and gitlab.com.
	URL string `json:"url,omitempty"`
	// Token of a forge, or the bearer token of a webhook.
	Token string `json:"token,omitempty"`
	// Repository of a forge, as owner/name; of GitLab also group/subgroup/name.
	Repository string `json:"repository,omitempty"`
	// Namespaces are those whose releases are sent to it; empty: all.
	Namespaces []string `json:"namespaces,omitempty"`
	// Reasons are those that are sent to it; empty: all.
	Reasons []string `json:"reasons,omitempty"`
}

// forges have commit statuses.
var forges = map[string]string{"github": "https://api.github.com", "gitlab": "https://gitlab.com", "gitea": ""}

// parse reads receivers, by their names, and the name of the cluster.
func parse(text []byte) (receivers map[string]Receiver, cluster string, err error) {
	var file struct {
		Cluster   string     `json:"cluster"`
		Receivers []Receiver `json:"receivers"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, "", fmt.Errorf("reading receivers: %w", err)
	}
	byName := map[string]Receiver{}
	for i, r := range file.Receivers {
		if err := r.complete(); err != nil {
			return nil, "", fmt.Errorf("receivers[%d] %q: %w", i, r.Name, err)
		}
		if _, ok := byName[r.Name]; ok {
			return nil, "", fmt.Errorf("receivers[%d] %q: there is another one of that name", i, r.Name)
		}
		byName[r.Name] = r
	}
	return byName, file.Cluster, nil
}

// complete checks a receiver, and fills in what has a default.
func (r *Receiver) complete() error {
	if r.Name == "" {
		return errors.New("name is missing")
	}
	api, forge := forges[r.Type]
	switch {
	case forge && r.Token == "":
		return errors.New("token is missing")
	case forge && !r.namesRepository():
		return fmt.Errorf("repository: %q: must be owner/name", r.Repository)
	case !forge && !slices.Contains([]string{"slack", "msteams", "webhook"}, r.Type):
		return fmt.Errorf("type: %q: must be slack, msteams, webhook, github, gitlab or gitea", r.Type)
	}
	if r.URL == "" {
		r.URL = api
	}
	u, err := url.Parse(r.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("url must be one of https or http") // not the URL itself, which may be a secret
	}
	return nil
}

// namesRepository reports whether repository is owner/name. Only GitLab has groups in groups.
func (r Receiver) namesRepository() bool {
	segments := strings.Split(r.Repository, "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." {
			return false
		}
	}
	return len(segments) == 2 || len(segments) > 2 && r.Type == "gitlab"
}

func (r Receiver) equal(o Receiver) bool {
	return r.Type == o.Type && r.URL == o.URL && r.Token == o.Token && r.Repository == o.Repository &&
		slices.Equal(r.Namespaces, o.Namespaces) && slices.Equal(r.Reasons, o.Reasons)
}

func (r Receiver) wants(t Transition) bool {
	return (len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, t.Namespace)) &&
		(len(r.Reasons) == 0 || slices.Contains(r.Reasons, t.Reason))
}

// request is what tells a receiver of a transition; nil where there is nothing
// to tell it: a forge of a release without a commit.
func (r Receiver) request(ctx context.Context, t Transition) (*http.Request, error) {
	var body any
	header := http.Header{"Content-Type": {"application/json"}}
	to := r.URL
	switch r.Type {
	case "slack":
		body = map[string]string{
			"text": t.sign() + " " + slackText(t.where()) + "*" + t.name() + "* " + t.Reason + ": " + slackText(t.Message) + t.slackCommit() +
				t.slackNext(),
		}
	case "msteams":
		body = teamsCard(t)
	case "webhook":
		header.Set("Content-Type", "application/cloudevents+json; charset=UTF-8")
		if r.Token != "" {
			header.Set("Authorization", "Bearer "+r.Token)
		}
		body = cloudEvent(t)
	default:
		if t.Commit == "" {
			return nil, nil
		}
		if !wholeCommit.MatchString(t.Commit) {
			return nil, fmt.Errorf("commit %q: a status needs the 40 or 64 hexadecimal digits of a commit", t.Commit)
		}
		to, body = r.status(t)
		if r.Type == "gitlab" {
			header.Set("PRIVATE-TOKEN", r.Token)
		} else {
			header.Set("Authorization", "token "+r.Token)
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding a notification: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("preparing the request: %w", unlinked(err))
	}
	req.Header = header
	return req, nil
}

func (t Transition) name() string { return t.Namespace + "/" + t.Release + t.Source }

// where is the cluster, where the file names it.
func (t Transition) where() string {
	if t.cluster == "" {
		return ""
	}
	return "[" + t.cluster + "] "
}

// sign is what a chat shows first. A rollback that has come to its end is no success of
// what was released.
func (t Transition) sign() string {
	if t.Rollback && t.State == Succeeded {
		return "↩️"
	}
	return [...]string{"⏳", "✅", "❌"}[t.State]
}

// fromCommit names the commit and its author. The function writes a commit with its link.
func (t Transition) fromCommit(linked func(commit, link string) string) string {
	if len(t.Commit) < 12 {
		return ""
	}
	commit := t.Commit[:12]
	if t.Link != "" {
		commit = linked(commit, t.Link)
	}
	if t.Author != "" {
		commit += " by " + t.Author
	}
	return commit
}

func (t Transition) slackCommit() string {
	link := func(commit, link string) string { return "<" + slackText(link) + "|" + commit + ">" }
	author := t.Author
	t.Author = ""
	commit := t.fromCommit(link)
	switch {
	case commit == "":
		return ""
	case author != "":
		commit += " by " + slackText(author)
	}
	return " (commit " + commit + ")"
}

func (t Transition) slackNext() string {
	if t.Next == "" {
		return ""
	}
	return "\n`" + slackText(t.Next) + "`"
}

// markdownText keeps what a committer writes from being a link in Markdown. A zero-width space
// goes between the text of the link and its address.
func markdownText(s string) string { return strings.ReplaceAll(s, "](", "]\u200b(") }

// markdownCommit is for Teams.
func (t Transition) markdownCommit() string {
	t.Author = markdownText(t.Author)
	commit := t.fromCommit(func(commit, link string) string { return "[" + commit + "](" + link + ")" })
	if commit == "" {
		return ""
	}
	return " (commit " + commit + ")"
}

// slackText escapes what Slack's mrkdwn would read as markup.
func slackText(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// teamsCard is an Adaptive Card for a Teams workflow's webhook.
func teamsCard(t Transition) any {
	block := func(text string, more map[string]any) map[string]any {
		b := map[string]any{"type": "TextBlock", "text": text, "wrap": true}
		for k, v := range more {
			b[k] = v
		}
		return b
	}
	blocks := []any{
		block(t.sign()+" "+t.where()+t.name()+" "+t.Reason, map[string]any{"weight": "Bolder"}),
		block(markdownText(t.Message)+t.markdownCommit(), nil),
	}
	if t.Next != "" {
		blocks = append(blocks, block(t.Next, map[string]any{"fontType": "Monospace"}))
	}
	card := map[string]any{
		"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
		"body": blocks,
	}
	return map[string]any{
		"type":        "message",
		"attachments": []any{map[string]any{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}},
	}
}

// cloudEvent is a CloudEvents 1.0 event in structured mode.
func cloudEvent(t Transition) any {
	at := t.Time.UTC().Format(time.RFC3339Nano)
	data := map[string]any{
		"namespace": t.Namespace, "reason": t.Reason, "message": t.Message, "commit": t.Commit,
		"state": [...]string{"Pending", "Succeeded", "Failed"}[t.State],
	}
	for field, value := range map[string]string{"cluster": t.cluster, "author": t.Author, "link": t.Link, "next": t.Next} {
		if value != "" {
			data[field] = value
		}
	}
	about, source := "source", "/gitsources/"+t.Source
	if t.Source != "" {
		data["source"] = t.Source
	} else {
		about, source = "release", "/batchreleases/"+t.Release
		data["release"], data["revision"], data["step"], data["rollback"] = t.Release, t.Revision, t.Step, t.Rollback
	}
	return map[string]any{
		"specversion": "1.0", "type": "dev.tranche." + about + "." + t.Reason, "source": "/namespaces/" + t.Namespace + source,
		"id": t.name() + "/" + t.Revision + "/" + t.Reason + "/" + at, "time": at, "datacontenttype": "application/json",
		"subject": t.name(), "data": data,
	}
}

// wholeCommit is what a status may be set on. A user who may write BatchReleases chooses the
// commit, and it is a part of a URL that is asked with the operator's token.
var wholeCommit = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// describable is how long the description of a status may be, at GitHub.
const describable = 140

// status is where to set a commit's status, and to what.
func (r Receiver) status(t Transition) (to string, body any) {
	description := t.Reason + ": " + t.Message
	if runes := []rune(description); len(runes) > describable {
		description = string(runes[:describable-1]) + "…"
	}
	states, name := [...]string{"pending", "success", "failure"}, "tranche/"+t.name()
	if t.Source != "" { // a release may have the name of its source
		name = "tranche/source/" + t.name()
	}
	if t.cluster != "" { // another cluster sets its own status of the same commit
		name += "@" + t.cluster
	}
	fields := map[string]string{"context": name, "description": description}
	api := strings.TrimRight(r.URL, "/")
	switch r.Type {
	case "gitlab":
		states = [...]string{"running", "success", "failed"}
		fields = map[string]string{"name": name, "description": description}
		to = api + "/api/v4/projects/" + url.PathEscape(r.Repository) + "/statuses/" + url.PathEscape(t.Commit)
	case "gitea":
		to = api + "/api/v1/repos/" + escaped(r.Repository) + "/statuses/" + url.PathEscape(t.Commit)
	default:
		to = api + "/repos/" + escaped(r.Repository) + "/statuses/" + url.PathEscape(t.Commit)
	}
	fields["state"] = states[t.State]
	return to, fields
}

// escaped is a repository as a part of a path, with its slashes.
func escaped(repository string) string {
	segments := strings.Split(repository, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/")
}

// unlinked takes the URL out of an error of net/http.
func unlinked(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("%s: %w", strings.ToUpper(e.Op), e.Err)
	}
	return err
}
