package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// failing is a test that keeps what it is failed with.
type failing struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (f *failing) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *failing) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

// The watcher sees a fight on a live server, and pods taken away. Each is brought about
// by hand with no controller there.
func TestWatcherFails(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)}
	f := &failing{TB: t}
	w := c.Watch(f, s.ns)
	s.install(4)
	s.change(func(d *appsv1.Deployment) {
		d.Labels = map[string]string{v1alpha1.LabelHeld: "true"}
		d.Spec.Paused, d.Spec.Strategy = true, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	})
	resizeAsRollout(s, "v1", 2)
	clustertest.Wait(t, "the native controller to fight (H1)", func() error {
		if w.Fights() == 0 {
			return fmt.Errorf("sizes %v", s.sizes())
		}
		return nil
	})
	if w.Judged("I1") != 1 {
		t.Errorf("I1 was judged %d times\n%s", w.Judged("I1"), w.Timeline())
	}
	for _, end := range f.cleanups {
		end()
	}
	for _, want := range []string{"I10: the native controller resized", "I1: ReplicaSet web-", "timeline:\n", "2 → 4"} {
		if got := strings.Join(f.errors, "\n"); !strings.Contains(got, want) {
			t.Errorf("the watcher says %q, and not %q", got, want)
		}
	}
}

// resizeAsRollout resizes a ReplicaSet as Tranche's controller does. The status of the
// ReplicaSet may be written meanwhile.
func resizeAsRollout(s *env, tag string, n int32) {
	s.Helper()
	clustertest.Wait(s, "the write of "+tag, func() error {
		rs := s.set(tag)
		rs.Spec.Replicas = &n
		return s.c.Client.Update(s.Context(), rs, client.FieldOwner(v1alpha1.ManagerRollout))
	})
}

// forge writes a status that says that all gates have opened, as the controller's
// account and field manager.
func (s *env) forge() {
	s.Helper()
	c, err := client.New(s.c.Controller, client.Options{Scheme: s.c.Scheme})
	s.must(err)
	clustertest.Wait(s, "the forged status", func() error {
		br := s.release()
		br.Status.CurrentStepIndex, br.Status.CurrentStepReplicas = 2, ptr.To(intstr.FromString("100%"))
		br.Status.OpenedReplicas = []intstr.IntOrString{intstr.FromString("100%")}
		br.Status.Approvals = []v1alpha1.StepApproval{{Step: 0, By: "Ada", Time: metav1.Now()}, {Step: 1, By: "Ada", Time: metav1.Now()}}
		return c.Status().Update(s.Context(), br, client.FieldOwner(v1alpha1.ManagerRollout))
	})
}

// The watcher counts gates by itself. A status that says that all of them have opened
// does not move it. The growth may be by hand or by a controller that believes the
// status. An approval does move it.
func TestWatcherCountsGates(t *testing.T) {
	t.Parallel()
	for name, grow := range map[string]func(s *env, stop func()){
		"by hand": func(s *env, stop func()) {
			stop()
			s.forge()
			s.resize("v1", 2)
			resizeAsRollout(s, "v2", 2)
		},
		"by the controller": func(s *env, _ func()) {
			s.forge()
			s.become(map[string]int32{"v2": 4})
		},
		"approved": func(s *env, _ func()) {
			s.approve(1)
			s.become(map[string]int32{"v2": 4})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := clustertest.Shared(t)
			s := &env{T: t, c: c, ns: c.Namespace(t)}
			f := &failing{TB: t}
			w := c.Watch(f, s.ns)
			stop := startControllerIn(t, c, s.ns)
			s.install(4)
			s.plan("1", "50%", "100%")
			s.completed("web")
			s.bring("v2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
			grow(s, stop)
			if w.Judged("I3") < 2 {
				t.Errorf("I3 was judged %d times\n%s", w.Judged("I3"), w.Timeline())
			}
			for _, end := range f.cleanups {
				end()
			}
			got := strings.Join(f.errors, "\n")
			if forged := name != "approved"; forged != strings.Contains(got, "I3: ReplicaSet web-") || !forged && got != "" {
				t.Errorf("the watcher says %q\n%s", got, w.Timeline())
			}
		})
	}
}

// ending is a client whose watches can be made to end, as those of an API server that
// restarts do. It is a while until such a server serves all kinds again, the CRDs' last.
type ending struct {
	client.WithWatch
	mu      sync.Mutex
	watches []watch.Interface
	down    bool // no BatchReleases are to be had
}

func (e *ending) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	e.mu.Lock()
	down := e.down
	e.mu.Unlock()
	if _, ok := list.(*v1alpha1.BatchReleaseList); ok && down {
		return errors.New("not served yet")
	}
	return e.WithWatch.List(ctx, list, opts...)
}

func (e *ending) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	w, err := e.WithWatch.Watch(ctx, list, opts...)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		e.watches = append(e.watches, w)
	}
	return w, err
}

// end ends all watches.
func (e *ending) end(down bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = down
	for _, w := range e.watches {
		w.Stop()
	}
}

// begun waits until so many watches have begun.
func (e *ending) begun(t *testing.T, want int) {
	t.Helper()
	clustertest.Wait(t, fmt.Sprintf("%d watches", want), func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.watches) != want {
			return fmt.Errorf("%d watches", len(e.watches))
		}
		return nil
	})
}

// A watch that ends goes on with what is there by then, and judges what follows.
func TestWatcherGoesOn(t *testing.T) {
	t.Parallel()
	c := *clustertest.Shared(t)
	e := &ending{WithWatch: c.Client}
	c.Client = e
	s := &env{T: t, c: &c, ns: c.Namespace(t)}
	f := &failing{TB: t}
	w := c.Watch(f, s.ns)
	s.create("web", 2)
	s.become(map[string]int32{"v1": 2})
	e.begun(t, 4)
	e.end(false)
	e.begun(t, 8)
	s.nativeHasSeen("web")
	s.change(func(d *appsv1.Deployment) {
		d.Labels = map[string]string{v1alpha1.LabelHeld: "true"}
		d.Spec.Paused, d.Spec.Strategy = true, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	})
	clustertest.Wait(t, "the hold to be seen", func() error {
		if w.Judged("I8") == 0 {
			return errors.New(w.Timeline())
		}
		return nil
	})
	resizeAsRollout(s, "v1", 1)
	clustertest.Wait(t, "the fight to be seen (H1)", func() error {
		if w.Fights() == 0 {
			return errors.New(w.Timeline())
		}
		return nil
	})
	for _, end := range f.cleanups {
		end()
	}
	if len(f.errors) != 1 {
		t.Errorf("the watcher says %q", f.errors)
	}
}

// The watcher does not judge events from while one of its watches is down: it has not
// seen the status that allowed them. It judges those that follow.
func TestWatcherMisses(t *testing.T) {
	t.Parallel()
	c := *clustertest.Shared(t)
	e := &ending{WithWatch: c.Client}
	c.Client = e
	s := &env{T: t, c: &c, ns: c.Namespace(t)}
	f := &failing{TB: t}
	w := c.Watch(f, s.ns)
	startControllerIn(t, &c, s.ns)
	s.install(4)
	s.plan("1", "50%", "100%")
	s.completed("web")
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	e.end(true)
	e.begun(t, 7)
	s.approve(0)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 1, map[string]int32{"v1": 2, "v2": 2})
	e.end(false)
	e.begun(t, 11)
	judged := w.Judged("I3")
	s.approve(1)
	s.rolled("web", 4)
	if w.Judged("I3") == judged {
		t.Errorf("I3 was not judged again\n%s", w.Timeline())
	}
	for _, end := range f.cleanups {
		end()
	}
	if len(f.errors) > 0 {
		t.Errorf("the watcher says %q", f.errors)
	}
}
