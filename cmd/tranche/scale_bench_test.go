package main

import (
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

var (
	scaleReleases = flag.Int("releases", 5000, "idle releases of BenchmarkScale")
	scaleSources  = flag.Int("sources", 2000, "GitSources of BenchmarkScale")
	scaleUnderWay = flag.Int("underway", 50, "releases of BenchmarkScale that wait at a gate")
	scaleRest     = flag.Duration("rest", time.Minute, "how long BenchmarkScale measures a controller that has nothing to do")
)

const (
	scaleNamespaces = 10
	scaleInterval   = 10 * time.Minute // of the sources, as is usual
	scaleWithin     = 30 * time.Minute
	restingRequests = 20 // a second, at most: some sources are always due
	labelShard      = "example.org/shard"
)

// scale is very many idle releases, some that wait at a gate, and very many sources of one
// repository with a ConfigMap each. All have a label for one of two shards.
type scale struct {
	*testing.B
	c          *clustertest.Cluster
	binary     string
	namespaces []string
	url        string
	lines      [][]string
}

// BenchmarkScale measures one controller, and then two shards: memory and CPU until nothing is
// left to do, and after that. Between the two it kills the controller, approves
// the releases that wait, and starts it again: it measures how long each takes to move on.
func BenchmarkScale(b *testing.B) {
	nodes := fmt.Sprint((*scaleReleases+*scaleUnderWay*8)/900 + 1)
	s := &scale{B: b, c: clustertest.Start(b, "--nodes", nodes), binary: program(b)}
	for range scaleNamespaces {
		s.namespaces = append(s.namespaces, s.c.Namespace(b))
	}
	s.make()
	for b.Loop() {
		s.lines = [][]string{{fmt.Sprintf("%d idle releases, %d sources", *scaleReleases, *scaleSources),
			"until it is idle", "CPU until then", "peak", "memory when idle", "without binary", "CPU when idle", "requests when idle"}}
		one := s.start("one controller, from nothing", "")
		s.toGates()
		one.stop()
		s.restart()
		s.stopAll(s.start("one controller, again", ""))
		s.stopAll(s.start("shard a of two", "a"), s.start("shard b of two", "b"))
		fmt.Printf("\n\n%s\n", tabulate(s.lines))
		b.ReportMetric(0, "ns/op")
	}
}

func (s *scale) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scale) stopAll(all ...*process) {
	for _, p := range all {
		p.stop()
	}
}

func shardOf(i int) map[string]string { return map[string]string{labelShard: string(rune('a' + i%2))} }

// make makes all objects, with no controller.
func (s *scale) make() {
	s.Helper()
	repo, files := gittest.NewRepo(s), map[string]string{}
	for i := range *scaleSources {
		const text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: of-source-%04d}\ndata: {a: b}\n"
		files[fmt.Sprintf("apps/%04d/config.yaml", i)] = fmt.Sprintf(text, i)
	}
	repo.CommitAndPush(files)
	s.url = gittest.Serve(s, filepath.Dir(repo.Bare), gittest.ServeOptions{}).URL + "/" + filepath.Base(repo.Bare)
	for i := range *scaleReleases {
		s.release(i, fmt.Sprintf("idle-%05d", i), 1)
	}
	for i := range *scaleUnderWay {
		s.release(i, fmt.Sprintf("moving-%03d", i), 4)
	}
	for i := range *scaleSources {
		s.must(s.c.Client.Create(s.Context(), &v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("source-%04d", i), Namespace: s.namespaces[i%scaleNamespaces], Labels: shardOf(i)},
			Spec:       v1alpha1.GitSourceSpec{URL: s.url, Path: fmt.Sprintf("apps/%04d", i), Interval: metav1.Duration{Duration: scaleInterval}},
		}))
	}
}

func (s *scale) release(i int, name string, pods int32) {
	s.Helper()
	labels, ns := map[string]string{"app": name}, s.namespaces[i%scaleNamespaces]
	template := scaleTemplate(name, "v1")
	s.must(s.c.Client.Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns},
		Spec:       appsv1.DeploymentSpec{Replicas: &pods, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
	}))
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Labels: shardOf(i)}}
	br.Spec.WorkloadRef = v1alpha1.WorkloadReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	br.Spec.Template, br.Spec.Commit = &template, strings.Repeat("1", 40)
	br.Spec.Strategy.Steps = []v1alpha1.Step{
		{Replicas: intstr.FromInt32(1)}, {Replicas: intstr.FromString("50%")}, {Replicas: intstr.FromString("100%")},
	}
	s.must(s.c.Client.Create(s.Context(), br))
}

func scaleTemplate(name, tag string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web:" + tag}}},
	}
}

// start starts a controller of a shard, or of all, until nothing is left to do, and measures it.
func (s *scale) start(what, shard string) *process {
	s.Helper()
	var flags []string
	if shard != "" {
		flags = append(flags, "--watch-label-selector", labelShard+"="+shard)
	}
	began := time.Now()
	p := newProcess(s.B, s.c, s.binary, flags...)
	s.until("all to be settled", func() error { return s.unsettled(shard) })
	s.quiet(p)
	settled := time.Since(began)
	cpu := p.cpu()
	requests, _ := p.scrape().sum("rest_client_requests_total", nil)
	scraped := p.cpu()
	<-time.After(*scaleRest) // it is measured, not waited for
	rest := p.cpu() - scraped
	after, _ := p.scrape().sum("rest_client_requests_total", nil)
	peak, _ := p.all.most()
	s.lines = append(s.lines, []string{
		what, seconds(settled), seconds(cpu), fmt.Sprintf("%.0f MiB", peak), fmt.Sprintf("%.0f MiB", p.memory("VmRSS")),
		fmt.Sprintf("%.0f MiB", p.memory("RssAnon")), fmt.Sprintf("%.1f %% of a core", 100*rest.Seconds()/scaleRest.Seconds()),
		fmt.Sprintf("%.1f/s", (after-requests)/scaleRest.Seconds()),
	})
	return p
}

// quietFor is how many looks in a row find few requests. A controller that has just begun makes
// few, too, before it has read all.
const quietFor = 10

// quiet waits until the controller makes few requests.
func (s *scale) quiet(p *process) {
	s.Helper()
	s.until("the controller to answer", func() error {
		connection, err := net.Dial("tcp", p.address)
		if err != nil {
			return fmt.Errorf("dialling the metrics: %w", err)
		}
		return connection.Close()
	})
	last, looks := 0.0, 0
	s.until("the controller to be idle", func() error {
		now, _ := p.scrape().sum("rest_client_requests_total", nil)
		made := now - last
		if last, looks = now, looks+1; made > restingRequests {
			looks = 0
		}
		if looks < quietFor {
			return fmt.Errorf("%.0f requests since the last time", made)
		}
		return nil
	})
}

// unsettled returns an error for a release that has neither ended nor waits for an approval,
// and for a source that is not ready.
func (s *scale) unsettled(shard string) error {
	var brs v1alpha1.BatchReleaseList
	var sources v1alpha1.GitSourceList
	for _, list := range []client.ObjectList{&brs, &sources} {
		options := []client.ListOption{}
		if shard != "" {
			options = append(options, client.MatchingLabels{labelShard: shard})
		}
		s.must(s.c.Client.List(s.Context(), list, options...))
	}
	for _, br := range brs.Items {
		settled := br.Status.Reason == v1alpha1.ReasonReleaseCompleted || br.Status.Reason == v1alpha1.ReasonWaitingForApproval
		if !settled || br.Status.ObservedGeneration != br.Generation {
			return fmt.Errorf("BatchRelease %s: %s", br.Name, br.Status.Message)
		}
	}
	for _, gs := range sources.Items {
		if !meta.IsStatusConditionTrue(gs.Status.Conditions, "Ready") {
			return fmt.Errorf("GitSource %s: %+v", gs.Name, gs.Status.Conditions)
		}
	}
	return nil
}

// toGates brings v2 to those that are to be under way, which then wait.
func (s *scale) toGates() {
	s.Helper()
	for i := range *scaleUnderWay {
		br := s.moving(i)
		old := br.DeepCopy()
		br.Spec.Template, br.Spec.Commit = ptr.To(scaleTemplate(br.Name, "v2")), strings.Repeat("2", 40)
		s.must(s.c.Client.Patch(s.Context(), br, client.MergeFrom(old)))
	}
	s.until("all to wait", func() error {
		for i := range *scaleUnderWay {
			if br := s.moving(i); br.Status.Reason != v1alpha1.ReasonWaitingForApproval || br.Status.ObservedGeneration != br.Generation {
				return fmt.Errorf("%s: %s", br.Name, br.Status.Message)
			}
		}
		return nil
	})
}

func (s *scale) moving(i int) *v1alpha1.BatchRelease {
	s.Helper()
	br, name := &v1alpha1.BatchRelease{}, fmt.Sprintf("moving-%03d", i)
	s.must(s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.namespaces[i%scaleNamespaces], Name: name}, br))
	return br
}

// restart approves all that wait, with no controller, and starts one.
func (s *scale) restart() {
	s.Helper()
	for i := range *scaleUnderWay {
		approval := client.RawPatch(types.MergePatchType, []byte(`{"status":{"currentStepState":"Completed"}}`))
		s.must(s.c.Client.Status().Patch(s.Context(), s.moving(i), approval))
	}
	sets := &appsv1.ReplicaSetList{}
	s.must(s.c.Client.List(s.Context(), sets))
	since := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: sets.ResourceVersion}}
	w, err := s.c.Client.Watch(s.Context(), &appsv1.ReplicaSetList{}, since)
	s.must(err)
	defer w.Stop()
	began := time.Now()
	p := newProcess(s.B, s.c, s.binary)
	defer p.stop()
	moved := map[string]time.Duration{}
	for late := time.After(scaleWithin); len(moved) < *scaleUnderWay; {
		select {
		case e, ok := <-w.ResultChan():
			rs, is := e.Object.(*appsv1.ReplicaSet)
			if !ok || !is {
				s.Fatalf("the watch has ended: %+v", e.Object)
			}
			name := rs.Labels["app"]
			isNew := strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":v2")
			if _, was := moved[name]; !was && isNew && *rs.Spec.Replicas > 1 {
				moved[name] = time.Since(began)
			}
		case <-late:
			s.Fatalf("%d of %d have moved on", len(moved), *scaleUnderWay)
		}
	}
	var all []time.Duration
	for _, took := range moved {
		all = append(all, took)
	}
	slices.Sort(all)
	fmt.Printf("\n\n%s\n", tabulate([][]string{
		{fmt.Sprintf("%d releases under way, after a start", len(all)), "first moves", "median", "last"},
		{"", seconds(all[0]), seconds(all[len(all)/2]), seconds(all[len(all)-1])},
	}))
}

// until looks every second.
func (s *scale) until(what string, check func() error) {
	s.Helper()
	for deadline := time.Now().Add(scaleWithin); ; <-time.After(time.Second) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("waiting for %s: %v", what, err)
		}
	}
}
