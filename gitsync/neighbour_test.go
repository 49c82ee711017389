package gitsync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/sandbox"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// slowFor renders in a pool. The folders of one tenant are not read before they are let go.
type slowFor struct {
	*sandbox.Pool
	tenant string
	let    chan struct{}
	begun  atomic.Int32
	ended  atomic.Int32
}

func (r *slowFor) Render(tenant string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	if tenant != r.tenant {
		return r.Pool.Render(tenant, fsys, dir, opts)
	}
	objects, err := r.Pool.Render(tenant, slowTree{fsys, r}, dir, opts)
	if _, ok := errors.AsType[interface {
		error
		Free() <-chan struct{}
	}](err); !ok {
		r.ended.Add(1)
	}
	return objects, err
}

type slowTree struct {
	filesys.FileSystem
	of *slowFor
}

func (t slowTree) ReadFile(name string) ([]byte, error) {
	t.of.begun.Add(1)
	<-t.of.let
	return t.FileSystem.ReadFile(name)
}

// Ten sources of a namespace have folders that do not end to render. A push to a source
// of another namespace is applied meanwhile, though fewer sources than ten are synced at
// the same time. The ten are applied once their folders can be rendered: each gets its
// turn, and none waits for its interval.
func TestSlowTenantKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	slow := s.c.Namespace(t)
	command, err := sandbox.Command(renderWorker)
	s.must(err)
	in := &slowFor{Pool: sandbox.NewPool(sandbox.Options{Command: command, Workers: 3, Memory: 256 << 20, Timeout: clustertest.Within, Log: ctrl.Log}), tenant: slow, let: make(chan struct{})}
	let := sync.OnceFunc(func() { close(in.let) })
	t.Cleanup(in.Close)
	t.Cleanup(s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: in, StorageDir: t.TempDir(), Concurrent: 4, NoRemoteBases: true, FileRoots: []string{os.TempDir()}})
	}, slow))
	t.Cleanup(let)
	const sources = 10
	pushSlow(s, sources)
	s.source()
	s.holds("a", "one")
	makeSlow(s, slow, sources)
	clustertest.Wait(t, "the slow tenant to have all the places that it may have", func() error {
		if n := in.begun.Load(); n < 2 {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	s.holds("a", "two")
	if n := in.ended.Load(); n > 0 {
		t.Errorf("%d renderings of the slow tenant had ended before", n)
	}

	let()
	slowApplied(s, slow, sources)
}

// pushSlow pushes a folder of the test's own source, and those of some slow ones.
func pushSlow(s *env, sources int) {
	s.Helper()
	files := map[string]string{"deploy/a.yaml": configMap("a", "one")}
	for i := range sources {
		files[fmt.Sprintf("slow/%d/a.yaml", i)] = configMap(fmt.Sprintf("slow-%d", i), "one")
	}
	s.push(files)
}

// makeSlow makes the slow sources in a namespace.
func makeSlow(s *env, namespace string, sources int) {
	s.Helper()
	for i := range sources {
		gs := &v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("slow-%d", i), Namespace: namespace},
			Spec: v1alpha1.GitSourceSpec{
				URL: s.repo.URL(), Path: fmt.Sprintf("slow/%d", i), Ref: v1alpha1.GitReference{Branch: "main"},
				Interval: metav1.Duration{Duration: time.Hour}, Timeout: metav1.Duration{Duration: 10 * time.Second},
			},
		}
		s.must(s.c.Client.Create(s.Context(), gs))
		s.Cleanup(func() { s.must(s.c.Client.Delete(context.Background(), gs)) })
	}
}

// slowApplied waits until all slow sources are applied.
func slowApplied(s *env, namespace string, sources int) {
	s.Helper()
	for i := range sources {
		name := fmt.Sprintf("slow-%d", i)
		clustertest.Wait(s, "ConfigMap "+name, func() error {
			return s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &corev1.ConfigMap{})
		})
	}
}
