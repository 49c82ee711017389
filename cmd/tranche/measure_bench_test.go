package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// process is the controller as a process of its own. So its memory, its CPU and its
// requests are measured apart from those of the benchmark.
type process struct {
	testing.TB
	cmd     *exec.Cmd
	address string // of its metrics
	all     *sampler
}

// newProcess starts `tranche controller` with these flags; it is stopped at the
// latest when the benchmark ends.
func newProcess(b *testing.B, c *clustertest.Cluster, binary string, flags ...string) *process {
	b.Helper()
	p := &process{TB: b, address: gittest.FreeAddress(b)}
	p.cmd = exec.Command(binary, append([]string{"controller", "--as", c.Controller.Impersonate.UserName,
		"--metrics-bind-address", p.address, "--metrics-secure=false", "--storage-path", b.TempDir(), "--log-level", "error"}, flags...)...)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.stop)
	p.all = newSampler(p.cmd.Process.Pid)
	return p
}

func (p *process) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it may have ended already
}

// program builds tranche.
func program(b *testing.B) string {
	b.Helper()
	binary := filepath.Join(b.TempDir(), "tranche")
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		b.Fatalf("building: %v: %s", err, out)
	}
	return binary
}

// memory is an entry of what Linux says of the process, in MiB.
func (p *process) memory(entry string) float64 {
	p.Helper()
	kib, ok := statusOf(p.cmd.Process.Pid)[entry]
	if !ok {
		p.Fatal("no " + entry)
	}
	return kib / 1024
}

// statusOf returns the entries in KiB of what Linux says of a process; none if it has ended.
func statusOf(pid int) map[string]float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil
	}
	entries := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "kB" {
			if kib, err := strconv.ParseFloat(fields[1], 64); err == nil {
				entries[strings.TrimSuffix(fields[0], ":")] = kib
			}
		}
	}
	return entries
}

// tick is the unit of times in /proc, on every architecture.
const tick = 10 * time.Millisecond

// cpu is what the process and its renderers have used so far.
func (p *process) cpu() time.Duration {
	p.Helper()
	own := ticksOf(p.cmd.Process.Pid)
	if own == nil {
		p.Fatal("the controller has ended")
	}
	ticks := own[0] + own[1] + own[2] + own[3] // those of renderers that have ended, too
	for _, child := range descendantsOf(p.cmd.Process.Pid) {
		if of := ticksOf(child); of != nil {
			ticks += of[0] + of[1] + of[2] + of[3]
		}
	}
	return ticks * tick
}

// cpuOfRenderers is the part of the renderers in cpu.
func (p *process) cpuOfRenderers() time.Duration {
	p.Helper()
	var own time.Duration
	if ticks := ticksOf(p.cmd.Process.Pid); ticks != nil {
		own = ticks[0] + ticks[1]
	}
	return p.cpu() - own*tick
}

// descendantsOf returns the processes that a process has started and that run, and those
// that these have started.
func descendantsOf(pid int) []int {
	var all []int
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil // the pattern is valid
	}
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(append(all, child), descendantsOf(child)...)
			}
		}
	}
	return all
}

// ticksOf returns utime, stime, cutime and cstime of a process; nil: it has ended.
func ticksOf(pid int) []time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // after the name, which may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return nil
	}
	ticks := make([]time.Duration, 4)
	for i, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return nil
		}
		ticks[i] = time.Duration(n)
	}
	return ticks
}

// scrape reads the metrics of the process.
func (p *process) scrape() series {
	p.Helper()
	_, text := get(p, "http://"+p.address+"/metrics", "")
	return parseMetrics(p, text)
}

// series are what a metrics endpoint says.
type series []*dto.MetricFamily

func parseMetrics(t testing.TB, text string) series {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var all series
	for _, f := range families {
		all = append(all, f)
	}
	return all
}

// sum is that of a metric's series with these labels: of a histogram, the
// number of observations. It says whether there is any.
func (s series) sum(name string, labels map[string]string) (sum float64, found bool) {
	for _, f := range s {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if has(m, labels) {
				found = true
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum, found
}

// has reports whether a series has these labels; one that is empty is one that
// it does not have.
func has(m *dto.Metric, labels map[string]string) bool {
	of := map[string]string{}
	for _, l := range m.GetLabel() {
		of[l.GetName()] = l.GetValue()
	}
	for name, value := range labels {
		if of[name] != value {
			return false
		}
	}
	return true
}

// alone waits until what other benchmarks have left is gone.
func alone(b *testing.B, c *clustertest.Cluster) {
	b.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; <-time.After(time.Second) {
		var list corev1.NamespaceList
		if err := c.Client.List(b.Context(), &list); err != nil {
			b.Fatal(err)
		}
		going := 0
		for _, ns := range list.Items {
			if ns.DeletionTimestamp != nil {
				going++
			}
		}
		if going == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d namespaces of other benchmarks do not go", going)
		}
	}
}
