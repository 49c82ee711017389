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

// days is what the script of testdata/twodays.txtar runs in: a cluster, a Git server
// and a chat room.
type days struct {
	*script
	mu       sync.Mutex
	notified []string // reasons
}

// The first two days as a newcomer has them, by the commands of the documents alone.
func TestTwoDays(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	e := &env{TB: t, c: c, ns: "shop"}
	d := &days{script: &script{env: e, source: "shop", kubeconfig: c.Kubeconfig}}
	d.repository("web")
	d.kubectl("delete", "clusterrolebinding", "tranche-applier") // a newcomer's cluster has none
	git := gittest.Serve(t, filepath.Dir(d.bare), gittest.ServeOptions{Username: "ada", Password: "s3cret"})
	room := httptest.NewServer(http.HandlerFunc(d.receive))
	t.Cleanup(room.Close)
	d.play("testdata/twodays.txtar", map[string]func([]string){"notified": d.isNotified}, func(v *testscript.Env) error {
		url, notifications := git.URL+"/"+filepath.Base(d.bare), fmt.Sprintf("receivers:\n- {name: room, type: webhook, url: %q}\n", room.URL)
		v.Setenv("URL", url)
		v.Cd = v.WorkDir
		return errors.Join(
			os.WriteFile(filepath.Join(v.WorkDir, "notifications.yaml"), []byte(notifications), 0o600),
			exec.Command("git", "-C", filepath.Join(v.WorkDir, "repo"), "remote", "set-url", "origin", strings.Replace(url, "http://", "http://ada:s3cret@", 1)).Run(),
		)
	})
}

// receive is the chat room.
func (d *days) receive(_ http.ResponseWriter, r *http.Request) {
	var event struct{ Type string }
	if err := json.NewDecoder(r.Body).Decode(&event); err == nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.notified = append(d.notified, event.Type[strings.LastIndex(event.Type, ".")+1:])
	}
}

// isNotified waits until the chat room has received these reasons.
func (d *days) isNotified(args []string) {
	clustertest.Wait(d, "notifications", func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, reason := range args {
			if !slices.Contains(d.notified, reason) {
				return fmt.Errorf("not told of %s, but of %v", reason, d.notified)
			}
		}
		return nil
	})
}
