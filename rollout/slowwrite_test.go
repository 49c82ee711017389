package rollout_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// No write of a ReplicaSet ends in one namespace, and it has more releases than there are
// reconciliations at a time, which are four. A release and a rollback of another namespace go on.
func TestSlowWritesOfANamespace(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	slow, other := newField(t, c, 6, 2), newEnv(t)
	var armed atomic.Bool
	var hanging atomic.Int32
	freed := make(chan struct{})
	free := sync.OnceFunc(func() { close(freed) })
	startReconciler(t, c, slow.ns, rollout.Options{Concurrent: 2}, func(o *ctrl.Options) {
		o.Cache.DefaultNamespaces[other.ns] = cache.Config{}
	}, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			writes := r.Method != http.MethodGet && !r.URL.Query().Has("dryRun")
			if writes && armed.Load() && strings.Contains(r.URL.Path, "/"+slow.ns+"/replicasets") {
				hanging.Add(1)
				select {
				case <-freed:
				case <-r.Context().Done():
				}
			}
			return next.RoundTrip(r)
		})
	})
	t.Cleanup(free)
	slow.plan([]string{"100%"}, "v1")
	other.install(4)
	other.plan("1", "100%")
	other.completed("web")
	armed.Store(true)
	slow.bring("v2")
	clustertest.Wait(t, "the slow writes", func() error {
		if n := hanging.Load(); n < 2 {
			return fmt.Errorf("%d hang", n)
		}
		return nil
	})
	other.bring("v2")
	other.waitFor("WaitingForApproval", 0, map[string]int32{"v1": 3, "v2": 1})
	other.bring("v1")
	other.waitFor("ReleaseCompleted", 1, map[string]int32{"v1": 4})
	if n := hanging.Load(); n != 2 {
		t.Errorf("%d writes hang at 4 reconciliations at a time", n)
	}
	free()
	slow.completed()
}

// A write of a ReplicaSet does not end, as behind a slow admission webhook for one namespace.
// A release and a rollback of another namespace go on.
func TestSlowWriteElsewhere(t *testing.T) {
	t.Parallel()
	slow, other := newEnv(t), newEnv(t)
	var armed atomic.Bool
	begun, freed := make(chan struct{}), make(chan struct{})
	free := sync.OnceFunc(func() { close(freed) })
	startReconciler(t, slow.c, slow.ns, rollout.Options{Concurrent: 4}, func(o *ctrl.Options) {
		o.Cache.DefaultNamespaces[other.ns] = cache.Config{}
	}, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			writes := r.Method != http.MethodGet && !r.URL.Query().Has("dryRun")
			if writes && strings.Contains(r.URL.Path, "/"+slow.ns+"/replicasets") && armed.CompareAndSwap(true, false) {
				close(begun)
				select {
				case <-freed:
				case <-r.Context().Done():
				}
			}
			return next.RoundTrip(r)
		})
	})
	t.Cleanup(free)
	for _, s := range []*env{slow, other} {
		s.install(4)
		s.plan("1", "100%")
		s.completed("web")
	}
	armed.Store(true)
	slow.bring("v2")
	clustertest.Wait(slow, "the slow write", func() error {
		select {
		case <-begun:
			return nil
		default:
			return errors.New("it has not begun")
		}
	})
	other.bring("v2")
	other.waitFor("WaitingForApproval", 0, map[string]int32{"v1": 3, "v2": 1})
	other.bring("v1")
	other.waitFor("ReleaseCompleted", 1, map[string]int32{"v1": 4})
	if got := slow.sizes(); got["v2"] > 0 {
		t.Errorf("the slow write has ended: %v", got)
	}
	free()
	slow.waitFor("WaitingForApproval", 0, map[string]int32{"v1": 3, "v2": 1})
	slow.approve(0)
	slow.waitFor("ReleaseCompleted", 1, map[string]int32{"v2": 4})
	slow.untouched()
}
