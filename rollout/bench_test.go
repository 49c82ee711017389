package rollout_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// BenchmarkReleases rolls 100 Deployments of 10 pods natively, and releases 100 others
// beside them with open gates (25 %/25 %). It measures from the first change to the last
// pod of all. alone-s is the time of releases with nothing beside them, native-alone-s
// that of native ones. A native roll is of one step; three make more waves of pods, one
// after the other.
func BenchmarkReleases(b *testing.B) {
	for _, steps := range [][]string{{"100%"}, {"20%", "50%", "100%"}} {
		b.Run(fmt.Sprintf("steps=%d", len(steps)), func(b *testing.B) { benchmarkReleases(b, steps) })
	}
}

func benchmarkReleases(b *testing.B, steps []string) {
	const deployments, replicas = 100, 10
	c := clustertest.Shared(b)
	for b.Loop() {
		native, ours := newField(b, c, deployments, replicas), newField(b, c, deployments, replicas)
		var calls requests
		startControllerIn(b, c, ours.ns, calls.count)
		ours.plan(steps)
		native.change("v2")
		b.ReportMetric(native.until("v2").Seconds(), "native-alone-s")
		b.ReportMetric(float64(native.calls()), "native-updates")
		ours.bring("v2")
		b.ReportMetric(ours.until("v2").Seconds(), "alone-s")
		ours.completed()

		calls.forget()
		native.change("v3")
		ours.bring("v3")
		var beside sync.WaitGroup
		beside.Go(func() { b.ReportMetric(native.until("v3").Seconds(), "native-s") })
		beside.Go(func() { b.ReportMetric(ours.until("v3").Seconds(), "tranche-s") })
		beside.Wait()
		ours.completed()
		b.ReportMetric(float64(calls.of("PATCH", "/deployments/"))/deployments, "deployment-writes/release")
		b.ReportMetric(float64(calls.of("PATCH", "/replicasets/")+calls.of("POST", "/replicasets"))/deployments, "replicaset-writes/release")
		b.ReportMetric(float64(calls.of("PUT", "/status"))/deployments, "status-writes/release")
		b.ReportMetric(float64(calls.conflicts())/deployments, "conflicts/release")
		b.ReportMetric(0, "ns/op")
	}
}

// field is many Deployments in a namespace.
type field struct {
	testing.TB
	c     *clustertest.Cluster
	ns    string
	n     int
	began time.Time
	first int64 // sum of the ReplicaSets' generations at the beginning
}

func newField(b testing.TB, c *clustertest.Cluster, n int, replicas int32) *field {
	b.Helper()
	f := &field{TB: b, c: c, ns: c.Namespace(b), n: n}
	for i := range n {
		name := fmt.Sprintf("web-%04d", i)
		f.must(c.Client.Create(b.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.ns},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: template(name, "v1"),
			},
		}))
	}
	f.began = time.Now()
	f.until("v1")
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

// change brings a tag natively.
func (f *field) change(tag string) {
	f.Helper()
	var ds appsv1.DeploymentList
	f.list(&ds)
	f.first = f.generations()
	f.began = time.Now()
	for i := range ds.Items {
		d := &ds.Items[i]
		old := d.DeepCopy()
		d.Spec.Template = template(d.Name, tag)
		f.must(f.c.Client.Patch(f.Context(), d, client.MergeFrom(old)))
	}
}

// generations sums up how often ReplicaSets have been changed.
func (f *field) generations() int64 {
	f.Helper()
	var sets appsv1.ReplicaSetList
	f.list(&sets)
	var n int64
	for _, rs := range sets.Items {
		n += rs.Generation
	}
	return n
}

func (f *field) calls() int64 { return (f.generations() - f.first) / int64(f.n) }

// plan gives every Deployment a plan whose gates open by themselves.
func (f *field) plan(steps []string) {
	f.Helper()
	for i := range f.n {
		name := fmt.Sprintf("web-%04d", i)
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: f.ns}}
		br.Spec.WorkloadRef = v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
		br.Spec.Template, br.Spec.Commit = ptr.To(template(name, "v1")), commitOf("v1")
		for i, replicas := range steps {
			step := v1alpha1.Step{Replicas: intstr.Parse(replicas)}
			if i < len(steps)-1 {
				step.Pause = &v1alpha1.Pause{}
			}
			br.Spec.Strategy.Steps = append(br.Spec.Strategy.Steps, step)
		}
		f.must(f.c.Client.Create(f.Context(), br))
	}
	f.completed()
}

func (f *field) bring(tag string) {
	f.Helper()
	var brs v1alpha1.BatchReleaseList
	f.list(&brs)
	f.began = time.Now()
	for i := range brs.Items {
		br := &brs.Items[i]
		old := br.DeepCopy()
		br.Spec.Template, br.Spec.Commit = ptr.To(template(br.Name, tag)), commitOf(tag)
		f.must(f.c.Client.Patch(f.Context(), br, client.MergeFrom(old)))
	}
}

// until waits until all pods of all Deployments run a tag, and returns how long
// that took.
func (f *field) until(tag string) time.Duration {
	f.Helper()
	for {
		var ds appsv1.DeploymentList
		var sets appsv1.ReplicaSetList
		f.list(&ds)
		f.list(&sets)
		done := 0
		for _, rs := range sets.Items {
			if rs.Spec.Template.Spec.Containers[0].Image == template("", tag).Spec.Containers[0].Image && rs.Status.AvailableReplicas == *ds.Items[0].Spec.Replicas {
				done++
			}
		}
		others := 0
		for _, rs := range sets.Items {
			if rs.Spec.Template.Spec.Containers[0].Image != template("", tag).Spec.Containers[0].Image {
				others += int(rs.Status.Replicas)
			}
		}
		if done == f.n && others == 0 {
			return time.Since(f.began)
		}
		if time.Since(f.began) > 10*time.Minute {
			f.Fatalf("after %s %d of %d Deployments run %s", time.Since(f.began), done, f.n, tag)
		}
		select {
		case <-f.Context().Done():
			f.Fatal("the benchmark is over")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// completed waits until all releases have ended.
func (f *field) completed() {
	f.Helper()
	clustertest.Wait(f, "all releases to end", func() error {
		var brs v1alpha1.BatchReleaseList
		f.list(&brs)
		for _, br := range brs.Items {
			if br.Status.Reason != v1alpha1.ReasonReleaseCompleted || br.Status.ObservedGeneration != br.Generation {
				return fmt.Errorf("%s: %s", br.Name, br.Status.Reason)
			}
		}
		return nil
	})
}
