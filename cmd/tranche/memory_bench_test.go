package main

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// BenchmarkIdle runs the controller, as a process of its own, over idle releases. It
// measures the memory, and the requests in half a minute in which nothing happens.
func BenchmarkIdle(b *testing.B) {
	const releases = 2000
	c := clustertest.Shared(b)
	binary := program(b)
	ns := c.Namespace(b)
	for i := range releases {
		idle(b, c, ns, fmt.Sprintf("idle-%04d", i))
	}
	for b.Loop() {
		p := newProcess(b, c, binary)
		began := time.Now()
		untilCompleted(b, c, ns)
		b.ReportMetric(time.Since(began).Seconds(), "first-look-s")
		before, _ := p.scrape().sum("rest_client_requests_total", nil)
		<-time.After(30 * time.Second) // what is measured, not what is waited for
		b.ReportMetric(p.memory("VmRSS"), "rss-MiB")
		b.ReportMetric(p.memory("RssAnon"), "without-binary-MiB")
		after, _ := p.scrape().sum("rest_client_requests_total", nil) // garbage for the metrics of all releases
		b.ReportMetric(after-before, "requests/30s")
		peak, _ := p.all.most()
		b.ReportMetric(peak, "peak-of-all-MiB")
		b.ReportMetric(0, "ns/op")
		p.stop()
	}
}

// idle makes a Deployment of one pod with a plan.
func idle(b *testing.B, c *clustertest.Cluster, ns, name string) {
	b.Helper()
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web:v1"}}},
	}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	br.Spec.WorkloadRef = v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	br.Spec.Template = &template
	br.Spec.Strategy.Steps = []v1alpha1.Step{
		{Replicas: intstr.FromString("20%")}, {Replicas: intstr.FromString("50%")}, {Replicas: intstr.FromString("100%")},
	}
	for _, o := range []client.Object{d, br} {
		if err := c.Client.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}

func untilCompleted(b *testing.B, c *clustertest.Cluster, ns string) {
	b.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; {
		var list v1alpha1.BatchReleaseList
		if err := c.Client.List(b.Context(), &list, client.InNamespace(ns)); err != nil {
			b.Fatal(err)
		}
		open := 0
		for _, br := range list.Items {
			if br.Status.Reason != "ReleaseCompleted" {
				open++
			}
		}
		if open == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d releases have not been looked at", open)
		}
		<-time.After(time.Second)
	}
}
