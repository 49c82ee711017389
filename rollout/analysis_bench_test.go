package rollout_test

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/analysis"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// BenchmarkAnalysis has releases under analysis, with a window of 10 s on both revisions,
// against one server. cpu is that of this process for each second, with the controller, the
// server and the test. first-replicaset-s is the time from a change of spec.template of another
// release to its ReplicaSet, as the median of 20. It is taken alone and meanwhile, in another
// namespace. It is taken beside the others, too, where the policy for held ReplicaSets costs.
// native-s is the same of a Deployment without a plan, and tells what of it is the cluster's.
func BenchmarkAnalysis(b *testing.B) {
	for _, releases := range []int{50, 500} {
		b.Run(fmt.Sprintf("releases=%d", releases), func(b *testing.B) { benchmarkAnalysis(b, releases) })
	}
}

func benchmarkAnalysis(b *testing.B, releases int) {
	const tries, measured = 20, time.Minute
	c, server := clustertest.Shared(b), newMetricsServer(b)
	for b.Loop() {
		f := newField(b, c, releases, 2)
		o := rollout.Options{Concurrent: 10, Analysis: analysis.Options{MayReach: func(netip.Addr) error { return nil }}}
		apart := c.Namespace(b)
		startReconciler(b, c, f.ns, o, func(o *ctrl.Options) { o.Cache.DefaultNamespaces[apart] = cache.Config{} })
		f.plan([]string{"50%", "100%"}, "v1")
		b.ReportMetric(f.median(tries, apart, f.nativeChange).Seconds(), "native-alone-s")
		b.ReportMetric(f.median(tries, apart, f.releaseChange).Seconds(), "first-replicaset-alone-s")
		f.analyse(server.URL)
		f.bring("v2")
		for len(server.questions()) < 2*releases {
			time.Sleep(time.Second) // a benchmark may sleep
		}
		asked, cpu, began := len(server.questions()), cpuTime(b), time.Now()
		time.Sleep(measured)
		took := time.Since(began).Seconds()
		b.ReportMetric(float64(len(server.questions())-asked)/took, "queries/s")
		b.ReportMetric((cpuTime(b)-cpu).Seconds()/took, "cpu")
		b.ReportMetric(f.median(tries, apart, f.nativeChange).Seconds(), "native-s")
		b.ReportMetric(f.median(tries, apart, f.releaseChange).Seconds(), "first-replicaset-s")
		b.ReportMetric(f.median(tries, f.ns, f.nativeChange).Seconds(), "native-beside-s")
		b.ReportMetric(f.median(tries, f.ns, f.releaseChange).Seconds(), "first-replicaset-beside-s")
		b.ReportMetric(0, "ns/op")
	}
}

// cpuTime is what this process has taken.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var of syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &of); err != nil {
		b.Fatal(err)
	}
	return time.Duration(of.Utime.Nano() + of.Stime.Nano())
}

// analyse gives each plan a metric, which its first step measures for 20 minutes, in the 120 windows that a plan may have.
func (f *field) analyse(address string) {
	f.Helper()
	var brs v1alpha1.BatchReleaseList
	f.list(&brs)
	for i := range brs.Items {
		br := &brs.Items[i]
		old := br.DeepCopy()
		br.Spec.Strategy.Steps[0].Pause = nil
		br.Spec.Strategy.Steps[0].Analysis = &v1alpha1.StepAnalysis{Duration: metav1.Duration{Duration: 20 * time.Minute}}
		br.Spec.Strategy.Analysis = &v1alpha1.Analysis{Metrics: []v1alpha1.Metric{errorsAt(address)}}
		f.must(f.c.Client.Patch(f.Context(), br, client.MergeFrom(old)))
	}
}

// median is the median time from a change to its ReplicaSet, of Deployments one after the other.
// prepare readies one of them, and returns what changes it.
func (f *field) median(tries int, ns string, prepare func(d *appsv1.Deployment) (change func())) time.Duration {
	f.Helper()
	var took []time.Duration
	for range tries {
		name := fmt.Sprintf("other-%d", time.Now().UnixNano())
		d := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](1), Template: template(name, "v1"),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			},
		}
		f.must(f.c.Client.Create(f.Context(), d))
		change := prepare(d)
		began := time.Now()
		change()
		for n := 0; n < 2; time.Sleep(5 * time.Millisecond) {
			var sets appsv1.ReplicaSetList
			f.must(f.c.Client.List(f.Context(), &sets, client.InNamespace(ns), client.MatchingLabels{"app": name}))
			n = len(sets.Items)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2]
}

// nativeChange waits for the pods of a Deployment without a plan.
func (f *field) nativeChange(d *appsv1.Deployment) (change func()) {
	f.Helper()
	clustertest.Wait(f, "Deployment "+d.Name, func() error {
		f.must(f.c.Client.Get(f.Context(), client.ObjectKeyFromObject(d), d))
		if d.Status.AvailableReplicas != 1 {
			return fmt.Errorf("%d pods are available", d.Status.AvailableReplicas)
		}
		return nil
	})
	return func() {
		old := d.DeepCopy()
		d.Spec.Template = template(d.Name, "v2")
		f.must(f.c.Client.Patch(f.Context(), d, client.MergeFrom(old)))
	}
}

// releaseChange gives a Deployment a plan, and waits until the release of what it runs is over.
func (f *field) releaseChange(d *appsv1.Deployment) (change func()) {
	f.Helper()
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace}}
	br.Spec.WorkloadRef = v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name}
	br.Spec.Template, br.Spec.Commit = ptr.To(template(d.Name, "v1")), commitOf("v1")
	br.Spec.Strategy.Steps = []v1alpha1.Step{{Replicas: intstr.FromString("100%")}}
	f.must(f.c.Client.Create(f.Context(), br))
	clustertest.Wait(f, "release "+d.Name, func() error {
		f.must(f.c.Client.Get(f.Context(), client.ObjectKeyFromObject(br), br))
		if br.Status.Phase != v1alpha1.PhaseCompleted {
			return fmt.Errorf("%s: %s", br.Status.Phase, br.Status.Message)
		}
		return nil
	})
	return func() {
		old := br.DeepCopy()
		br.Spec.Template, br.Spec.Commit = ptr.To(template(d.Name, "v2")), commitOf("v2")
		f.must(f.c.Client.Patch(f.Context(), br, client.MergeFrom(old)))
	}
}
