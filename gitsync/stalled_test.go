package gitsync_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// silent is a server that takes connections and never answers. It counts those that are
// open.
func silent(t *testing.T) (address string, open *atomic.Int32) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	open = &atomic.Int32{}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Add(1)
			go func() {
				defer open.Add(-1)
				defer c.Close()
				for b := make([]byte, 1024); ; {
					if _, err := c.Read(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), open
}

// Thirty sources of a namespace wait for a server that never answers, more than are
// worked on at the same time. A push to a source of another namespace is applied
// meanwhile. When the thirty are deleted, nothing waits for the server any more.
func TestStalledServerKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stalled := s.c.Namespace(t)
	address, open := silent(t)
	const concurrent = 2
	t.Cleanup(s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: concurrent, NoRemoteBases: true, FileRoots: []string{os.TempDir()}})
	}, stalled))
	var sources []client.Object
	for i := range 30 {
		sources = append(sources, &v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("stalled-%d", i), Namespace: stalled},
			Spec: v1alpha1.GitSourceSpec{
				URL: fmt.Sprintf("http://%s/%d.git", address, i), Ref: v1alpha1.GitReference{Branch: "main"},
				Interval: metav1.Duration{Duration: time.Second}, Timeout: metav1.Duration{Duration: time.Hour},
			},
		})
		s.must(s.c.Client.Create(t.Context(), sources[i]))
	}
	clustertest.Wait(t, "the sources to wait for the server", func() error {
		if n := open.Load(); n < 2*concurrent {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})

	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source()
	s.holds("a", "one")
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	s.holds("a", "two")
	if open.Load() < 2*concurrent {
		t.Errorf("%d sources wait for the server: it was not in the way", open.Load())
	}

	for _, gs := range sources {
		s.must(s.c.Client.Delete(t.Context(), gs))
	}
	for _, gs := range sources {
		clustertest.Wait(t, "GitSource "+gs.GetName()+" to be gone", func() error {
			err := s.c.Client.Get(t.Context(), client.ObjectKeyFromObject(gs), gs)
			if err == nil {
				return errors.New("it is there")
			}
			return client.IgnoreNotFound(err)
		})
	}
	clustertest.Wait(t, "the connections to end", func() error {
		if n := open.Load(); n > 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
}
