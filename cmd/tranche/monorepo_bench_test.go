package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// BenchmarkMonorepo has the controller, a process of its own, follow a thousand paths of
// one repository of 20,000 files with a thousand GitSources. It measures the first sync,
// and commits that touch one path or none. kubectl kustomize renders the same for
// comparison.
func BenchmarkMonorepo(b *testing.B) {
	binary := program(b)
	for b.Loop() {
		m := newMonorepo(b, binary)
		m.first()
		first := m.phases[0]
		m.commitTo(middle() - 3)
		one := m.phases[1]
		m.commitTo(middle() + 3)
		m.commitToNone("README.md", "# All that we run, since 2026\n")
		none := m.phases[3]
		m.commitToNone("README.md", "# All that we run, everywhere\n")
		m.commitTo(middle() + 5) // with a plan
		m.nothing()
		m.lookAtAll(allWhole, monorepoInterval())
		m.interval(anInterval)
		m.interval(theNext)
		m.check()
		fmt.Printf("\n\n%s\n", m.table()) // b.Log shows ten lines
		fmt.Println(m.requestTable())
		m.end()
		fmt.Println(m.floor())
		fmt.Println(m.compare(middle() - 3))
		b.ReportMetric(first.last.Seconds(), "first-sync-s")
		b.ReportMetric(first.cpu().Seconds(), "first-sync-cpu-s")
		b.ReportMetric(one.applied.Seconds(), "one-path-s")
		b.ReportMetric(one.cpu().Seconds(), "one-path-cpu-s")
		b.ReportMetric(one.requests(), "one-path-requests")
		b.ReportMetric(none.cpu().Seconds(), "no-path-cpu-s")
		b.ReportMetric(none.requests(), "no-path-requests")
		b.ReportMetric(m.phases[len(m.phases)-1].cpu().Seconds(), "interval-cpu-s")
		b.ReportMetric(m.phases[len(m.phases)-1].requests(), "interval-requests")
		b.ReportMetric(m.phases[len(m.phases)-1].peak, "peak-MiB")
		b.ReportMetric(0, "ns/op")
	}
}

// monorepo is the repository, its server, and the controller that follows it.
type monorepo struct {
	*testing.B
	c *clustertest.Cluster
	// namespaces share the sources evenly, see namespaceOf.
	namespaces []string
	repo       *gittest.Repo
	url        string
	tell       func() // the controller, of a push
	process    *process
	pprof      string // the address of profiles; empty: none are wanted
	phases     []phase

	asked, fetched atomic.Int64 // as the Git server counts
}

func newMonorepo(b *testing.B, binary string) *monorepo {
	b.Helper()
	m := &monorepo{B: b, c: clustertest.Shared(b), repo: gittest.NewRepo(b)}
	alone(b, m.c)
	for range *monorepoNamespaces {
		m.namespaces = append(m.namespaces, m.c.Namespace(b))
	}
	m.repo.CommitAndPush(monorepoFiles(), "All that we run")
	m.url = gittest.Serve(b, filepath.Dir(m.repo.Bare), gittest.ServeOptions{Wrap: m.count}).URL + "/" + filepath.Base(m.repo.Bare)
	const token = "a-long-random-text"
	for _, ns := range m.namespaces {
		m.must(m.c.Client.Create(b.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: ns}, StringData: map[string]string{"token": token}}))
	}
	hooks := gittest.FreeAddress(b)
	m.tell = forge(b, hooks, m.url, token)
	flags := []string{"--webhook-address", hooks}
	if *profileDir != "" {
		m.pprof = gittest.FreeAddress(b)
		flags = append(flags, "--pprof-bind-address", m.pprof)
	}
	m.process = newProcess(b, m.c, binary, flags...)
	m.quiet()
	return m
}

// namespaceOf returns the namespace of a path's GitSource.
func (m *monorepo) namespaceOf(i int) string {
	return m.namespaces[i*len(m.namespaces) / *monorepoPaths]
}

func (m *monorepo) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// count counts the exchanges with the Git server: questions for its branches,
// and fetches.
func (m *monorepo) count(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/info/refs"):
			m.asked.Add(1)
		case strings.HasSuffix(r.URL.Path, "/git-upload-pack"):
			m.fetched.Add(1)
		}
		h.ServeHTTP(w, r)
	})
}

// first creates the GitSources, until all are Ready.
func (m *monorepo) first() {
	m.Helper()
	m.measure(firstSync, func(sources watch.Interface) map[string]time.Time {
		for i := range *monorepoPaths {
			m.must(m.c.Client.Create(m.Context(), &v1alpha1.GitSource{
				ObjectMeta: metav1.ObjectMeta{Name: appName(i), Namespace: m.namespaceOf(i)},
				Spec: v1alpha1.GitSourceSpec{URL: m.url, Path: appPath(i), Prune: true, Interval: metav1.Duration{Duration: 24 * time.Hour},
					Webhook: &v1alpha1.Webhook{SecretRef: v1alpha1.LocalObjectReference{Name: "hook"}}},
			}))
		}
		return m.applied(sources)
	}, "")
}

// commitTo pushes a commit that brings another image to one path.
func (m *monorepo) commitTo(i int) {
	m.Helper()
	file := appPath(i) + "/kustomization.yaml"
	text, err := os.ReadFile(filepath.Join(m.repo.Work, file))
	m.must(err)
	m.repo.Commit(map[string]string{file: strings.ReplaceAll(string(text), "newTag: v1", "newTag: v2")}, appName(i)+": v2")
	title := onePath
	if hasPlan(i) {
		title = onePathPlan
	}
	m.push(title, appName(i))
}

// commitToNone pushes a commit of a file that no path renders.
func (m *monorepo) commitToNone(file, text string) {
	m.Helper()
	m.repo.Commit(map[string]string{file: text}, "Say since when")
	m.push(noPath, "")
}

// push measures from the end of a push on.
func (m *monorepo) push(title, touched string) {
	m.Helper()
	fetched := m.fetched.Load()
	m.measure(title, func(sources watch.Interface) map[string]time.Time {
		m.tell()
		if touched != "" {
			tip := m.repo.Head()
			return m.until(sources, 1, func(gs *v1alpha1.GitSource) bool { return gs.Name == touched && gs.Status.AppliedCommit == tip })
		}
		for deadline := time.Now().Add(time.Minute); m.fetched.Load() == fetched; <-time.After(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				m.Fatal("the push is not fetched")
			}
		}
		return nil
	}, touched)
}

// nothing tells the controller of a push that there was not.
func (m *monorepo) nothing() {
	m.Helper()
	m.measure(nothingNew, func(watch.Interface) map[string]time.Time {
		m.tell()
		return nil
	}, "")
}

// monorepoInterval is long enough for all sources to be synced as a whole in a part of it.
func monorepoInterval() time.Duration {
	return max(30*time.Second, time.Duration(*monorepoPaths)*150*time.Millisecond)
}

// interval waits until the interval of every source is over, and the source synced.
func (m *monorepo) interval(title string) {
	m.Helper()
	m.measure(title, func(watch.Interface) map[string]time.Time {
		skipped := func() float64 {
			n, _ := m.process.scrape().sum("tranche_source_renders_total", map[string]string{"result": "skipped"})
			return n
		}
		before := skipped()
		const scraped = 5 * time.Second // a scrape costs CPU, too
		for deadline := time.Now().Add(10 * monorepoInterval()); skipped() < before+float64(*monorepoPaths); <-time.After(scraped) {
			if time.Now().After(deadline) {
				m.Fatalf("%.0f sources were synced", skipped()-before)
			}
		}
		return nil
	}, "")
}

// lookAtAll has every source be synced as a whole, by giving them another interval.
func (m *monorepo) lookAtAll(title string, interval time.Duration) {
	m.Helper()
	m.measure(title, func(sources watch.Interface) map[string]time.Time {
		given := make(chan error, 1) // beside the watch, which ends if its events are not read
		go func() { given <- m.give(interval) }()
		at := m.until(sources, *monorepoPaths, func(gs *v1alpha1.GitSource) bool {
			return gs.Spec.Interval.Duration == interval && gs.Status.ObservedGeneration == gs.Generation
		})
		m.must(<-given)
		return at
	}, "")
}

// give gives all sources an interval.
func (m *monorepo) give(interval time.Duration) error {
	for i := range *monorepoPaths {
		gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: appName(i), Namespace: m.namespaceOf(i)}}
		if err := m.c.Client.Patch(m.Context(), gs, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"interval":%q}}`, interval))); err != nil {
			return err
		}
	}
	return nil
}

// applied waits until all sources are Ready at the tip, and returns since when
// they are.
func (m *monorepo) applied(sources watch.Interface) map[string]time.Time {
	m.Helper()
	tip := m.repo.Head()
	return m.until(sources, *monorepoPaths, func(gs *v1alpha1.GitSource) bool { return gs.Status.AppliedCommit == tip })
}

// until waits until so many sources are Ready and as they are to be, and returns
// since when they are.
func (m *monorepo) until(sources watch.Interface, n int, is func(*v1alpha1.GitSource) bool) map[string]time.Time {
	m.Helper()
	at, late := map[string]time.Time{}, time.After(10*time.Minute)
	for len(at) < n {
		select {
		case e, ok := <-sources.ResultChan():
			gs, isSource := e.Object.(*v1alpha1.GitSource)
			if !ok || !isSource {
				m.Fatalf("the watch has ended: %+v", e.Object)
			}
			if _, was := at[gs.Name]; !was && is(gs) && meta.IsStatusConditionTrue(gs.Status.Conditions, "Ready") {
				at[gs.Name] = time.Now()
			}
		case <-late:
			m.Fatalf("%d of %d sources are there", len(at), n)
		}
	}
	return at
}

// The names of the measurements.
const (
	firstSync   = "first sync"
	onePath     = "one path"
	noPath      = "no path"
	onePathPlan = "one path, with a plan"
	nothingNew  = "nothing new"
	allWhole    = "all as a whole"
	anInterval  = "an interval"
	theNext     = "the next one"
)

// phase is what was measured while something happened.
type phase struct {
	title         string
	before, after counts
	// since the beginning: until the touched path is applied, until the last
	// source is at the tip, and until the controller rests.
	applied, last, rest time.Duration
	lasted              time.Duration // between the two counts
	changed             int           // objects
	peak, heap          float64       // MiB
}

// counts are what only grows.
type counts struct {
	cpu, renderers        time.Duration // of all processes, and of the renderers among them
	asked, fetched        int64
	controller, apiServer series
}

// bill is the most that a phase may cost.
type bill struct{ fetches, renders, writes, changed, statuses, requests int }

// check fails the benchmark if something costs more than it touches. A path with a plan
// changes only its BatchRelease: a Deployment without pods is not released.
func (m *monorepo) check() {
	m.Helper()
	// In each namespace plans, autoscalers and failures are listed, and the token of the webhook is
	// read. Plans are listed again every ten seconds. With a thousand paths, it is 12,000 in all.
	// A path with a plan took 46 to 52: the reads of CustomResourceDefinitions follow the time.
	firstRequests := 119**monorepoPaths/10 + 10*len(m.namespaces)
	bills := map[string]bill{
		firstSync:   {1, *monorepoPaths, math.MaxInt, math.MaxInt, 2 * *monorepoPaths, firstRequests},
		onePath:     {1, 1, 1, 1, 2, 25},
		noPath:      {1, 0, 0, 0, 0, 5},
		onePathPlan: {1, 1, math.MaxInt, 1, 2, 60},
		nothingNew:  {0, 0, 0, 0, 0, 5},
		allWhole:    {0, 0, math.MaxInt, 0, math.MaxInt, math.MaxInt}, // those that change nothing
		anInterval:  {0, 0, 0, 0, 0, 2 * *monorepoPaths},
		theNext:     {0, 0, 0, 0, 0, 2 * *monorepoPaths},
	}
	for i := range m.phases {
		p := &m.phases[i]
		most, known := bills[p.title]
		if !known {
			m.Fatalf("%s: there is no bill for it", p.title)
		}
		cost := bill{
			int(p.after.fetched - p.before.fetched), int(p.rendered("rendered")), int(p.served("", "", appliedResources, writeVerbs)), p.changed,
			int(p.served("", "status", []string{"gitsources"}, writeVerbs)), int(p.requests()) - p.besides(),
		}
		if cost.fetches > most.fetches || cost.renders > most.renders || cost.writes > most.writes || cost.changed > most.changed ||
			cost.statuses > most.statuses || cost.requests > most.requests {
			m.Errorf("%s: it cost %+v, and may cost %+v", p.title, cost, most)
		}
	}
}

func (p *phase) cpu() time.Duration { return p.after.cpu - p.before.cpu }

// requests is how many the controller made, by its own word.
func (p *phase) requests() float64 { return p.more("rest_client_requests_total", nil) }

// besides is how many requests the controller makes whatever happens: it reads a resourceVersion
// every two seconds.
func (p *phase) besides() int { return 1 + int(p.lasted/(2*time.Second)) }

// more is by how much a metric of the controller has grown.
func (p *phase) more(name string, labels map[string]string) float64 {
	before, _ := p.before.controller.sum(name, labels)
	after, _ := p.after.controller.sum(name, labels)
	return after - before
}

// rendered is how many renderings had a result, by the controller's own word.
func (p *phase) rendered(result string) float64 {
	return p.more("tranche_source_renders_total", map[string]string{"result": result})
}

// served is how many requests for these resources the API server had.
func (p *phase) served(dryRun, subresource string, resources, verbs []string) float64 {
	n := 0.0
	for _, resource := range resources {
		for _, verb := range verbs {
			labels := map[string]string{"resource": resource, "verb": verb, "dry_run": dryRun, "subresource": subresource}
			before, _ := p.before.apiServer.sum("apiserver_request_total", labels)
			after, _ := p.after.apiServer.sum("apiserver_request_total", labels)
			n += after - before
		}
	}
	return n
}

// measure measures what happens from when it is begun until the controller rests.
func (m *monorepo) measure(title string, happen func(watch.Interface) map[string]time.Time, touched string) {
	m.Helper()
	m.repo.Push()
	sources, err := m.c.Client.Watch(m.Context(), &v1alpha1.GitSourceList{})
	m.must(err)
	defer sources.Stop()
	versions := m.versions()
	p, counted := phase{title: title, before: m.counts()}, time.Now()
	p.before.cpu, p.before.renderers = m.process.cpu(), m.process.cpuOfRenderers() // not that of being asked
	profiled := m.profile(title)
	began := time.Now()
	at := happen(sources)
	p.rest = m.quiet().Sub(began)
	cpu := m.process.cpu()
	renderers := m.process.cpuOfRenderers()
	profiled()
	p.after = m.counts()
	p.lasted = time.Since(counted)
	p.after.cpu, p.after.renderers = cpu, renderers
	p.applied = at[touched].Sub(began)
	for _, t := range at {
		if len(at) == *monorepoPaths {
			p.last = max(p.last, t.Sub(began))
		}
	}
	for name, version := range m.versions() {
		if versions[name] != version {
			p.changed++
		}
		delete(versions, name)
	}
	p.changed += len(versions) // that are gone
	p.peak, _ = m.process.all.most()
	heap, _ := p.after.controller.sum("go_memstats_heap_alloc_bytes", nil)
	p.heap = heap / (1 << 20)
	m.phases = append(m.phases, p)
}

// profileFirst is how long the profile of the first sync is, and profileOther that of another
// phase, in seconds.
const profileFirst, profileOther = 40, 5

// profile begins a CPU profile of the controller, if profiles are wanted. The function that it
// returns waits for its end.
func (m *monorepo) profile(title string) func() {
	m.Helper()
	if m.pprof == "" {
		return func() {}
	}
	length := profileOther
	if title == firstSync {
		length = profileFirst
	}
	done := make(chan string, 1)
	go func() {
		_, body := get(m, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", m.pprof, length), "")
		done <- body
	}()
	file := filepath.Join(*profileDir, fmt.Sprintf("%02d-%s.pprof", len(m.phases), strings.ReplaceAll(title, " ", "-")))
	return func() { m.must(os.WriteFile(file, []byte(<-done), 0o600)) }
}

func (m *monorepo) counts() counts {
	m.Helper()
	text, err := m.c.Kubectl(m, "get", "--raw", "/metrics")
	m.must(err)
	return counts{asked: m.asked.Load(), fetched: m.fetched.Load(), controller: m.process.scrape(), apiServer: parseMetrics(m, text)}
}

// applyKinds are those of the objects that the paths render.
var applyKinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "ServiceAccount"},
	{Group: "apps", Version: "v1", Kind: "Deployment"}, v1alpha1.GroupVersion.WithKind("BatchRelease"),
}

// appliedResources are their names in the API server's metrics, and writeVerbs
// what it calls writes there.
var (
	appliedResources = []string{"configmaps", "services", "serviceaccounts", "deployments", "batchreleases"}
	writeVerbs       = []string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}
)

// versions are the objects in the cluster, with the version that each has.
func (m *monorepo) versions() map[string]string {
	m.Helper()
	versions := map[string]string{}
	for _, kind := range applyKinds {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(kind)
		m.must(m.c.Client.List(m.Context(), &list))
		for _, o := range list.Items {
			if slices.Contains(m.namespaces, o.Namespace) {
				versions[kind.Kind+"/"+o.Namespace+"/"+o.Name] = o.ResourceVersion
			}
		}
	}
	return versions
}

// restFor is how long the controller must have used next to no CPU to be said
// to rest. The soonest that it looks again at something is half a second.
const restFor = 2 * time.Second

// quiet waits until the controller rests, and returns since when it does.
func (m *monorepo) quiet() time.Time {
	m.Helper()
	since, used := time.Now(), m.process.cpu()
	for deadline := since.Add(5 * time.Minute); time.Since(since) < restFor; <-time.After(50 * time.Millisecond) {
		if now := m.process.cpu(); now > used+tick {
			since, used = time.Now(), now
		}
		if time.Now().After(deadline) {
			m.Fatal("the controller does not come to rest")
		}
	}
	return since
}

// table is what was measured, a column for each phase.
func (m *monorepo) table() string {
	objects, reads, writes := appliedResources, []string{"GET", "LIST"}, writeVerbs
	requests := func(method string) func(*phase) string {
		return func(p *phase) string {
			return number(p.more("rest_client_requests_total", map[string]string{"method": method}))
		}
	}
	served := func(dryRun, subresource string, resources, verbs []string) func(*phase) string {
		return func(p *phase) string { return number(p.served(dryRun, subresource, resources, verbs)) }
	}
	renders := func(result string) func(*phase) string {
		return func(p *phase) string { return number(p.rendered(result)) }
	}
	return m.tableOf([]row{
		{"until the touched path is applied", func(p *phase) string { return seconds(p.applied) }},
		{"until all sources are at the commit", func(p *phase) string { return seconds(p.last) }},
		{"until the controller rests", func(p *phase) string { return seconds(p.rest) }},
		{"CPU of the controller", func(p *phase) string { return seconds(p.cpu()) }},
		{"  of its renderers", func(p *phase) string { return seconds(p.after.renderers - p.before.renderers) }},
		{"Git server: asked for its branches", func(p *phase) string { return number(float64(p.after.asked - p.before.asked)) }},
		{"Git server: fetches", func(p *phase) string { return number(float64(p.after.fetched - p.before.fetched)) }},
		{"renders", renders("rendered")},
		{"renders skipped", renders("skipped")},
		{"objects with a new version", func(p *phase) string { return number(float64(p.changed)) }},
		{"API requests of the controller", func(p *phase) string { return number(p.requests()) }},
		{"  GET", requests(http.MethodGet)},
		{"  POST", requests(http.MethodPost)},
		{"  PUT", requests(http.MethodPut)},
		{"  PATCH", requests(http.MethodPatch)},
		{"  DELETE", requests(http.MethodDelete)},
		{"API server: reads of objects", served("", "", objects, reads)},
		{"  dry runs", served("All", "", objects, writes)},
		{"  writes of objects", served("", "", objects, writes)},
		{"  reads of sources", served("", "", []string{"gitsources"}, []string{"GET"})},
		{"  reads of Secrets", served("", "", []string{"secrets"}, []string{"GET"})},
		{"  writes of sources, but for the status", served("", "", []string{"gitsources"}, []string{"PATCH"})},
		{"  status of sources", served("", "status", []string{"gitsources"}, writes)},
		{"  events", served("", "", []string{"events"}, writes)},
		{"peak memory so far", func(p *phase) string { return fmt.Sprintf("%.0f MiB", p.peak) }},
		{"Go heap", func(p *phase) string { return fmt.Sprintf("%.0f MiB", p.heap) }},
	})
}

// requestTable has what the API server has counted by verb and resource, also that of others.
// It has the rows with a count for every tenth source in some phase.
func (m *monorepo) requestTable() string {
	var rows []row
	for _, key := range m.requestKinds() {
		of := func(p *phase) float64 { return p.after.apiServer.requests()[key] - p.before.apiServer.requests()[key] }
		if slices.ContainsFunc(m.phases, func(p phase) bool { return of(&p) >= float64(*monorepoPaths)/10 }) {
			rows = append(rows, row{key, func(p *phase) string { return number(of(p)) }})
		}
	}
	return m.tableOf(rows)
}

func (m *monorepo) requestKinds() []string {
	keys := map[string]bool{}
	for i := range m.phases {
		for key := range m.phases[i].after.apiServer.requests() {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// requests returns the requests that an API server has counted, by verb, resource, subresource
// and whether it was a dry run.
func (s series) requests() map[string]float64 {
	counted := map[string]float64{}
	for _, f := range s {
		if f.GetName() != "apiserver_request_total" {
			continue
		}
		for _, metric := range f.GetMetric() {
			of := map[string]string{}
			for _, l := range metric.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			key := of["verb"] + " " + of["resource"]
			if of["subresource"] != "" {
				key += "/" + of["subresource"]
			}
			if of["dry_run"] != "" {
				key += " (dry run)"
			}
			counted[key] += metric.GetCounter().GetValue()
		}
	}
	return counted
}

// row is one of the table.
type row struct {
	title string
	of    func(*phase) string
}

func (m *monorepo) tableOf(rows []row) string {
	head := []string{""}
	for i := range m.phases {
		head = append(head, m.phases[i].title)
	}
	lines := [][]string{head}
	for _, r := range rows {
		line := []string{r.title}
		for i := range m.phases {
			line = append(line, r.of(&m.phases[i]))
		}
		lines = append(lines, line)
	}
	return tabulate(lines)
}

func tabulate(lines [][]string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		_, _ = io.WriteString(w, strings.Join(line, "\t")+"\n") // into memory
	}
	_ = w.Flush()
	return b.String()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func number(n float64) string { return fmt.Sprintf("%.0f", n) }

func seconds(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// cost is what something took.
type cost struct{ wall, cpu time.Duration }

func (c *cost) add(other cost) { c.wall, c.cpu = c.wall+other.wall, c.cpu+other.cpu }

func (c *cost) times(n float64) cost {
	return cost{time.Duration(float64(c.wall) * n), time.Duration(float64(c.cpu) * n)}
}

// kubectlOf is one of so many kustomizations that are rendered with kubectl, too.
const kubectlOf = 10

// compare renders the kustomizations of the commit, one after the other, as the
// controller does and in other ways. It does the same for the one that a commit touched.
func (m *monorepo) compare(touched int) string {
	m.Helper()
	store := filesystem.NewStorage(osfs.New(m.repo.Bare), cache.NewObjectLRUDefault())
	var ours, library, kubectl cost
	var n, sample int
	for i := range *monorepoPaths {
		if isPlainYAML(i) {
			continue
		}
		ours.add(m.took(func() error { return renderTree(store, m.repo.Head(), appPath(i)) }))
		library.add(m.took(func() error { return renderDisk(m.repo.Work, appPath(i)) }))
		if n++; n%kubectlOf == 0 {
			sample++
			kubectl.add(m.run("", m.kubectl(), "kustomize", filepath.Join(m.repo.Work, appPath(i))))
		}
	}
	kubectl = kubectl.times(float64(n) / float64(sample))
	clone := filepath.Join(m.TempDir(), "clone")
	cloned := m.run("", "git", "clone", "--quiet", "--depth", "1", m.url, clone)
	rendered := m.run(clone, m.kubectl(), "kustomize", appPath(touched))
	one := m.phases[1]
	m.ReportMetric(milliseconds(ours.cpu)/float64(n), "render-cpu-ms")
	m.ReportMetric(milliseconds(kubectl.cpu)/float64(n), "kubectl-cpu-ms")
	line := func(what string, c cost) []string { return []string{what, seconds(c.wall), seconds(c.cpu)} }
	return tabulate([][]string{
		{"", "time", "CPU"},
		line(fmt.Sprintf("%d kustomizations, one after the other, from Git objects", n), ours),
		line("  by kustomize as a library, on a checkout", library),
		line(fmt.Sprintf("  by kubectl kustomize, on a checkout (%d of them, times %d)", sample, n/sample), kubectl),
		line("one path touched: from the push until the cluster has it (CPU: until the controller rests)", cost{one.applied, one.cpu()}),
		line("  git clone --depth 1", cloned),
		line("  kubectl kustomize of that path", rendered),
	})
}

// floor creates the same objects with server-side applies and nothing else, ten at the same
// time, with the controller's client settings.
func (m *monorepo) floor() string {
	m.Helper()
	config := rest.CopyConfig(m.c.Config)
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: m.c.Scheme})
	m.must(err)
	store, ns := filesystem.NewStorage(osfs.New(m.repo.Bare), cache.NewObjectLRUDefault()), m.c.Namespace(m)
	var objects []plan.Object
	rendered := m.took(func() error {
		for i := range *monorepoPaths {
			tree, err := gittree.Open(store, plumbing.NewHash(m.repo.Head()))
			m.must(err)
			of, err := manifest.Render(tree, appPath(i), manifest.RenderOptions{})
			m.must(err)
			objects = append(objects, of...)
		}
		return nil
	})
	next, refused := make(chan plan.Object), make(chan error, len(objects))
	applied := m.took(func() error {
		var workers sync.WaitGroup
		for range 10 {
			workers.Go(func() {
				for o := range next {
					o.SetNamespace(ns)
					refused <- c.Apply(m.Context(), client.ApplyConfigurationFromUnstructured(o.Unstructured), client.FieldOwner("floor"), client.ForceOwnership)
				}
			})
		}
		for _, o := range objects {
			next <- o
		}
		close(next)
		workers.Wait()
		close(refused)
		var all []error
		for err := range refused {
			all = append(all, err)
		}
		return errors.Join(all...)
	})
	return tabulate([][]string{
		{"", "time", "CPU"},
		{fmt.Sprintf("%d paths rendered in one process", *monorepoPaths), seconds(rendered.wall), seconds(rendered.cpu)},
		{fmt.Sprintf("%d objects applied, one request each, ten at a time", len(objects)), seconds(applied.wall), seconds(applied.cpu)},
	})
}

// took is what something took in this process.
func (m *monorepo) took(do func() error) cost {
	m.Helper()
	before, began := ownCPU(m), time.Now()
	m.must(do())
	return cost{time.Since(began), ownCPU(m) - before}
}

// renderTree renders a path as the controller does.
func renderTree(store *filesystem.Storage, commit, path string) error {
	tree, err := gittree.Open(store, plumbing.NewHash(commit))
	if err != nil {
		return err
	}
	objects, err := manifest.Render(tree, path, manifest.RenderOptions{})
	if err == nil && len(objects) < 4 {
		err = fmt.Errorf("%s: %d objects", path, len(objects))
	}
	return errors.Join(tree.Err(), err)
}

// renderDisk renders a path of a checkout by kustomize alone.
func renderDisk(checkout, path string) error {
	o := krusty.MakeDefaultOptions()
	o.LoadRestrictions = kustomize.LoadRestrictionsNone
	objects, err := krusty.MakeKustomizer(o).Run(filesys.MakeFsOnDisk(), filepath.Join(checkout, path))
	if err != nil {
		return err
	}
	_, err = objects.AsYaml()
	return err
}

func ownCPU(b *monorepo) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	b.must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func (m *monorepo) kubectl() string {
	m.Helper()
	root, err := clustertest.Root()
	m.must(err)
	return filepath.Join(root, "bin", "kubectl")
}

// run is what a program and its children take.
func (m *monorepo) run(dir, program string, args ...string) cost {
	m.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		m.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
	return cost{time.Since(began), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
}

// end stops the controller and removes the finalizers of the sources. Without a
// controller to prune, they would keep the namespace from being deleted.
func (m *monorepo) end() {
	m.Helper()
	m.process.stop()
	for i := range *monorepoPaths {
		gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: appName(i), Namespace: m.namespaceOf(i)}}
		m.must(client.IgnoreNotFound(m.c.Client.Patch(m.Context(), gs, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))))
	}
}
