package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
)

var waiting = Transition{
	Namespace: "shop", Release: "web", Reason: "WaitingForApproval", Message: "2 of 10 pods run <5c66>; approve step 0 to go on to 5",
	Revision: "5c66", Commit: "3f2c1e0000000000000000000000000000000000", Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
}

// server answers with the codes one after the other, then with 200, and keeps the
// requests.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	codes []int
	got   []received
	more  chan struct{}
}

type received struct {
	path   string
	uri    string
	header http.Header
	body   map[string]any
}

func newServer(t *testing.T, codes ...int) *server {
	s := &server{codes: codes, more: make(chan struct{}, 1000)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got := received{path: r.URL.EscapedPath(), uri: r.RequestURI, header: r.Header}
		_ = json.Unmarshal(text, &got.body)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got = append(s.got, got)
		if len(s.codes) > 0 {
			w.WriteHeader(s.codes[0])
			s.codes = s.codes[1:]
		}
		s.more <- struct{}{}
	}))
	t.Cleanup(s.Close)
	return s
}

// received waits until the server was asked n times, and returns what it received.
func (s *server) received(t *testing.T, n int) []received {
	t.Helper()
	for range n {
		select {
		case <-s.more:
		case <-time.After(30 * time.Second):
			t.Fatalf("the server was asked less than %d times", n)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// start runs a notifier with these receivers until the test ends.
func start(t *testing.T, log logr.Logger, receivers string) (*Notifier, string) {
	t.Helper()
	path := writeTemp(t, receivers)
	n, err := New(path, log)
	if err != nil {
		t.Fatal(err)
	}
	n.http.RetryWaitMin, n.http.RetryWaitMax = time.Millisecond, time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return n, path
}

func writeTemp(t *testing.T, receivers string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notifications.yaml")
	write(t, path, receivers)
	return path
}

func write(t *testing.T, path, receivers string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("receivers:\n"+receivers), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Each kind of receiver gets a request of its own form.
func TestKinds(t *testing.T) {
	const commit = "3f2c1e0000000000000000000000000000000000"
	description := "WaitingForApproval: 2 of 10 pods run <5c66>; approve step 0 to go on to 5"
	for kind, tc := range map[string]struct {
		path, header, value string
		body                map[string]any
	}{
		"slack": {"/", "Content-Type", "application/json", map[string]any{
			"text": "⏳ *shop/web* WaitingForApproval: 2 of 10 pods run &lt;5c66&gt;; approve step 0 to go on to 5 (commit 3f2c1e000000)"}},
		"msteams": {"/", "Content-Type", "application/json", map[string]any{"type": "message", "attachments": []any{map[string]any{
			"contentType": "application/vnd.microsoft.card.adaptive", "content": map[string]any{
				"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": []any{
					map[string]any{"type": "TextBlock", "wrap": true, "weight": "Bolder", "text": "⏳ shop/web WaitingForApproval"},
					map[string]any{
						"type": "TextBlock", "wrap": true,
						"text": "2 of 10 pods run <5c66>; approve step 0 to go on to 5 (commit 3f2c1e000000)",
					},
				}}}}}},
		"webhook": {"/", "Authorization", "Bearer s3cret", map[string]any{
			"specversion": "1.0", "type": "dev.tranche.release.WaitingForApproval", "source": "/namespaces/shop/batchreleases/web",
			"subject": "shop/web",
			"id":      "shop/web/5c66/WaitingForApproval/2026-01-01T00:00:00Z", "time": "2026-01-01T00:00:00Z", "datacontenttype": "application/json",
			"data": map[string]any{"namespace": "shop", "release": "web", "reason": "WaitingForApproval",
				"message": waiting.Message, "revision": "5c66",
				"commit": commit, "step": 0.0, "state": "Pending", "rollback": false}}},
		"github": {"/repos/shop/web/statuses/" + commit, "Authorization", "token s3cret",
			map[string]any{"state": "pending", "context": "tranche/shop/web", "description": description}},
		"gitea": {"/api/v1/repos/shop/web/statuses/" + commit, "Authorization", "token s3cret",
			map[string]any{"state": "pending", "context": "tranche/shop/web", "description": description}},
		"gitlab": {"/api/v4/projects/shop%2Fweb/statuses/" + commit, "Private-Token", "s3cret",
			map[string]any{"state": "running", "name": "tranche/shop/web", "description": description}},
	} {
		t.Run(kind, func(t *testing.T) {
			s := newServer(t)
			n, _ := start(t, logr.Discard(), fmt.Sprintf("- {name: a, type: %s, url: %q, token: s3cret, repository: shop/web}\n", kind, s.URL))
			n.Tell(waiting)
			got := s.received(t, 1)[0]
			if got.path != tc.path || got.header.Get(tc.header) != tc.value {
				t.Errorf("%s with %s %q", got.path, tc.header, got.header.Get(tc.header))
			}
			if diff := cmp.Diff(tc.body, got.body); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// A notification about a GitSource, with all that is known of the commit: cluster, author,
// link and the command that moves on.
func TestSource(t *testing.T) {
	failed := Transition{
		Namespace: "shop", Source: "web", Reason: SourceFailed, Message: "InvalidManifest: <port>", State: Failed,
		Commit: waiting.Commit, Time: waiting.Time,
		Author: "Ada <ada@example.org>", Link: "https://git.example.org/shop/commit/" + waiting.Commit, Next: "tranche sync web -n shop",
	}
	for kind, want := range map[string]string{
		"slack": `{"text":"❌ [prod-eu] *shop/web* SourceFailed: InvalidManifest: &lt;port&gt; (commit <https://git.example.org/shop/commit/` +
			waiting.Commit + `|3f2c1e000000> by Ada &lt;ada@example.org&gt;)\n` + "`tranche sync web -n shop`" + `"}`,
		"msteams": `❌ [prod-eu] shop/web SourceFailed|InvalidManifest: <port> (commit [3f2c1e000000](https://git.example.org/shop/commit/` + waiting.Commit + `) by Ada <ada@example.org>)|tranche sync web -n shop`,
		"webhook": `{"author":"Ada <ada@example.org>","cluster":"prod-eu","commit":"` + waiting.Commit + `","link":"` + failed.Link + `","message":"InvalidManifest: <port>","namespace":"shop","next":"tranche sync web -n shop","reason":"SourceFailed","source":"web","state":"Failed"}`,
		"github":  `{"context":"tranche/source/shop/web@prod-eu","description":"SourceFailed: InvalidManifest: <port>","state":"failure"}`,
	} {
		t.Run(kind, func(t *testing.T) {
			s := newServer(t)
			n, path := start(t, logr.Discard(), fmt.Sprintf("- {name: a, type: %s, url: %q, token: s3cret, repository: shop/web}\n", kind, s.URL))
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, append([]byte("cluster: prod-eu\n"), text...), 0o600); err != nil {
				t.Fatal(err)
			}
			n.Tell(failed)
			body := s.received(t, 1)[0].body
			var got strings.Builder
			switch e := json.NewEncoder(&got); kind {
			case "webhook":
				if body["type"] != "dev.tranche.source.SourceFailed" || body["source"] != "/namespaces/shop/gitsources/web" {
					t.Errorf("type %v of %v", body["type"], body["source"])
				}
				e.SetEscapeHTML(false)
				err = e.Encode(body["data"])
			case "msteams":
				card := body["attachments"].([]any)[0].(map[string]any)["content"].(map[string]any)
				var texts []string
				for _, block := range card["body"].([]any) {
					texts = append(texts, block.(map[string]any)["text"].(string))
				}
				got.WriteString(strings.Join(texts, "|"))
			default:
				e.SetEscapeHTML(false)
				err = e.Encode(body)
			}
			if diff := cmp.Diff(want, strings.TrimSpace(got.String())); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// An author has a name as if it were a link, in Markdown and as Slack has it.
func TestNoLinkOfACommitter(t *testing.T) {
	says := "[Approve](http://evil.example.org) <http://evil.example.org|Approve>"
	for _, kind := range []string{"slack", "msteams"} {
		s := newServer(t)
		n, _ := start(t, logr.Discard(), fmt.Sprintf("- {name: a, type: %s, url: %q}\n", kind, s.URL))
		n.Tell(Transition{
			Namespace: "shop", Source: "web", Reason: SourceFailed, Message: says, Author: says,
			Commit: waiting.Commit, Link: "https://git.example.org/shop",
		})
		var got strings.Builder
		e := json.NewEncoder(&got)
		e.SetEscapeHTML(false)
		if err := e.Encode(s.received(t, 1)[0].body); err != nil {
			t.Fatal(err)
		}
		for _, link := range []string{"msteams](http://evil", "slack<http://evil"} {
			if link, of := strings.CutPrefix(link, kind); of && strings.Contains(got.String(), link) {
				t.Errorf("%s has the link of a committer: %s", kind, got.String())
			}
		}
		if !strings.Contains(got.String(), "https://git.example.org/shop") {
			t.Errorf("%s is without the link of the commit: %s", kind, got.String())
		}
	}
}

// A user who may write BatchReleases chooses spec.commit. No value of it makes a request
// with the forge's token to another path than that of one commit's statuses.
func TestForgeCommits(t *testing.T) {
	commit40, commit64 := waiting.Commit, strings.Repeat("0a", 32)
	hostile := []string{
		"../../../../admin/users?x=", "../../../o/r/statuses/" + commit40, "..", ".", "/", "%2e%2e%2fadmin", "..%2f..%2fadmin", commit40 + "/../" + commit40,
		commit40 + "?x=", commit40 + "#x", commit40 + "\n", " " + commit40, commit40[:39], commit40 + "0", commit64[:63], commit64 + "0",
		strings.ToUpper(commit40), strings.Repeat("g", 40), strings.Repeat("\u0660", 40), commit40[:7],
	}
	for kind, path := range map[string]string{"github": "/repos/shop/web/statuses/", "gitea": "/api/v1/repos/shop/web/statuses/", "gitlab": "/api/v4/projects/shop%2Fweb/statuses/"} {
		t.Run(kind, func(t *testing.T) {
			s := newServer(t)
			n, _ := start(t, logr.Discard(), fmt.Sprintf("- {name: a, type: %s, url: %q, token: s3cret, repository: shop/web}\n", kind, s.URL))
			to := waiting
			for _, to.Commit = range append(hostile, commit64) { // the receiver takes them in this order
				n.Tell(to)
			}
			if got := s.received(t, 1); len(got) != 1 || got[0].uri != path+commit64 {
				t.Errorf("the forge was asked for %+v, want %s alone", got, path+commit64)
			}
		})
	}
}

// A receiver of a forge sets statuses for the releases of its namespaces alone.
func TestForgeNamespaces(t *testing.T) {
	s := newServer(t)
	n, _ := start(t, logr.Discard(), fmt.Sprintf("- {name: a, type: github, url: %q, token: s3cret, repository: shop/web, namespaces: [shop]}\n", s.URL))
	other := waiting
	other.Namespace = "other"
	n.Tell(other)
	n.Tell(waiting)
	if got := s.received(t, 1); len(got) != 1 || got[0].body["context"] != "tranche/shop/web" {
		t.Errorf("the forge was asked for %+v, want a status of tranche/shop/web alone", got)
	}
}

// Each cluster sets a status of its own: success in one hides no failure in another.
func TestForgeClusters(t *testing.T) {
	for kind, field := range map[string]string{"github": "context", "gitea": "context", "gitlab": "name"} {
		s := newServer(t)
		for i, cluster := range []string{"staging", "prod-eu"} {
			n, path := start(t, logr.Discard(), fmt.Sprintf("- {name: a, type: %s, url: %q, token: s3cret, repository: shop/web}\n", kind, s.URL))
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, append([]byte("cluster: "+cluster+"\n"), text...), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			n.Tell(waiting)
			got := s.received(t, 1)
			if len(got) != i+1 || got[i].body[field] != "tranche/shop/web@"+cluster {
				t.Errorf("%s was asked for %+v, want a status of %s", kind, got, cluster)
			}
		}
	}
}

// Each segment of the forge's path is escaped, so that repository names one repository.
func TestForgeRepositories(t *testing.T) {
	for name, tc := range map[string]struct{ kind, repository, want string }{
		"github":          {"github", "shop/a?b#c%2f", "/repos/shop/a%3Fb%23c%252f/statuses/"},
		"gitea":           {"gitea", "shop/a b", "/api/v1/repos/shop/a%20b/statuses/"},
		"gitlab subgroup": {"gitlab", "shop/team/web", "/api/v4/projects/shop%2Fteam%2Fweb/statuses/"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			n, _ := start(t, logr.Discard(), fmt.Sprintf("- {name: a, type: %s, url: %q, token: s3cret, repository: %q}\n", tc.kind, s.URL+"/", tc.repository))
			n.Tell(waiting)
			if got := s.received(t, 1)[0].uri; got != tc.want+waiting.Commit {
				t.Errorf("the forge was asked for %s, want %s", got, tc.want+waiting.Commit)
			}
		})
	}
}

// A receiver that fails is tried again, and holds up no other one; what is
// logged in the end has no secret in it.
func TestRetry(t *testing.T) {
	var l logs
	flaky, broken := newServer(t, 500, 429), newServer(t, 500, 500, 500, 500, 500, 404)
	n, _ := start(t, l.logger(), fmt.Sprintf("- {name: flaky, type: slack, url: \"%s/s3cret\"}\n- {name: broken, type: slack, url: \"%s/s3cret\"}\n- {name: away, type: slack, url: \"http://127.0.0.1:1/s3cret\"}\n", flaky.URL, broken.URL))
	n.Tell(waiting)
	flaky.received(t, 3)
	broken.received(t, tries)
	n.Tell(waiting)
	broken.received(t, 1)
	for deadline := time.Now().Add(30 * time.Second); ; {
		text := l.String()
		if strings.Count(text, `"receiver"="broken"`) == 2 && strings.Count(text, `"receiver"="away"`) == 2 {
			if strings.Contains(text, "s3cret") {
				t.Errorf("a secret is logged: %s", text)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("logged: %s", text)
		}
	}
}

// Receivers have what they want, and the file is read again when it changes.
func TestFilterAndReload(t *testing.T) {
	s, other := newServer(t), newServer(t)
	n, path := start(t, logr.Discard(), fmt.Sprintf("- {name: a, type: slack, url: %q, namespaces: [shop], reasons: [ReleaseCompleted]}\n", s.URL))
	n.Tell(waiting)
	done := waiting
	done.Reason, done.State = "ReleaseCompleted", Succeeded
	elsewhere := done
	elsewhere.Namespace = "bank"
	n.Tell(elsewhere)
	n.Tell(done)
	if got := s.received(t, 1); len(got) != 1 || !strings.Contains(got[0].body["text"].(string), "✅ *shop/web* ReleaseCompleted") {
		t.Errorf("received %v", got)
	}
	back := done
	back.Rollback = true
	n.Tell(back)
	if got := s.received(t, 1); len(got) != 2 || !strings.Contains(got[1].body["text"].(string), "↩️ *shop/web* ReleaseCompleted") {
		t.Errorf("of a rollback it received %v", got)
	}
	write(t, path, "- {type: slack}\n")
	n.Tell(done) // the file is wrong: the former receivers stay
	s.received(t, 1)
	write(t, path, fmt.Sprintf("- {name: a, type: slack, url: %q}\n", other.URL))
	n.Tell(waiting)
	other.received(t, 1)
}

// Errors in the file are reported, without the secrets in it.
func TestBadConfig(t *testing.T) {
	for receivers, want := range map[string]string{
		"- {type: slack, url: 'https://x.example.org/s3cret'}":                                         "name is missing",
		"- {name: a, type: pager, url: 'https://x.example.org'}":                                       `type: "pager"`,
		"- {name: a, type: slack, url: 's3cret'}":                                                      "url must be",
		"- {name: a, type: slack}":                                                                     "url must be",
		"- {name: a, type: github, repository: shop/web}":                                              "token is missing",
		"- {name: a, type: github, token: s3cret, repository: web}":                                    "owner/name",
		"- {name: a, type: gitea, token: s3cret, repository: shop/web}":                                "url must be",
		"- {name: a, type: github, token: s3cret, repository: shop/../admin}":                          "owner/name",
		"- {name: a, type: github, token: s3cret, repository: shop/..}":                                "owner/name",
		"- {name: a, type: gitlab, token: s3cret, repository: shop//web}":                              "owner/name",
		"- {name: a, type: gitlab, token: s3cret, repository: /web}":                                   "owner/name",
		"- {name: a, type: slack, webhook: 's3cret'}":                                                  "unknown field",
		"- {name: a, type: slack, url: 'http://x.org'}\n- {name: a, type: slack, url: 'http://x.org'}": "another one of that name",
	} {
		_, err := New(writeTemp(t, receivers), logr.Discard())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", receivers, err, want)
		}
	}
	if _, err := New(filepath.Join(t.TempDir(), "none"), logr.Discard()); err == nil {
		t.Error("a file that is not there: no error")
	}
}

// A receiver gets a burst of notifications at once, and the others one by one.
func TestRate(t *testing.T) {
	s := newServer(t)
	n, _ := start(t, logr.Discard(), fmt.Sprintf("- {name: a, type: slack, url: %q}\n", s.URL))
	begun := time.Now()
	for range burst + 2 {
		n.Tell(waiting)
	}
	if got := s.received(t, burst+2); len(got) != burst+2 {
		t.Errorf("received %d notifications", len(got))
	}
	if took := time.Since(begun); took < 2*every-every/10 { // never sooner, however fast the machine
		t.Errorf("received %d notifications within %s", burst+2, took)
	}
}

// A receiver that does not answer loses notifications, and delays no caller.
func TestFull(t *testing.T) {
	n, _ := start(t, logr.Discard(), "- {name: a, type: slack, url: 'http://127.0.0.1:1'}\n")
	for range 10 * queued {
		n.Tell(waiting)
	}
	(*Notifier)(nil).Tell(waiting)
}

// logs keeps what is logged.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.text.WriteString(args + "\n")
	}, funcr.Options{})
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A stop delivers what waits, also what a receiver has refused until then. The log has what it
// cannot deliver, and what comes later.
func TestStop(t *testing.T) {
	var l logs
	refusing, away := newServer(t, 503), newServer(t, 503, 404)
	n, err := New(writeTemp(t, fmt.Sprintf("- {name: refusing, type: slack, url: %q}\n- {name: away, type: slack, url: %q}\n", refusing.URL,
		away.URL)), l.logger())
	if err != nil {
		t.Fatal(err)
	}
	n.http.RetryWaitMin, n.http.RetryWaitMax = time.Hour, time.Hour
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Start(ctx) }()
	n.Tell(waiting)
	next := waiting
	next.Reason = "ReleasePaused"
	n.Tell(next)
	refusing.received(t, 1) // it is tried again in an hour
	away.received(t, 1)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, r := range refusing.received(t, 2) {
		said = append(said, r.body["text"].(string))
	}
	if len(said) != 3 || !strings.Contains(said[1], "WaitingForApproval") || !strings.Contains(said[2], "ReleasePaused") {
		t.Errorf("it received %q", said)
	}
	if got := l.String(); strings.Count(got, "Notification not delivered") != 1 || !strings.Contains(got, `"receiver"="away"`) {
		t.Errorf("logged: %s", got)
	}
	n.Tell(waiting)
	if got := l.String(); strings.Count(got, `"because"="the controller stops"`) != 2 {
		t.Errorf("logged: %s", got)
	}
}

// A receiver that the file has in place of another one, with another token, gets what waits. It
// gets nothing that it is not for, and the former one gets nothing more.
func TestReload_KeepsWhatWaits(t *testing.T) {
	for filter, gets := range map[string]int{"": 2, ", namespaces: [bank]": 0} {
		testReload(t, filter, gets)
	}
}

func testReload(t *testing.T, filter string, gets int) {
	t.Helper()
	var l logs
	former, now := newServer(t, 401), newServer(t)
	path := writeTemp(t, fmt.Sprintf("- {name: a, type: slack, url: %q}\n", former.URL))
	n, err := New(path, l.logger())
	if err != nil {
		t.Fatal(err)
	}
	n.http.CheckRetry = func(ctx context.Context, r *http.Response, _ error) (bool, error) {
		return r == nil || r.StatusCode >= http.StatusBadRequest, ctx.Err()
	}
	n.http.RetryWaitMin, n.http.RetryWaitMax = time.Hour, time.Hour
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Start(ctx) }()
	n.Tell(waiting)
	former.received(t, 1)
	write(t, path, fmt.Sprintf("- {name: a, type: slack, url: %q%s}\n", now.URL, filter))
	next := waiting
	next.Reason = "ReleasePaused"
	n.Tell(next)
	now.received(t, gets)
	stop()
	err = <-ended
	said := map[any]bool{} // the stop may interrupt the last delivery, which is then made again
	for _, r := range now.got {
		said[r.body["text"]] = true
	}
	if err != nil || len(former.got) != 1 || len(said) != gets {
		t.Errorf("%q: %v; the former receiver got %v, and the other one %v", filter, err, former.got, now.got)
	}
	const dropped = `"because"="the receiver is not for it any more"`
	if got := l.String(); strings.Contains(got, dropped) != (gets == 0) || gets > 0 && got != "" {
		t.Errorf("%q: logged: %s", filter, got)
	}
}
