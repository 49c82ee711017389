package clustertest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Watcher watches the Deployments and ReplicaSets of a namespace from outside
// the controller, and fails the test with the timeline if an invariant breaks:
// I2, I3 and I10 at every event. It counts the writes, too.
type Watcher struct {
	t  testing.TB
	c  *Cluster
	mu sync.Mutex

	deployments map[string]*appsv1.Deployment
	sets        map[string]*appsv1.ReplicaSet
	releases    map[string]*v1alpha1.BatchRelease
	timeline    []string
	broken      []string
	writes      map[string]int
}

// Watch starts a watcher that ends with the test.
func (c *Cluster) Watch(t testing.TB, namespace string) *Watcher {
	t.Helper()
	w := &Watcher{
		t: t, c: c, deployments: map[string]*appsv1.Deployment{}, sets: map[string]*appsv1.ReplicaSet{},
		releases: map[string]*v1alpha1.BatchRelease{}, writes: map[string]int{},
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &v1alpha1.BatchReleaseList{}} {
		events, err := c.Client.Watch(ctx, list, client.InNamespace(namespace))
		if err != nil {
			t.Fatalf("watching %T: %v", list, err)
		}
		running.Go(func() {
			for e := range events.ResultChan() {
				w.see(e)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.broken) > 0 {
			t.Errorf("invariants broken:\n%s\ntimeline:\n%s", strings.Join(w.broken, "\n"), strings.Join(w.timeline, "\n"))
		}
	})
	return w
}

// Writes returns how often objects of a kind, by a manager, have changed.
func (w *Watcher) Writes(kind, manager string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes[kind+" "+manager]
}

// Timeline returns what has been seen.
func (w *Watcher) Timeline() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.timeline, "\n")
}

func (w *Watcher) see(e watch.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o := e.Object.(type) {
	case *appsv1.Deployment:
		old := w.deployments[o.Name]
		w.deployments[o.Name] = o
		if old == nil || old.Generation != o.Generation {
			w.note("Deployment", o, fmt.Sprintf("N=%d paused=%t strategy=%s held=%t", *o.Spec.Replicas, o.Spec.Paused, o.Spec.Strategy.Type, held(o)))
		}
	case *appsv1.ReplicaSet:
		w.seeReplicaSet(e.Type, o)
	case *v1alpha1.BatchRelease:
		w.releases[o.Spec.WorkloadRef.Name] = o
		w.note("BatchRelease", o, fmt.Sprintf("step %d %s %s: %s", o.Status.CurrentStepIndex, o.Status.CurrentStepState, o.Status.Reason, o.Status.Message))
	}
}

func (w *Watcher) seeReplicaSet(event watch.EventType, rs *appsv1.ReplicaSet) {
	if event == watch.Deleted {
		delete(w.sets, rs.Name)
		return
	}
	old := w.sets[rs.Name]
	w.sets[rs.Name] = rs
	if old != nil && old.Generation == rs.Generation && *old.Spec.Replicas == *rs.Spec.Replicas {
		return
	}
	from := int32(0)
	if old != nil {
		from = *old.Spec.Replicas
	}
	w.note("ReplicaSet", rs, fmt.Sprintf("%d → %d", from, *rs.Spec.Replicas))
	owner := metav1.GetControllerOf(rs)
	if owner == nil {
		return
	}
	d := w.deployments[owner.Name]
	if d == nil || !held(d) || from == *rs.Spec.Replicas {
		return
	}
	if m := lastManager(rs); m != v1alpha1.ManagerRollout && rs.CreationTimestamp.Time.Before(time.Now()) {
		w.fail("I10: %s resized ReplicaSet %s of a held Deployment from %d to %d", m, rs.Name, from, *rs.Spec.Replicas)
	}
	if *rs.Spec.Replicas > from {
		w.checkTotal(d)
	}
	w.checkTarget(d, rs, from)
}

// checkTotal checks I2.
func (w *Watcher) checkTotal(d *appsv1.Deployment) {
	var total int32
	for _, rs := range w.sets {
		if owner := metav1.GetControllerOf(rs); owner != nil && owner.UID == d.UID {
			total += *rs.Spec.Replicas
		}
	}
	br := w.releases[d.Name]
	if br == nil {
		return
	}
	strategy := br.Spec.DeploymentStrategy
	surge, _, err := plan.Bounds(strategy, *d.Spec.Replicas)
	if err != nil {
		w.fail("reading the strategy of %s: %v", d.Name, err)
	}
	if most := *d.Spec.Replicas + max(surge, 1); total > most {
		w.fail("I2: %d pods of Deployment %s, more than %d", total, d.Name, most)
	}
}

// checkTarget checks I3 where a ReplicaSet of the update revision grows. The
// status that opened the step was written first, but its event may come later
// than this one: before the verdict the release is read again.
func (w *Watcher) checkTarget(d *appsv1.Deployment, rs *appsv1.ReplicaSet, from int32) {
	br := w.releases[d.Name]
	if br == nil || *rs.Spec.Replicas <= from || w.withinTarget(br, d, rs) {
		return
	}
	var now v1alpha1.BatchRelease
	if err := w.c.Client.Get(context.Background(), client.ObjectKeyFromObject(br), &now); err != nil || w.withinTarget(&now, d, rs) {
		return
	}
	w.fail("I3: %d pods run %s at step %d of %s", *rs.Spec.Replicas, now.Status.UpdateRevision, now.Status.CurrentStepIndex, now.Name)
}

func (w *Watcher) withinTarget(br *v1alpha1.BatchRelease, d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	i := int(br.Status.CurrentStepIndex)
	if br.Status.RollingBack || i >= len(br.Spec.Strategy.Steps) || rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != br.Status.UpdateRevision {
		return true
	}
	return *rs.Spec.Replicas <= plan.Limit(br.Spec.Strategy.Steps[i].Replicas, *d.Spec.Replicas)
}

func held(d *appsv1.Deployment) bool { return d.Labels[v1alpha1.LabelHeld] != "" }

func (w *Watcher) fail(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
	w.timeline = append(w.timeline, "    BROKEN "+fmt.Sprintf(format, args...))
}

func (w *Watcher) note(kind string, o client.Object, what string) {
	manager := lastManager(o)
	w.writes[kind+" "+manager]++
	w.timeline = append(w.timeline, fmt.Sprintf("%s %s %s by %s: %s", time.Now().Format("15:04:05.000"), kind, o.GetName(), manager, what))
}

// lastManager returns who wrote an object last, but for its status.
func lastManager(o client.Object) string {
	var last metav1.ManagedFieldsEntry
	for _, e := range o.GetManagedFields() {
		if e.Subresource == "" && e.Time != nil && (last.Time == nil || !e.Time.Before(last.Time)) {
			last = e
		}
	}
	return last.Manager
}
