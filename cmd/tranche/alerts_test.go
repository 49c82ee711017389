//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// monitored are two controllers with metrics, each a process. Faults can be made
// between them and the servers.
type monitored struct {
	*env
	api, git   *httptest.Server
	processes  []*monitoredProcess
	noLease    atomic.Bool // the API server refuses all requests for leases
	noStatus   atomic.Bool // it fails at each write of the status of a BatchRelease
	gitRefuses atomic.Bool // the Git server takes no credentials
	apiHangs   atomic.Bool // the API server does not answer requests for Services, also for lists of them
	fired      map[string]bool
}

type monitoredProcess struct {
	address string // of its metrics
	cmd     *exec.Cmd
	output  bytes.Buffer
	ended   chan struct{}
}

func newMonitored(t *testing.T) *monitored {
	t.Helper()
	m := &monitored{env: envOf(t, "web"), fired: map[string]bool{}}
	server := gittest.Serve(t, filepath.Dir(m.bare), gittest.ServeOptions{})
	m.git = m.between(server.URL, nil, func(*http.Request) int {
		if m.gitRefuses.Load() {
			return http.StatusUnauthorized
		}
		return 0
	})
	transport, err := rest.TransportFor(m.c.Config)
	m.must(err)
	m.api = m.between(m.c.Config.Host, transport, func(q *http.Request) int {
		for m.apiHangs.Load() && strings.Contains(q.URL.Path, "/services") && q.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		lease := strings.Contains(q.URL.Path, "/leases")
		status := q.Method != http.MethodGet && strings.Contains(q.URL.Path, "/batchreleases/") && strings.HasSuffix(q.URL.Path, "/status")
		if lease && m.noLease.Load() || status && m.noStatus.Load() {
			return http.StatusInternalServerError
		}
		return 0
	})
	m.start()
	m.start()
	m.must(m.c.Client.Create(t.Context(), &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: "source", Namespace: m.ns, Labels: map[string]string{labelOwn: m.ns}},
		Spec: v1alpha1.GitSourceSpec{
			URL: m.git.URL + "/" + filepath.Base(m.bare), Path: ".",
			Interval: metav1.Duration{Duration: time.Second}, Timeout: metav1.Duration{Duration: 5 * time.Minute},
		},
	}))
	m.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	return m
}

// between is a proxy that answers itself where fails has a status.
func (m *monitored) between(to string, transport http.RoundTripper, fails func(*http.Request) int) *httptest.Server {
	m.Helper()
	u, err := url.Parse(to)
	m.must(err)
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(u) },
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if code := fails(q); code != 0 {
			http.Error(w, "made by a test", code)
			return
		}
		proxy.ServeHTTP(w, q)
	}))
	m.Cleanup(s.CloseClientConnections)
	return s
}

// start starts a controller.
func (m *monitored) start() {
	m.Helper()
	p := &monitoredProcess{address: gittest.FreeAddress(m), ended: make(chan struct{})}
	kubeconfig := kubeconfigOf(m, m.api.URL)
	p.cmd = exec.Command(os.Args[0], "controller", "--as", m.c.Controller.Impersonate.UserName, "--leader-elect",
		"--leader-election-namespace", m.ns,
		m.ownOnly(), "--storage-path", m.TempDir(), "--log-encoding", "console",
		"--metrics-bind-address", p.address, "--metrics-secure=false")
	p.cmd.Env = append(os.Environ(), asTranche+"=1", "KUBECONFIG="+kubeconfig)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	m.must(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the state says how
		close(p.ended)
	}()
	m.processes = append(m.processes, p)
	m.Cleanup(func() {
		m.kill(p)
		if m.Failed() {
			m.Logf("controller %s: %s", p.address, p.output.String())
		}
	})
}

// pair starts processes until two run, as the Deployment of the controller does. On a
// busy machine, one that could not renew its lease in time has ended.
func (m *monitored) pair() {
	m.Helper()
	running := 0
	for _, p := range m.processes {
		select {
		case <-p.ended:
		default:
			running++
		}
	}
	for ; running < 2; running++ {
		m.start()
	}
}

func (m *monitored) kill(p *monitoredProcess) {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// addresses are those of all processes, also of those that have ended: their targets
// stay for a while.
func (m *monitored) addresses() []string {
	var all []string
	for _, p := range m.processes {
		all = append(all, p.address)
	}
	return all
}

// value is a metric of a process, in this test's namespace; false: there is none.
func (m *monitored) value(address, name string, labels ...string) (sum float64, found bool) {
	m.Helper()
	for series, v := range newWatchdog(m).exposed(address) {
		if strings.HasPrefix(series, name+"{") && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			sum, found = sum+v, true
		}
	}
	return sum, found
}

// leader waits for a process that leads and has looked at the source, and returns it.
func (m *monitored) leader() *monitoredProcess {
	m.Helper()
	var leader *monitoredProcess
	clustertest.Wait(m, "a leader", func() error {
		for _, p := range m.processes {
			leads, _ := m.value(p.address, "tranche_leader")
			if _, looked := m.value(p.address, "tranche_source_condition", `namespace="`+m.ns+`"`); leads == 1 && looked {
				leader = p
				return nil
			}
		}
		return errors.New("there is none")
	})
	return leader
}

// goesUp waits until a counter of the leader is above what it was before something was done.
func (m *monitored) goesUp(do func(), name string, labels ...string) {
	m.Helper()
	address := m.leader().address
	before, _ := m.value(address, name, labels...)
	do()
	clustertest.Wait(m, name+" to go up", func() error {
		if now, _ := m.value(address, name, labels...); now <= before {
			return fmt.Errorf("it is %v still", now)
		}
		return nil
	})
}

// shows waits until the leader has a metric with a value.
func (m *monitored) shows(want float64, name string, labels ...string) {
	m.Helper()
	clustertest.Wait(m, fmt.Sprintf("%s%v to be %v", name, labels, want), func() error {
		if now, found := m.value(m.leader().address, name, labels...); !found || now != want {
			return fmt.Errorf("it is %v", now)
		}
		return nil
	})
}

// Each alert of config/monitoring fires by the fault that it is for, and resolves
// after it: over the metrics of real processes, by Prometheus' engine. It is not parallel:
// a leader that loses its lease to the load of other tests leaves a gap in the metrics.
func TestAlerts(t *testing.T) {
	m := newMonitored(t)
	m.leader()
	w := m.watch()
	w.pass(2 * time.Hour)
	w.expect("all is well")

	m.notScraped()
	m.gitFails()
	m.notSynced()
	m.commitRefused()
	m.rolledBack()
	m.gateWaits()
	m.stalled()
	m.errors()
	m.noLeader()
	m.namesInstances()
	for _, r := range rulesOf(t) {
		if r.Alert != "" && !m.fired[r.Alert] {
			t.Errorf("%s was not fired", r.Alert)
		}
	}
}

// watch is a Prometheus that begins now.
func (m *monitored) watch() *watchdog { return newWatchdog(m, m.addresses()...) }

// fires fails the test unless these alerts, and no others, fire.
func (m *monitored) fires(w *watchdog, when string, alerts ...string) {
	m.Helper()
	w.expect(when, alerts...)
	for _, a := range alerts {
		m.fired[a] = true
	}
}

func (m *monitored) notScraped() {
	m.Helper()
	leader, w := m.leader().address, m.watch()
	w.targets = slices.DeleteFunc(w.targets, func(a string) bool { return a == leader })
	w.pass(7 * time.Minute)
	m.fires(w, "only the standby is scraped", "TrancheLeaderNotScraped")
	w.targets = m.addresses()
	w.pass(5 * time.Minute)
	w.expect("the leader is scraped again")
}

// gitFails has a server that refuses what a source asks every four minutes.
func (m *monitored) gitFails() {
	m.Helper()
	w := m.watch()
	looks := func(counter string) {
		for range 8 {
			m.goesUp(func() {}, counter)
			w.step(4 * time.Minute)
		}
	}
	looks("tranche_git_exchange_duration_seconds_count")
	w.expect("Git answers")
	m.gitRefuses.Store(true)
	looks("tranche_git_exchange_errors_total")
	m.fires(w, "Git refuses", "TrancheGitFails", "TrancheSourceNotReady")
	m.gitRefuses.Store(false)
	m.shows(1, "tranche_source_condition", `condition="Ready"`, `status="True"`)
	looks("tranche_git_exchange_duration_seconds_count")
	w.expect("Git answers again")
}

// A push that fails for some seconds, and then not, is no alert. Whether the next one comes in a day does not matter.
func TestAlerts_ShortOutage(t *testing.T) {
	w := newWatchdog(t)
	const of = `{namespace="shop",source="shop",operation="push"}`
	exchanges := func(failed, all float64, d time.Duration) {
		t.Helper()
		for end := w.now.Add(d); w.now.Before(end); {
			w.now = w.now.Add(scrapeEvery)
			w.ingest("target", map[string]float64{
				"tranche_git_exchange_errors_total" + of: failed, "tranche_git_exchange_duration_seconds_count" + of: all,
				`tranche_leader{lease="tranche"}`: 1,
			})
			if w.evaluate(); len(w.firing) > 0 {
				t.Fatalf("%v fire with %v of %v failed", w.firing, failed, all)
			}
		}
	}
	exchanges(1, 10, time.Hour)
	exchanges(4, 14, time.Hour)
}

// notSynced has an API server that does not answer what a sync asks.
func (m *monitored) notSynced() {
	m.Helper()
	w := m.watch()
	timeout := func(d time.Duration) {
		m.Helper()
		gs := m.source()
		gs.Spec.Timeout.Duration = d
		change := fmt.Appendf(nil, `{"spec":{"timeout":%q}}`, d)
		m.must(m.c.Client.Patch(m.Context(), gs, client.RawPatch(types.MergePatchType, change)))
		clustertest.Wait(m, "the source to be synced with it", func() error {
			if now := m.source(); now.Status.ObservedGeneration != gs.Generation {
				return fmt.Errorf("generation %d", now.Status.ObservedGeneration)
			}
			return nil
		})
	}
	timeout(10 * time.Second) // a source may be as long without a sync as an exchange may take
	m.apiHangs.Store(true)
	m.shows(1, "tranche_source_stale")
	w.pass(5 * time.Minute)
	m.fires(w, "syncs hang", "TrancheSourceStale")
	m.apiHangs.Store(false)
	m.shows(0, "tranche_source_stale")
	timeout(5 * time.Minute)
	w.pass(5 * time.Minute)
	w.expect("syncs go on")
}

func (m *monitored) commitRefused() {
	m.Helper()
	w := m.watch()
	m.replace("service.yaml", "port: 80", "port: eighty")
	m.push("a mistake")
	m.shows(1, "tranche_source_condition", `condition="InSync"`, `status="False"`)
	w.pass(20 * time.Minute)
	m.fires(w, "refused for 20 minutes", "TrancheSourceNotReady")
	w.pass(45 * time.Minute)
	m.fires(w, "refused for more than an hour", "TrancheOutOfSync", "TrancheSourceNotReady")
	m.replace("service.yaml", "port: eighty", "port: 80")
	m.push("put right")
	m.shows(1, "tranche_source_condition", `condition="InSync"`, `status="True"`)
	w.pass(5 * time.Minute)
	w.expect("put right")
}

// rolledBack has a release that goes back by itself, and a leader that ends before it
// is scraped again.
func (m *monitored) rolledBack() {
	m.Helper()
	m.replace("release.yaml", "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 3\n    onFailure: Rollback\n")
	m.replace("deployment.yaml", "web:v1", "web:broken")
	m.push("web: a broken one")
	m.waitFor("web", "RolledBack", 2, map[string]int32{"v1": 10})
	m.kill(m.leader())
	m.start()
	m.leader()
	w := m.watch()
	w.pass(time.Minute)
	m.fires(w, "rolled back", "TrancheReleaseRolledBack")
	w.pass(15 * time.Minute)
	w.expect("a while after the rollback, which a person has to look at", "TrancheReleaseStalled")
	m.replace("release.yaml", "    progressDeadlineSeconds: 3\n    onFailure: Rollback\n", "")
	m.replace("deployment.yaml", "web:broken", "web:v2")
	m.push("web: v2")
	m.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
}

func (m *monitored) gateWaits() {
	m.Helper()
	w := m.watch()
	w.now = w.now.Add(time.Hour) // the rollback is long past
	w.pass(5 * time.Minute)
	w.expect("a gate that waits for an hour")
	w.now = w.now.Add(24 * time.Hour)
	w.pass(5 * time.Minute)
	m.fires(w, "a gate that waits for a day", "TrancheGateWaitsLong")
	m.approve(".", "web", 1)
	m.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	m.shows(0, "tranche_release_waiting_since_timestamp_seconds")
	w.pass(5 * time.Minute)
	w.expect("approved")
}

// stalled has a release that misses its deadline, and then no leader.
func (m *monitored) stalled() {
	m.Helper()
	m.replace("release.yaml", "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 3\n")
	m.replace("deployment.yaml", "web:v2", "web:broken")
	m.push("web: broken again")
	m.waitFor("web", "ProgressDeadlineExceeded", 0, nil)
	m.shows(1, "tranche_release_condition", `condition="Stalled"`, `status="True"`)
	w := m.watch()
	w.now = w.now.Add(time.Hour)
	w.pass(7 * time.Minute)
	m.fires(w, "stalled", "TrancheReleaseStalled")
	for _, p := range m.processes {
		m.kill(p)
	}
	w.pass(2 * time.Minute)
	w.expect("no controller for two minutes", "TrancheReleaseStalled")
	w.pass(time.Hour)
	m.fires(w, "no controller for an hour", "TrancheNoController", "TrancheReleaseStalled")
	m.start()
	m.start()
	m.leader()
	w.targets = m.addresses()
	m.shows(1, "tranche_release_condition", `condition="Stalled"`, `status="True"`)
	w.pass(5 * time.Minute)
	w.expect("a controller, and the release stalled as before", "TrancheReleaseStalled")
	m.replace("deployment.yaml", "web:broken", "web:v2")
	m.push("web: v2 again")
	m.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	m.shows(0, "tranche_release_condition", `condition="Stalled"`, `status="True"`)
	w.pass(5 * time.Minute)
	w.expect("repaired")
}

// errors has an API server that fails at a write, and a leader that ends meanwhile.
func (m *monitored) errors() {
	m.Helper()
	w := m.watch()
	w.now = w.now.Add(time.Hour)
	fails := func(n int) {
		for i := range n {
			edit := fmt.Sprintf(`{"spec":{"strategy":{"progressDeadlineSeconds":%d}}}`, 100+i)
			m.goesUp(func() {
				if out, err := m.c.Kubectl(m, "patch", "batchrelease", "web", "-n", m.ns, "--type=merge", "-p", edit); err != nil {
					m.Fatalf("%v: %s", err, out)
				}
			}, "controller_runtime_reconcile_errors_total", `controller="batchrelease"`)
			w.step(time.Minute)
		}
	}
	w.pass(5 * time.Minute)
	w.expect("before")
	m.noStatus.Store(true)
	fails(10)
	m.kill(m.leader())
	m.start()
	w.targets = m.addresses()
	fails(10)
	m.fires(w, "the API server fails", "TrancheControllerErrors")
	m.noStatus.Store(false)
	w.pass(10 * time.Minute)
	w.expect("it works again")
}

// noLeader has an API server that refuses all requests for leases. A source that was not ready is
// deleted before.
func (m *monitored) noLeader() {
	m.Helper()
	m.pair()
	leader, w := m.leader(), m.watch()
	w.now = w.now.Add(time.Hour)
	gone := &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: "gone", Namespace: m.ns, Labels: map[string]string{labelOwn: m.ns}},
		Spec:       v1alpha1.GitSourceSpec{URL: m.git.URL + "/" + filepath.Base(m.bare), Path: "nowhere"},
	}
	m.must(m.c.Client.Create(m.Context(), gone))
	m.shows(1, "tranche_source_condition", `source="gone"`, `condition="Ready"`, `status="False"`)
	w.pass(20 * time.Minute)
	w.expect("a source that is not ready", "TrancheSourceNotReady")
	m.must(m.c.Client.Delete(m.Context(), gone))
	clustertest.Wait(m, "no metrics of what is deleted", func() error {
		if _, found := m.value(leader.address, "tranche_source_condition", `source="gone"`); found {
			return errors.New("there are some")
		}
		return nil
	})
	w.pass(5 * time.Minute)
	w.expect("the source is deleted")
	m.noLease.Store(true)
	<-leader.ended
	clustertest.Wait(m, "the others to see no leader", func() error {
		for _, p := range m.processes {
			if held, found := m.value(p.address, "tranche_lease_held"); found && held != 0 {
				return fmt.Errorf("%s sees one", p.address)
			}
		}
		return nil
	})
	w.pass(20 * time.Minute)
	m.fires(w, "no leader", "TrancheNoLeader")
}

// namesInstances fails the test where an event does not say which process wrote it: in
// a pod, the host's name is the pod's.
func (m *monitored) namesInstances() {
	m.Helper()
	host, err := os.Hostname()
	m.must(err)
	var list eventsv1.EventList
	m.must(m.c.Client.List(m.Context(), &list, client.InNamespace(m.ns)))
	ours := 0
	for _, e := range list.Items {
		if !strings.HasPrefix(e.ReportingController, "tranche") {
			continue
		}
		if ours++; !strings.HasSuffix(e.ReportingInstance, host) {
			m.Errorf("event %s of %s %s is by instance %q of host %s", e.Reason, e.Regarding.Kind, e.Regarding.Name, e.ReportingInstance, host)
		}
	}
	if ours == 0 {
		m.Error("there is no event")
	}
}
