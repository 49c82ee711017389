package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// room is a chat room.
type room struct {
	mu       sync.Mutex
	notified []string // reasons
}

// A newcomer's first two days, by the commands of the documents alone. They run on a
// cluster with a Git server and a chat room.
func TestTwoDays(t *testing.T) {
	t.Parallel()
	play(t, []string{"testdata/twodays.txtar"}, func(t testing.TB, _ string) *script {
		c := clustertest.Start(t)
		s := &script{env: &env{TB: t, c: c, ns: "shop"}, source: "shop", kubeconfig: c.Kubeconfig, room: &room{}}
		s.repository("web")
		s.kubectl("delete", "clusterrolebinding", "tranche-applier") // a newcomer's cluster has none
		git := gittest.Serve(t, filepath.Dir(s.bare), gittest.ServeOptions{Username: "ada", Password: "s3cret"})
		chat := httptest.NewServer(http.HandlerFunc(s.room.receive))
		t.Cleanup(chat.Close)
		s.setup = func(e *testscript.Env) error {
			url, notifications := git.URL+"/"+filepath.Base(s.bare), fmt.Sprintf("receivers:\n- {name: room, type: webhook, url: %q}\n", chat.URL)
			e.Setenv("URL", url)
			e.Cd = e.WorkDir
			return errors.Join(
				os.WriteFile(filepath.Join(e.WorkDir, "notifications.yaml"), []byte(notifications), 0o600),
				exec.Command("git", "-C", filepath.Join(e.WorkDir, "repo"), "remote", "set-url", "origin",
					strings.Replace(url, "http://", "http://ada:s3cret@", 1)).Run(),
			)
		}
		return s
	})
}

// receive takes a notification.
func (r *room) receive(_ http.ResponseWriter, q *http.Request) {
	var event struct{ Type string }
	if err := json.NewDecoder(q.Body).Decode(&event); err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notified = append(r.notified, event.Type[strings.LastIndex(event.Type, ".")+1:])
	}
}

// isNotified waits until the chat room has received these reasons.
func (s *script) isNotified(args []string) {
	clustertest.Wait(s, "notifications", func() error {
		s.room.mu.Lock()
		defer s.room.mu.Unlock()
		for _, reason := range args {
			if !slices.Contains(s.room.notified, reason) {
				return fmt.Errorf("not notified of %s, but of %v", reason, s.room.notified)
			}
		}
		return nil
	})
}
