package gitsync_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A server keeps the questions of seven sources waiting, which are more than there are
// workers. A push to another source of the same namespace is applied meanwhile. The seven are
// applied once the server has answered.
func TestSlowServer_KeepsNoSourceWaiting(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly) // two workers
	const sources = 7
	slow := gittest.NewRepo(t)
	files := map[string]string{}
	for i := range sources {
		files[fmt.Sprintf("%d/a.yaml", i)] = configMap(fmt.Sprintf("slow-%d", i), "one")
		alias := filepath.Join(filepath.Dir(slow.Bare), fmt.Sprintf("slow-%d.git", i)) // so that each has a mirror of its own
		s.must(os.Symlink(slow.Bare, alias))
	}
	slow.CommitAndPush(files)
	answers := make(chan struct{})
	let := sync.OnceFunc(func() { close(answers) })
	var waiting atomic.Int32
	server := gittest.Serve(t, filepath.Dir(slow.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			waiting.Add(1)
			<-answers
			waiting.Add(-1)
			h.ServeHTTP(w, r)
		})
	}})
	t.Cleanup(let) // before the server is closed, which waits for its answers
	for i := range sources {
		name := fmt.Sprintf("slow-%d", i)
		s.must(s.c.Client.Create(t.Context(), &v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns},
			Spec: v1alpha1.GitSourceSpec{
				URL: server.URL + "/" + name + ".git", Path: fmt.Sprint(i), Ref: v1alpha1.GitReference{Branch: "main"},
				Interval: metav1.Duration{Duration: time.Hour}, Timeout: metav1.Duration{Duration: clustertest.Within},
			},
		}))
		t.Cleanup(func() { s.end(name) })
	}
	t.Cleanup(let) // before the ends of the sources
	clustertest.Wait(t, "all to wait for the server", func() error {
		if n := waiting.Load(); n != sources {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source()
	s.holds("a", "one")
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	s.holds("a", "two")
	if n := waiting.Load(); n != sources {
		t.Errorf("%d sources still wait for the server, and %d were to", n, sources)
	}
	let()
	for i := range sources {
		s.holds(fmt.Sprintf("slow-%d", i), "one")
	}
}
