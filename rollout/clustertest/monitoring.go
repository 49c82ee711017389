package clustertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Monitoring is a Prometheus that scrapes the traffic of a cluster's pods once a second.
// Each ready pod serves requests, as `devcluster traffic` says. The tag of its image
// changes them.
type Monitoring struct {
	// URL is the address of Prometheus. It stays when Prometheus is started again.
	URL string
	// Traffic is the address of the exporter.
	Traffic string

	binary, dir        string
	traffic, collector *part
}

// monitoring is what all tests of a package share.
type monitoring struct {
	once sync.Once
	m    *Monitoring
	err  error
}

// Monitoring returns the Prometheus that the tests of the cluster share. The first call
// starts it, and it ends with the cluster.
func (c *Cluster) Monitoring(t testing.TB) *Monitoring {
	t.Helper()
	c.monitoring.once.Do(func() { c.monitoring.m, c.monitoring.err = c.startMonitoring() })
	if c.monitoring.err != nil {
		t.Fatal(c.monitoring.err)
	}
	return c.monitoring.m
}

// StartMonitoring starts a Prometheus of the test's own, which may stop it, with flags of
// `devcluster traffic`. It ends with the test.
func (c *Cluster) StartMonitoring(t testing.TB, flags ...string) *Monitoring {
	t.Helper()
	m, err := c.startMonitoring(flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.end)
	return m
}

func (c *Cluster) startMonitoring(flags ...string) (*Monitoring, error) {
	m := &Monitoring{binary: filepath.Join(c.root, "bin", "devcluster")}
	if _, err := os.Stat(filepath.Join(c.root, "bin", "prometheus")); err != nil {
		return nil, fmt.Errorf("Prometheus is not built: run `make bin/prometheus` in %s", c.root)
	}
	var err error
	if m.dir, err = os.MkdirTemp("", "tranche-prometheus-"); err != nil {
		return nil, err
	}
	if m.traffic, err = startPart(m.binary, append([]string{"traffic", "--kubeconfig", c.Kubeconfig}, flags...)...); err == nil {
		m.Traffic = m.traffic.line
		err = m.start("0")
	}
	if err != nil {
		m.end()
		return nil, err
	}
	return m, nil
}

func (m *Monitoring) start(port string) (err error) {
	m.collector, err = startPart(m.binary, "prometheus", "--dir", m.dir, "--port", port, "--scrape", "traffic="+m.Traffic+"/metrics")
	if err == nil {
		m.URL = m.collector.line
	}
	return err
}

func (m *Monitoring) end() {
	for _, p := range []*part{m.collector, m.traffic} {
		if p != nil {
			p.stop()
		}
	}
	_ = os.RemoveAll(m.dir)
}

// Stop ends Prometheus. The exporter goes on. Other tests that share it get errors: a test
// that does this has one of its own.
func (m *Monitoring) Stop(t testing.TB) {
	t.Helper()
	m.collector.stop()
}

// Start starts Prometheus again at its address, with the series that it had.
func (m *Monitoring) Start(t testing.TB) {
	t.Helper()
	u, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.start(u.Port()); err != nil {
		t.Fatalf("starting Prometheus again: %v", err)
	}
}

// Change changes the traffic of the pods with an image tag in a namespace from now on, as
// `devcluster traffic` reads it from JSON.
func (m *Monitoring) Change(t testing.TB, namespace, tag, change string) {
	t.Helper()
	path := "/namespaces/" + url.PathEscape(namespace) + "/tags/" + url.PathEscape(tag)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, m.Traffic+path, strings.NewReader(change))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := answer(req, http.StatusNoContent); err != nil {
		t.Fatalf("changing the traffic of %s in %s: %v", tag, namespace, err)
	}
}

// Served returns how many requests have succeeded and failed by the exporter's own counts.
// It adds up those of the pods in a namespace whose names have a prefix.
func (m *Monitoring) Served(t testing.TB, namespace, prefix string) (ok, failed float64) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.Traffic+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := answer(req, http.StatusOK)
	if err != nil {
		t.Fatalf("reading the traffic: %v", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("reading the traffic: %v", err)
	}
	for _, metric := range families["http_requests_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range metric.Label {
			labels[l.GetName()] = l.GetValue()
		}
		switch {
		case labels["namespace"] != namespace || !strings.HasPrefix(labels["pod"], prefix):
		case strings.HasPrefix(labels["code"], "5"):
			failed += metric.Counter.GetValue()
		default:
			ok += metric.Counter.GetValue()
		}
	}
	return ok, failed
}

// Query returns the value of an instant query, and whether there is one. An answer with
// several series is an error.
func (m *Monitoring) Query(t testing.TB, query string) (float64, bool) {
	t.Helper()
	return m.QueryAt(t, query, time.Time{})
}

// QueryAt returns the value of an instant query at a time.
func (m *Monitoring) QueryAt(t testing.TB, query string, at time.Time) (float64, bool) {
	t.Helper()
	v, ok, err := m.query(t, query, at)
	if err != nil {
		t.Fatalf("querying Prometheus: %s: %v", query, err)
	}
	return v, ok
}

// WaitFor waits until an instant query has a value that is as wanted. Prometheus may be
// down meanwhile.
func (m *Monitoring) WaitFor(t testing.TB, query string, wanted func(v float64) bool) {
	t.Helper()
	Wait(t, query, func() error {
		v, ok, err := m.query(t, query, time.Time{})
		if err == nil && (!ok || !wanted(v)) {
			err = fmt.Errorf("its value is %v (there is one: %t)", v, ok)
		}
		return err
	})
}

// query asks for the value at a time; zero: now.
func (m *Monitoring) query(t testing.TB, query string, at time.Time) (v float64, ok bool, err error) {
	values := url.Values{"query": {query}}
	if !at.IsZero() {
		values.Set("time", at.Format(time.RFC3339Nano))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, m.URL+"/api/v1/query?"+values.Encode(), nil)
	if err != nil {
		return 0, false, err
	}
	text, err := answer(req, http.StatusOK)
	if err != nil {
		return 0, false, err
	}
	var found struct {
		Data struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return 0, false, fmt.Errorf("reading %q: %w", text, err)
	}
	series := make([]struct{ Value [2]any }, 1)
	if found.Data.ResultType == "scalar" {
		err = json.Unmarshal(found.Data.Result, &series[0].Value)
	} else {
		err = json.Unmarshal(found.Data.Result, &series)
	}
	switch {
	case err != nil || len(series) == 0:
		return 0, false, err
	case len(series) > 1:
		return 0, false, fmt.Errorf("several series: %s", text)
	}
	v, err = strconv.ParseFloat(fmt.Sprint(series[0].Value[1]), 64)
	return v, err == nil, err
}

// answer sends a request and returns the body of the answer, which must have a status.
func answer(req *http.Request, status int) ([]byte, error) {
	client := &http.Client{Timeout: 30 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != status {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return text, err
}

// part is a program that prints one line when it is up, and ends with this process.
type part struct {
	cmd  *exec.Cmd
	line string
}

func startPart(binary string, args ...string) (*part, error) {
	p := &part{cmd: exec.Command(binary, append(args, "--until-stdin-ends")...)}
	p.cmd.Env = withGC(componentGC)
	var stderr bytes.Buffer
	p.cmd.Stderr = &stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if _, err := p.cmd.StdinPipe(); err != nil { // it ends with this process, killed or not
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s %s: %w", binary, args[0], err)
	}
	late := time.AfterFunc(readyWithin, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	if p.line, err = bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not come up: %s", args[0], stderr.String()), p.cmd.Wait())
	}
	p.line = strings.TrimSpace(p.line)
	return p, nil
}

func (p *part) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	_ = p.cmd.Wait()
}
