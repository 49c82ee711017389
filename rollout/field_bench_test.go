package rollout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// field is many Deployments in a namespace.
type field struct {
	testing.TB
	c        *clustertest.Cluster
	ns       string
	n        int
	replicas int32
	planned  bool // each has a plan
}

func newField(b testing.TB, c *clustertest.Cluster, n int, replicas int32) *field {
	b.Helper()
	f := &field{TB: b, c: c, ns: c.Namespace(b), n: n, replicas: replicas}
	r := f.observe("v1", false)
	for i := range n {
		name := fmt.Sprintf("web-%04d", i)
		f.must(c.Client.Create(b.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.ns},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Template: template(name, "v1"),
				Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
				RevisionHistoryLimit: ptr.To[int32](2), // so that no round has more ReplicaSets than the one before
			},
		}))
	}
	r.wait()
	return f
}

func (f *field) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *field) list(list client.ObjectList) {
	f.Helper()
	f.must(f.c.Client.List(f.Context(), list, client.InNamespace(f.ns)))
}

// plan gives every Deployment a plan whose gates open by themselves.
func (f *field) plan(steps []string, tag string) {
	f.Helper()
	f.planned = true
	f.write(steps, tag)
	f.completed()
}

// write writes the plans.
func (f *field) write(steps []string, tag string) {
	f.Helper()
	for i := range f.n {
		name := fmt.Sprintf("web-%04d", i)
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.ns}}
		br.Spec.WorkloadRef = v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
		br.Spec.Template, br.Spec.Commit = ptr.To(template(name, tag)), commitOf(tag)
		for i, replicas := range steps {
			step := v1alpha1.Step{Replicas: intstr.Parse(replicas)}
			if i < len(steps)-1 {
				step.Pause = &v1alpha1.Pause{}
			}
			br.Spec.Strategy.Steps = append(br.Spec.Strategy.Steps, step)
		}
		f.must(f.c.Client.Create(f.Context(), br))
	}
}

// bring brings a tag: by the plans, or natively where there are none.
func (f *field) bring(tag string) {
	f.Helper()
	for i := range f.n {
		name := fmt.Sprintf("web-%04d", i)
		meta, pods := metav1.ObjectMeta{Name: name, Namespace: f.ns}, template(name, tag)
		if f.planned {
			f.patch(&v1alpha1.BatchRelease{ObjectMeta: meta}, map[string]any{"template": pods, "commit": commitOf(tag)})
		} else {
			f.patch(&appsv1.Deployment{ObjectMeta: meta}, map[string]any{"template": pods})
		}
	}
}

// patch merges fields into the spec of an object.
func (f *field) patch(o client.Object, spec map[string]any) {
	f.Helper()
	text, err := json.Marshal(map[string]any{"spec": spec})
	f.must(err)
	f.must(f.c.Client.Patch(f.Context(), o, client.RawPatch(types.MergePatchType, text)))
}

// completed waits until all releases have ended.
func (f *field) completed() {
	f.Helper()
	for deadline := time.Now().Add(fieldWithin); ; <-time.After(time.Second) {
		var brs v1alpha1.BatchReleaseList
		f.list(&brs)
		open := slices.DeleteFunc(brs.Items, func(br v1alpha1.BatchRelease) bool {
			return br.Status.Reason == v1alpha1.ReasonReleaseCompleted && br.Status.ObservedGeneration == br.Generation
		})
		switch {
		case len(open) == 0:
			return
		case time.Now().After(deadline):
			f.Fatalf("%d releases have not ended; %s: %s", len(open), open[0].Name, open[0].Status.Message)
		}
	}
}

// fieldWithin is how long everything of a field may take.
const fieldWithin = 20 * time.Minute

// roll is a tag on its way to all pods of a field, as the watches of the API server show it.
type roll struct {
	*field
	tag        string
	began      time.Time
	took       time.Duration
	sizes      int // how often a ReplicaSet was made or got another size
	stop       context.CancelFunc
	sets, pods watch.Interface // pods: nil where they are not watched

	seen  map[string]map[string]*appsv1.ReplicaSet // by Deployment
	ready map[types.UID]bool
	done  map[string]bool // Deployments
	// sinceReady is when a pod of a Deployment became ready, and sinceCounted when a ReplicaSet
	// had more available pods. It is the first time since the last write of a ReplicaSet.
	sinceReady, sinceCounted map[string]time.Time
	afterReady, afterCounted []time.Duration // from then to the write

	changed func(*appsv1.ReplicaSet) // may be nil
}

// observe begins to watch, before the tag is brought.
func (f *field) observe(tag string, readiness bool) *roll {
	f.Helper()
	r := &roll{field: f, tag: tag, seen: map[string]map[string]*appsv1.ReplicaSet{}, ready: map[types.UID]bool{}, done: map[string]bool{},
		sinceReady: map[string]time.Time{}, sinceCounted: map[string]time.Time{}}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(f.Context())
	follow := func(list client.ObjectList) watch.Interface {
		f.list(list)
		since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}}
		w, err := f.c.Client.Watch(ctx, list, since, client.InNamespace(f.ns))
		f.must(err)
		return w
	}
	var sets appsv1.ReplicaSetList
	r.sets = follow(&sets)
	for i := range sets.Items {
		r.of(sets.Items[i].Labels["app"])[sets.Items[i].Name] = &sets.Items[i]
	}
	if readiness {
		var pods corev1.PodList
		r.pods = follow(&pods)
		for i := range pods.Items {
			r.ready[pods.Items[i].UID] = podReady(&pods.Items[i])
		}
	}
	r.began = time.Now()
	return r
}

// wait waits until all pods of all Deployments run the tag, and returns how long that took.
func (r *roll) wait() time.Duration {
	r.Helper()
	defer r.stop()
	var pods <-chan watch.Event
	if r.pods != nil {
		pods = r.pods.ResultChan()
	}
	for late := time.After(fieldWithin); len(r.done) < r.n; {
		select {
		case e, ok := <-r.sets.ResultChan():
			rs, is := e.Object.(*appsv1.ReplicaSet)
			if !ok || !is {
				r.Fatalf("the watch of ReplicaSets has ended: %+v", e.Object)
			}
			r.set(rs, e.Type == watch.Deleted)
		case e, ok := <-pods:
			p, is := e.Object.(*corev1.Pod)
			if !ok || !is {
				r.Fatalf("the watch of pods has ended: %+v", e.Object)
			}
			if now := podReady(p); now && !r.ready[p.UID] {
				r.ready[p.UID] = true
				begin(r.sinceReady, p.Labels["app"])
			}
		case <-late:
			r.Fatalf("after %s %d of %d Deployments run %s", time.Since(r.began), len(r.done), r.n, r.tag)
		}
	}
	r.took = time.Since(r.began)
	return r.took
}

// set takes in what a ReplicaSet is now.
func (r *roll) set(rs *appsv1.ReplicaSet, deleted bool) {
	name := rs.Labels["app"]
	before := r.of(name)[rs.Name]
	if deleted {
		delete(r.of(name), rs.Name)
		return
	}
	r.of(name)[rs.Name] = rs
	if r.changed != nil {
		r.changed(rs)
	}
	if before == nil || *before.Spec.Replicas != *rs.Spec.Replicas {
		r.sizes++
		r.afterReady = end(r.sinceReady, name, r.afterReady)
		r.afterCounted = end(r.sinceCounted, name, r.afterCounted)
	}
	if before != nil && rs.Status.AvailableReplicas > before.Status.AvailableReplicas {
		begin(r.sinceCounted, name)
	}
	if r.runs(name) {
		r.done[name] = true
	} else {
		delete(r.done, name)
	}
}

// of returns the ReplicaSets of a Deployment.
func (r *roll) of(name string) map[string]*appsv1.ReplicaSet {
	if r.seen[name] == nil {
		r.seen[name] = map[string]*appsv1.ReplicaSet{}
	}
	return r.seen[name]
}

// runs reports whether all pods of a Deployment run the tag.
func (r *roll) runs(name string) bool {
	available := int32(0)
	for _, rs := range r.of(name) {
		switch {
		case rs.Spec.Template.Spec.Containers[0].Image == template("", r.tag).Spec.Containers[0].Image:
			available += rs.Status.AvailableReplicas
		case *rs.Spec.Replicas > 0 || rs.Status.Replicas > 0:
			return false
		}
	}
	return available == r.replicas
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// begin notes the time, unless an earlier one is.
func begin(since map[string]time.Time, name string) {
	if _, is := since[name]; !is {
		since[name] = time.Now()
	}
}

// end adds the time since what was noted.
func end(since map[string]time.Time, name string, to []time.Duration) []time.Duration {
	at, is := since[name]
	if !is {
		return to
	}
	delete(since, name)
	return append(to, time.Since(at))
}
