package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// heard is what a webhook and a forge were sent.
type heard struct {
	mu       sync.Mutex
	events   []map[string]any  // the data of CloudEvents
	statuses map[string]string // "<commit> <context>": the last state
}

func (h *heard) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if json.NewDecoder(r.Body).Decode(&body) != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if commit, ok := strings.CutPrefix(r.URL.Path, "/repos/shop/web/statuses/"); ok {
		h.statuses[fmt.Sprint(commit, " ", body["context"])] = fmt.Sprint(body["state"])
		return
	}
	if data, ok := body["data"].(map[string]any); ok {
		h.events = append(h.events, data)
	}
}

func newHeard(t *testing.T) (*heard, *httptest.Server) {
	h := &heard{statuses: map[string]string{}}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return h, server
}

// all returns what the webhook was sent.
func (h *heard) all() []map[string]any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// hears waits until an event with a reason has these texts in its fields, and fails
// where fields differ that are given as field=value.
func (s *env) hears(h *heard, reason string, want map[string]string) {
	s.Helper()
	clustertest.Wait(s, "a notification of "+reason, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, e := range h.events {
			if e["reason"] != reason {
				continue
			}
			missing := ""
			for field, text := range want {
				if !strings.Contains(fmt.Sprint(e[field]), text) {
					missing += fmt.Sprintf("%s is %v, want %q; ", field, e[field], text)
				}
			}
			if missing == "" {
				return nil
			}
		}
		return fmt.Errorf("heard %v", h.events)
	})
}

// Chat and forge receive what happens to sources and releases. That is what fails and
// recovers, who approved and rejected what, the author, and the command that moves on. A
// refused commit has a status at the forge.
func TestNotified(t *testing.T) {
	t.Parallel()
	s := envOf(t, "web")
	h, server := newHeard(t)
	file := filepath.Join(t.TempDir(), "notifications.yaml")
	s.must(os.WriteFile(file, fmt.Appendf(nil, "cluster: prod-eu\nreceivers:\n- {name: hook, type: webhook, url: %q, namespaces: [%s]}\n- "+
		"{name: forge, type: github, url: %q, token: t, repository: shop/web, namespaces: [%s]}\n", server.URL, s.ns, server.URL, s.ns), 0o600))
	s.process(s.ownOnly(), "--notification-config", file)
	s.follow("source", ".", s.own, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Notes: true} })
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})

	s.replace("service.yaml", "port: 80", "port: eighty")
	bad := s.push("a mistake")
	source := map[string]string{
		"cluster": "prod-eu", "source": "source", "commit": bad, "author": "Ada <ada@example.org>", "message": "service.yaml",
		"state": "Failed", "next": "tranche sync source -n " + s.ns,
	}
	s.hears(h, "SourceFailed", source)
	s.status(h, bad, "source/"+s.ns+"/source@prod-eu", "failure")
	s.replace("service.yaml", "port: eighty", "port: 80")
	good := s.push("put right")
	s.hears(h, "SourceRecovered", map[string]string{"cluster": "prod-eu", "source": "source", "commit": good, "state": "Succeeded"})
	s.status(h, good, "source/"+s.ns+"/source@prod-eu", "success")
	s.status(h, bad, "source/"+s.ns+"/source@prod-eu", "failure")

	s.replace("deployment.yaml", "web:v1", "web:v2")
	v2 := s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, nil)
	s.hears(h, "WaitingForApproval", map[string]string{
		"cluster": "prod-eu", "release": "web", "commit": v2, "author": "Ada <ada@example.org>",
		"next": "tranche approve web -n " + s.ns + " --push",
	})
	s.approve(".", "web", 0)
	s.hears(h, "StepApproved", map[string]string{"release": "web", "commit": v2, "message": "step 0 by Ada <ada@example.org> of commit "})
	s.waitFor("web", "WaitingForApproval", 1, nil)
	s.replace("deployment.yaml", "web:v2", "web:v3")
	v3 := s.push("web: v3")
	s.hears(h, "ReleaseSuperseded", map[string]string{"release": "web", "commit": v2, "message": "of commit " + v3[:12]})
	s.status(h, v2, s.ns+"/web@prod-eu", "failure")
	s.waitFor("web", "WaitingForApproval", 0, nil)

	if out, code := s.tranche("reject", "web", "--yes", "--push", "--reason", "it is slow"); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	s.hears(h, "RollingBack", map[string]string{
		"release": "web", "message": "rejected by Ada <ada@example.org>: it is slow", "rollback": "true",
	})
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.hears(h, "ReleaseSuperseded", map[string]string{"commit": v3, "message": "rejected by Ada <ada@example.org>: it is slow"})
	s.status(h, v3, s.ns+"/web@prod-eu", "failure")
	s.status(h, s.run(s.clone, "git", "rev-parse", "HEAD"), s.ns+"/web@prod-eu", "success")
	clustertest.Wait(t, "the reason in the note of the commit", func() error {
		s.run(s.clone, "git", "fetch", "--quiet", "origin", "+refs/notes/*:refs/notes/*")
		note := s.run(s.clone, "git", "log", "-1", "--notes=tranche", "--format=%N", v3)
		if !strings.Contains(note, "\nOutcome: RolledBack") || !strings.Contains(note, "\nRejected: by Ada <ada@example.org>, in ") ||
			!strings.Contains(note, ": it is slow") {
			return fmt.Errorf("it is %q", note)
		}
		return nil
	})
}

// A release that misses its deadline is notified with the cause, counted, and the command
// that takes it back.
func TestNotified_Cause(t *testing.T) {
	t.Parallel()
	s := envOf(t, "web")
	h, server := newHeard(t)
	file := filepath.Join(t.TempDir(), "notifications.yaml")
	s.must(os.WriteFile(file,
		fmt.Appendf(nil, "receivers:\n- {name: hook, type: webhook, url: %q, namespaces: [%s]}\n", server.URL, s.ns), 0o600))
	s.process(s.ownOnly(), "--notification-config", file)
	s.follow("source", ".", s.own)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	room := s.noRoom()
	s.replace("deployment.yaml", "web:v1", "web:v2")
	v2 := s.push("web: v2")
	clustertest.Wait(t, "the cause in the status, before the deadline", func() error {
		if m := s.release("web").Status.Message; !strings.Contains(m, "2 pods not created: exceeded quota: no-room") {
			return errors.New(m)
		}
		return nil
	})
	s.replace("release.yaml", "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 1\n")
	s.push("a short deadline")
	s.hears(h, "ProgressDeadlineExceeded", map[string]string{"commit": v2, "state": "Failed", "message": "2 pods not created: exceeded quota: no-room", "next": "tranche rollback web -n " + s.ns + " --push"})
	s.says(0, "status web", "2 pods not created: exceeded quota: no-room")
	room()
}

// A release goes back by itself, and its revert is applied before all pods are back. Receivers
// get the failure of its commit, with the cause, and the success of the revert.
func TestNotified_WrittenBack(t *testing.T) {
	t.Parallel()
	s := envOf(t, "web")
	h, server := newHeard(t)
	file := filepath.Join(t.TempDir(), "notifications.yaml")
	s.must(os.WriteFile(file, fmt.Appendf(nil, "receivers:\n"+
		"- {name: hook, type: webhook, url: %q, namespaces: [%s], reasons: [WaitingForApproval, RolledBack]}\n"+
		"- {name: forge, type: github, url: %q, token: t, repository: shop/web, namespaces: [%s]}\n", server.URL, s.ns, server.URL, s.ns), 0o600))
	s.process(s.ownOnly(), "--notification-config", file)
	s.follow("source", ".", s.own, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true} })
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("deployment.yaml", "web:v1", "web:broken")
	failed := s.push("web: a broken one")
	s.waitFor("web", "Upgrading", 0, map[string]int32{"v1": 8, "broken": 2})
	room := s.noRoom() // no pod comes back
	s.replace("release.yaml", "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 5\n    onFailure: Rollback\n")
	s.push("a short deadline")
	revert := ""
	clustertest.Wait(t, "the revert to be applied during the rollback", func() error {
		br := s.release("web")
		if revert = br.Spec.Commit; revert == failed || br.Status.ObservedGeneration != br.Generation || !br.Status.RollingBack {
			return fmt.Errorf("commit %s, %s: %s", revert, br.Status.Reason, br.Status.Message)
		}
		return nil
	})
	room()
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.hears(h, "RolledBack", map[string]string{
		"release": "web", "commit": failed, "state": "Failed", "message": ": step 0 made no progress in time: ", "rollback": "true",
	})
	s.status(h, failed, s.ns+"/web", "failure")
	s.status(h, revert, s.ns+"/web", "success")
	if n := len(h.all()); n != 1 {
		t.Errorf("heard %d notifications: %v", n, h.all())
	}
}

// A release has gone back by itself, and a person reverts it afterwards. The forge gets the success
// of the revert.
func TestNotified_RevertedLater(t *testing.T) {
	t.Parallel()
	s := envOf(t, "web")
	h, server := newHeard(t)
	file := filepath.Join(t.TempDir(), "notifications.yaml")
	s.must(os.WriteFile(file, fmt.Appendf(nil, "receivers:\n- {name: forge, type: github, url: %q, token: t, repository: shop/web, "+
		"namespaces: [%s]}\n", server.URL, s.ns), 0o600))
	s.replace("release.yaml", "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 5\n    onFailure: Rollback\n")
	s.push("go back when it fails")
	s.process(s.ownOnly(), "--notification-config", file)
	s.follow("source", ".", s.own)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("deployment.yaml", "web:v1", "web:broken")
	failed := s.push("web: a broken one")
	s.waitFor("web", "RolledBack", 2, map[string]int32{"v1": 10})
	s.status(h, failed, s.ns+"/web", "failure")
	s.replace("deployment.yaml", "web:broken", "web:v1")
	revert := s.push("Revert a broken one")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.status(h, revert, s.ns+"/web", "success")
	s.status(h, failed, s.ns+"/web", "failure")
}

// status waits until a commit has a status of that name.
func (s *env) status(h *heard, commit, name, want string) {
	s.Helper()
	clustertest.Wait(s, "the status "+name+" of "+commit, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if got := h.statuses[commit+" tranche/"+name]; got != want {
			return fmt.Errorf("it is %q: %v", got, h.statuses)
		}
		return nil
	})
}
