package share_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/rollout/share"
)

// controller is workers on a queue, as controller-runtime has them.
type controller struct {
	*testing.T
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu      sync.Mutex
	running map[string]int
	most    map[string]int                  // at the same time, of each namespace
	last    map[reconcile.Request]time.Time // when its last reconciliation began
}

// start starts the workers. Each reconciliation lasts as long as its namespace says.
func start(t *testing.T, workers int, lasts map[string]time.Duration) *controller {
	c := &controller{T: t, running: map[string]int{}, most: map[string]int{}, last: map[reconcile.Request]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())}
	s := share.New(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
		c.count(req, 1)
		time.Sleep(lasts[req.Namespace])
		c.count(req, -1)
		return reconcile.Result{}, nil
	}), workers)
	if err := s.Source().Start(t.Context(), c.queue); err != nil {
		t.Fatal(err)
	}
	for range workers {
		go func() {
			for {
				req, over := c.queue.Get()
				if over {
					return
				}
				if _, err := s.Reconcile(t.Context(), req); err != nil {
					t.Error(err)
				}
				c.queue.Done(req)
			}
		}()
	}
	return c
}

func (c *controller) count(req reconcile.Request, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[req.Namespace] += n
	c.most[req.Namespace] = max(c.most[req.Namespace], c.running[req.Namespace])
	if n > 0 {
		c.last[req] = time.Now()
	}
}

func (c *controller) reconciled(req reconcile.Request) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[req]
}

func request(namespace string, i int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("web-", i)}}
}

// A namespace whose reconciliations take long has its share, and another one goes on.
func TestReconciler_SlowNamespace(t *testing.T) {
	for workers, most := range map[int]int{2: 1, 3: 2, 4: 2, 10: 5} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, workers, map[string]time.Duration{"slow": time.Hour})
				defer c.queue.ShutDown()
				for i := range 50 {
					c.queue.Add(request("slow", i))
				}
				synctest.Wait()
				began := time.Now()
				for i := range 50 {
					c.queue.Add(request("fast", i))
				}
				synctest.Wait()
				for i := range 50 {
					if at := c.reconciled(request("fast", i)); !at.Equal(began) {
						t.Errorf("fast %d was reconciled at %s", i, at)
					}
				}
				if c.most["slow"] != most {
					t.Errorf("%d of %d workers were slow, want %d", c.most["slow"], workers, most)
				}
				time.Sleep(51 * time.Hour)
				for i := range 50 {
					if c.reconciled(request("slow", i)).IsZero() {
						t.Errorf("slow %d was not reconciled", i)
					}
				}
			})
		})
	}
}

// Some slow namespaces leave one reconciliation for a further one.
func TestReconciler_SlowNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 10, map[string]time.Duration{"a": time.Hour, "b": time.Hour, "c": time.Hour})
		defer c.queue.ShutDown()
		for i := range 20 {
			for _, namespace := range []string{"a", "b", "c"} {
				c.queue.Add(request(namespace, i))
				synctest.Wait()
			}
		}
		began := time.Now()
		c.queue.Add(request("fast", 0))
		synctest.Wait()
		if at := c.reconciled(request("fast", 0)); !at.Equal(began) {
			t.Errorf("fast was reconciled at %s, and %v run", at, c.running)
		}
		time.Sleep(61 * time.Hour)
		for i := range 20 {
			for _, namespace := range []string{"a", "b", "c"} {
				if c.reconciled(request(namespace, i)).IsZero() {
					t.Errorf("%s %d was not reconciled", namespace, i)
				}
			}
		}
	})
}

// One worker is no share: it takes one request after the other.
func TestReconciler_OneWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 1, map[string]time.Duration{"slow": time.Second})
		defer c.queue.ShutDown()
		for i := range 5 {
			c.queue.Add(request("slow", i))
		}
		time.Sleep(10 * time.Second)
		for i := range 5 {
			if c.reconciled(request("slow", i)).IsZero() {
				t.Errorf("slow %d was not reconciled", i)
			}
		}
	})
}

// A later request passes none that waits, also if it comes just when a place is free.
func TestReconciler_InTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 4, map[string]time.Duration{"a": time.Second})
		defer c.queue.ShutDown()
		for i := range 6 {
			c.queue.Add(request("a", i))
			synctest.Wait()
		}
		for i := range 100 {
			time.Sleep(500 * time.Millisecond)
			c.queue.Add(request("a", 6+i))
		}
		time.Sleep(time.Minute)
		for i := range 105 {
			if c.reconciled(request("a", i)).After(c.reconciled(request("a", i+1))) {
				t.Errorf("%d began at %s, after %d", i, c.reconciled(request("a", i)), i+1)
			}
		}
	})
}

// No request is lost: each is reconciled after it was asked for last.
func TestReconciler_LosesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, 4, map[string]time.Duration{"a": 3 * time.Second, "b": time.Second, "c": 0})
		defer c.queue.ShutDown()
		r := rand.New(rand.NewPCG(1, 2))
		asked := map[reconcile.Request]time.Time{}
		for range 2000 {
			req := request(string("abc"[r.IntN(3)]), r.IntN(12))
			asked[req] = time.Now()
			c.queue.Add(req)
			time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		}
		time.Sleep(time.Hour)
		for req, at := range asked {
			if c.reconciled(req).Before(at) {
				t.Errorf("%s was asked for at %s, and reconciled last at %s", req, at, c.reconciled(req))
			}
		}
		for namespace, most := range c.most {
			if most > 2 {
				t.Errorf("%d of 4 workers were of namespace %s", most, namespace)
			}
		}
	})
}
