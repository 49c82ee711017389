package gitsync_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// No write of a ConfigMap ends in one namespace, as behind a slow admission webhook. It has more
// sources than may be worked on at a time. A push to another namespace and its revert are applied
// meanwhile. Each slow source is applied once its writes end.
func TestSlowWritesKeepNobodyWaiting(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	slow := s.c.Namespace(t)
	freed := make(chan struct{})
	free := sync.OnceFunc(func() { close(freed) })
	var hanging atomic.Int32
	config := rest.CopyConfig(s.c.Controller)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/"+slow+"/configmaps") {
				hanging.Add(1)
				select {
				case <-freed:
				case <-r.Context().Done():
				}
			}
			return next.RoundTrip(r)
		})
	})
	const concurrent, sources = 2, 6
	t.Cleanup(s.startManager(config, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{
			Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: concurrent, NoRemoteBases: true, FileRoots: []string{os.TempDir()},
		})
	}, slow))
	pushSlow(s, sources)
	s.source()
	s.holds("a", "one")
	makeSlow(s, slow, sources)
	t.Cleanup(free) // before the ends of the sources
	clustertest.Wait(t, "the slow writes", func() error {
		if n := hanging.Load(); n < concurrent {
			return fmt.Errorf("%d hang", n)
		}
		return nil
	})
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	s.holds("a", "two")
	s.repo.Revert("HEAD")
	s.repo.Push()
	s.holds("a", "one")
	if n := hanging.Load(); n != concurrent {
		t.Errorf("%d writes hang, and those of %d sources may", n, concurrent)
	}
	free()
	slowApplied(s, slow, sources)
}
