package rollout_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

var (
	rollDeployments = flag.Int("deployments", 100, "Deployments of each kind in BenchmarkReleases")
	rollRounds      = flag.Int("rounds", 5, "how often BenchmarkReleases alternates between native rollouts and releases")
	rollMany        = flag.Int("many", 1000, "Deployments of BenchmarkManyReleases")
)

const rollPods = 10

// contest is what BenchmarkReleases compares: the same number of Deployments, rolled
// natively, released in one step, and in three with open gates. All have 25 %/25 %. A fourth
// number of them is rolled by the least that is possible beside the native controller.
type contest struct {
	*testing.B
	native, one, three *field
	bare               *field // its plans have no controller
	calls              requests
	tags               int
	times              map[string][]time.Duration
	ratios             map[string][]float64
}

// The names of the measurements.
const (
	nativeAlone = "native, alone"
	floorAlone  = "hold, sizes and hand-back, nothing else, alone"
	guardAlone  = "the same with labels and a status, alone"
	oneAlone    = "one step, alone"
	threeAlone  = "three open steps, alone"
	nativeByOne = "native beside one step"
	oneBeside   = "one step beside native"
	nativeBy3   = "native beside three open steps"
	threeBeside = "three open steps beside native"
)

// BenchmarkReleases measures from the first change to the last pod of all Deployments, by a
// watch of the ReplicaSets. Native rollouts and releases alternate, so that what else the
// machine does meets both. It prints medians, and the least and the most.
func BenchmarkReleases(b *testing.B) {
	c := clustertest.Shared(b)
	for b.Loop() {
		k := &contest{B: b, times: map[string][]time.Duration{}, ratios: map[string][]float64{}, tags: 1}
		for _, f := range []**field{&k.native, &k.one, &k.three, &k.bare} {
			*f = newField(b, c, *rollDeployments, rollPods)
		}
		k.bare.write([]string{"100%"}, "v1")
		for _, f := range []*field{k.one, k.three} {
			startReconciler(b, c, f.ns, rollout.Options{Concurrent: defaultConcurrent}, func(*ctrl.Options) {}, k.calls.count)
		}
		k.one.plan([]string{"100%"}, "v1")
		k.three.plan([]string{"20%", "50%", "100%"}, "v1")
		for range *rollRounds {
			k.round()
		}
		fmt.Printf("\n\n%s\n%s\n%s\n", versions(c), k.table(), k.latencies()) // b.Log shows ten lines
		b.ReportMetric(0, "ns/op")
	}
}

// defaultConcurrent is the controller's default of --concurrent.
const defaultConcurrent = 10

// round takes each measurement once.
func (k *contest) round() {
	k.Helper()
	native := k.alone(nativeAlone, k.native)
	k.ratio(floorAlone, k.took(floorAlone, k.bare.bringHeld(k.tag(), false).took), native)
	k.ratio(guardAlone, k.took(guardAlone, k.bare.bringHeld(k.tag(), true).took), native)
	k.ratio(oneAlone, k.alone(oneAlone, k.one), native)
	k.ratio(threeAlone, k.alone(threeAlone, k.three), native)
	k.beside(nativeByOne, oneBeside, k.one)
	k.beside(nativeBy3, threeBeside, k.three)
}

// tag is one that no Deployment has run.
func (k *contest) tag() string {
	k.tags++
	return fmt.Sprintf("v%d", k.tags)
}

func (k *contest) took(what string, took time.Duration) time.Duration {
	k.times[what] = append(k.times[what], took)
	return took
}

func (k *contest) ratio(what string, ours, native time.Duration) {
	k.ratios[what] = append(k.ratios[what], ours.Seconds()/native.Seconds())
}

func (k *contest) alone(what string, f *field) time.Duration {
	k.Helper()
	r, evaluated := f.observe(k.tag(), false), k.evaluations()
	f.bring(r.tag)
	r.wait()
	if f.planned {
		f.completed()
		name, _, _ := strings.Cut(what, ",")
		k.ReportMetric((k.evaluations()-evaluated)/float64(f.n), strings.ReplaceAll(name, " ", "-")+"-evaluations/release")
	}
	return k.took(what, r.took)
}

// evaluations is how often the API server has evaluated the policy tranche-held-replicasets
// for writes of the controllers, which it lets pass.
func (k *contest) evaluations() float64 {
	k.Helper()
	metrics, err := k.native.c.Kubectl(k, "get", "--raw", "/metrics")
	if err != nil {
		k.Fatalf("reading the API server's metrics: %v: %s", err, metrics)
	}
	var sum float64
	for _, m := range evaluationsMetric.FindAllStringSubmatch(metrics, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			k.Fatal(err)
		}
		sum += n
	}
	return sum
}

var evaluationsMetric = regexp.MustCompile(
	`(?m)^apiserver_admission_match_condition_evaluation_seconds_count\{[^}]*name="tranche-held-replicasets"[^}]*\} (\S+)`)

// beside brings a tag natively and by plans at the same time. Releases cost at most so many
// writes.
func (k *contest) beside(native, ours string, f *field) {
	k.Helper()
	k.calls.forget()
	theirs, own := k.native.observe(k.tag(), false), f.observe(k.tag(), false)
	var both sync.WaitGroup
	for _, r := range []*roll{theirs, own} {
		both.Go(func() { r.bring(r.tag) })
		both.Go(func() { r.wait() })
	}
	both.Wait()
	f.completed()
	k.took(native, theirs.took)
	k.ratio(ours, k.took(ours, own.took), theirs.took)
	n := float64(f.n)
	for _, cost := range []struct {
		what string
		made int
		most float64
	}{
		{"writes of the Deployment", k.calls.of("PATCH", "/deployments/"), 3}, // a conflict repeats one
		{"writes of ReplicaSets", k.calls.of("PATCH", "/replicasets/") + k.calls.of("POST", "/replicasets"), 20},
		{"writes of the status", k.calls.of("PUT", "/status"), 6 + rollPods}, // a pod that becomes ready alone is written alone
		{"conflicts", k.calls.conflicts(), 4},
	} {
		each := float64(cost.made) / n
		k.ReportMetric(each, strings.ReplaceAll(cost.what, " ", "-")+"/release")
		if each > cost.most {
			k.Errorf("%s: %.1f %s for each release, and %.1f are the most", ours, each, cost.what, cost.most)
		}
	}
}

func (k *contest) table() string {
	lines := [][]string{{fmt.Sprintf("%d Deployments of %d pods", k.native.n, rollPods), "median", "least", "most", "to native", "least", "most"}}
	for _, what := range []string{nativeAlone, floorAlone, guardAlone, oneAlone, threeAlone, nativeByOne, oneBeside, nativeBy3, threeBeside} {
		times := slices.Sorted(slices.Values(k.times[what]))
		ratios := slices.Sorted(slices.Values(k.ratios[what]))
		line := []string{what, inSeconds(middle(times)), inSeconds(times[0]), inSeconds(times[len(times)-1]), "", "", ""}
		if len(ratios) > 0 {
			line = line[:4]
			for _, ratio := range []float64{middle(ratios), ratios[0], ratios[len(ratios)-1]} {
				line = append(line, fmt.Sprintf("%.2f", ratio))
			}
		}
		lines = append(lines, line)
	}
	return tabulate(lines)
}

// latencies rolls once more, with the pods watched, too.
func (k *contest) latencies() string {
	k.Helper()
	lines := [][]string{{"until the next ReplicaSet is written", "p50", "p99", "most", "of", "sizes for each Deployment"}}
	for _, f := range []*field{k.native, k.one} {
		who := "native"
		if f.planned {
			who = "one step"
		}
		r := f.observe(k.tag(), true)
		f.bring(r.tag)
		r.wait()
		if f.planned {
			f.completed()
		}
		lines = append(lines, r.latency(who+", since a pod became ready", r.afterReady))
		lines = append(lines, r.latency(who+", since the ReplicaSet counts it", r.afterCounted))
	}
	return tabulate(lines)
}

func (r *roll) latency(what string, waits []time.Duration) []string {
	r.Helper()
	if len(waits) == 0 {
		r.Fatalf("%s: nothing was written", what)
	}
	slices.Sort(waits)
	return []string{
		what, inMillis(middle(waits)), inMillis(waits[len(waits)*99/100]), inMillis(waits[len(waits)-1]),
		fmt.Sprint(len(waits)), fmt.Sprintf("%.1f", float64(r.sizes)/float64(r.n)),
	}
}

// manyNamespaces share the Deployments of BenchmarkManyReleases: the policy of ReplicaSets is
// evaluated for each held Deployment of a namespace.
const manyNamespaces = 10

// BenchmarkManyReleases rolls very many Deployments natively, and then releases all of them at
// once, in one step and with one controller.
func BenchmarkManyReleases(b *testing.B) {
	c := clustertest.Start(b, "--nodes", fmt.Sprint(*rollMany*rollPods*3/2/1000+1))
	for b.Loop() {
		var fields []*field
		namespaces := map[string]cache.Config{}
		for range manyNamespaces {
			f := newField(b, c, *rollMany/manyNamespaces, rollPods)
			fields, namespaces[f.ns] = append(fields, f), cache.Config{}
		}
		title := fmt.Sprintf("%d Deployments of %d pods in %d namespaces, at once", *rollMany, rollPods, manyNamespaces)
		lines := [][]string{{title, "time", "sizes for each", "CPU of this process"}}
		measure := func(what, tag string) {
			var rolls []*roll
			for _, f := range fields {
				rolls = append(rolls, f.observe(tag, false))
			}
			var all sync.WaitGroup
			began, cpu, sizes := time.Now(), cpuTime(b), 0
			for _, r := range rolls {
				all.Go(func() { r.bring(tag) })
				all.Go(func() { r.wait() })
			}
			all.Wait()
			took := time.Since(began)
			for _, r := range rolls {
				sizes += r.sizes
			}
			each := fmt.Sprintf("%.1f", float64(sizes)/float64(*rollMany))
			lines = append(lines, []string{what, inSeconds(took), each, inSeconds(cpuTime(b) - cpu)})
		}
		measure("native", "v2")
		ofAll := func(o *ctrl.Options) { o.Cache.DefaultNamespaces = namespaces }
		startReconciler(b, c, fields[0].ns, rollout.Options{Concurrent: defaultConcurrent}, ofAll)
		for _, f := range fields {
			f.plan([]string{"100%"}, "v2")
		}
		measure("one step", "v3")
		for _, f := range fields {
			f.completed()
		}
		fmt.Printf("\n\n%s\n%s\n", versions(c), tabulate(lines))
		b.ReportMetric(0, "ns/op")
	}
}

// versions names the machine and what runs there.
func versions(c *clustertest.Cluster) string {
	model := ""
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, rest, _ := strings.Cut(string(text), "model name")
		line, _, _ := strings.Cut(rest, "\n")
		model = strings.TrimLeft(line, "\t :")
	}
	tranche := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				tranche = s.Value
			}
		}
	}
	return fmt.Sprintf("%d cores of %s, %s, Kubernetes 1.%d, Tranche %s", runtime.NumCPU(), model, runtime.Version(), c.Minor, tranche)
}

// middle is the median of what is sorted.
func middle[T any](sorted []T) T { return sorted[len(sorted)/2] }

func inSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func inMillis(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

func tabulate(lines [][]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		_, _ = fmt.Fprintln(w, strings.Join(line, "\t"))
	}
	_ = w.Flush()
	return text.String()
}
