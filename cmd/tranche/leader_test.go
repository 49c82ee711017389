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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// replicas are three controllers, each a process, of which one leads. All that they
// say to the API server and to the Git server goes through this test.
type replicas struct {
	*env
	git *url.URL

	mu      sync.Mutex
	log     []saying
	by      map[string]*replica
	strikes func(r *http.Request) bool // the fault comes with the first request for which it is true
	fault   leaderFault
	struck  *replica // to which the last fault came
}

// saying is a write as it arrives, or that a replica has the lease from now on.
type saying struct {
	by, line string
	leads    bool
	at       time.Time
}

type replica struct {
	name   string
	cmd    *exec.Cmd
	output bytes.Buffer
	ended  chan struct{}
	proxy  *httptest.Server

	mu  sync.Mutex
	cut bool // requests for the lease are swallowed
}

// leaderFault is what happens to a leader.
type leaderFault int

const (
	suspended leaderFault = iota // until another one has begun
	killed
	cutOff // from its lease; the request with which that comes is not answered either
)

func (f leaderFault) String() string { return [...]string{"suspended", "killed", "cut off"}[f] }

// leaseHeader marks a request that takes or renews the lease.
const leaseHeader = "X-Test-Lease"

// threeReplicas of the controller follow a repository, which edit may add to.
func threeReplicas(t *testing.T, edit func(*env)) *replicas {
	t.Helper()
	return newReplicas(t, edit, "a", "b", "c")
}

// newReplicas starts replicas of these names.
func newReplicas(t testing.TB, edit func(*env), names ...string) *replicas {
	t.Helper()
	s := envOf(t, "web")
	if edit != nil {
		edit(s)
	}
	server := gittest.Serve(t, filepath.Dir(s.bare), gittest.ServeOptions{})
	git, err := url.Parse(server.URL)
	s.must(err)
	rs := &replicas{env: s, git: git, by: map[string]*replica{}}
	for _, name := range names {
		rs.start(name)
	}
	t.Cleanup(func() {
		for _, r := range rs.by {
			_ = r.cmd.Process.Kill() // it may have ended
			<-r.ended
			if t.Failed() {
				t.Logf("replica %s: %s", r.name, r.output.String())
			}
		}
	})
	return rs
}

// follow makes the GitSource, of a host that only the replicas' proxies know.
func (rs *replicas) follow(edit ...func(*v1alpha1.GitSource)) {
	rs.Helper()
	gs := &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: "source", Namespace: rs.ns, Labels: map[string]string{labelOwn: rs.ns}},
		Spec: v1alpha1.GitSourceSpec{
			URL: "http://git.example.org/" + filepath.Base(rs.bare), Path: ".",
			Interval: metav1.Duration{Duration: time.Second}, Timeout: metav1.Duration{Duration: 5 * time.Minute},
		},
	}
	for _, e := range edit {
		e(gs)
	}
	rs.must(rs.c.Client.Create(rs.Context(), gs))
}

// kubeconfigOf writes a kubeconfig for a server, and returns its path.
func kubeconfigOf(t testing.TB, server string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "%s"}}]
users: [{name: test, user: {}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, server)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (rs *replicas) start(name string) {
	rs.Helper()
	r := &replica{name: name, ended: make(chan struct{})}
	r.proxy = httptest.NewServer(rs.between(r))
	rs.Cleanup(r.proxy.CloseClientConnections)
	kubeconfig := kubeconfigOf(rs, r.proxy.URL)
	r.cmd = exec.Command(os.Args[0], "controller", "--as", rs.c.Controller.Impersonate.UserName, "--leader-elect",
		"--leader-election-namespace", rs.ns,
		rs.ownOnly(), "--storage-path", rs.TempDir(), "--log-encoding", "console")
	r.cmd.Env = append(os.Environ(), asTranche+"=1", "KUBECONFIG="+kubeconfig, "HTTP_PROXY="+r.proxy.URL, "NO_PROXY=127.0.0.1")
	r.cmd.Stdout, r.cmd.Stderr = &r.output, &r.output
	rs.must(r.cmd.Start())
	rs.by[name] = r
	go func() {
		_ = r.cmd.Wait() // the state says how
		close(r.ended)
	}()
}

// asks reports whether a request decides nothing. An event is of what was before: it may
// have been on its way when its sender was suspended.
func asks(q *http.Request) bool {
	return q.Method == http.MethodGet || q.URL.Query().Has("dryRun") || strings.HasSuffix(q.URL.Path, "reviews") ||
		strings.HasSuffix(q.URL.Path, "/events") || strings.HasSuffix(q.URL.Path, "/git-upload-pack")
}

// between is what stands between a replica and both servers.
func (rs *replicas) between(r *replica) http.Handler {
	transport, err := rest.TransportFor(rs.c.Config)
	rs.must(err)
	api, err := url.Parse(rs.c.Config.Host)
	rs.must(err)
	quiet := log.New(io.Discard, "", 0)
	kubernetes := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: quiet,
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(api) },
		ModifyResponse: func(answer *http.Response) error {
			if answer.Request.Header.Get(leaseHeader) != "" && answer.StatusCode < 300 {
				rs.say(saying{by: r.name, line: "leads", leads: true})
			}
			return nil
		},
	}
	git := &httputil.ReverseProxy{FlushInterval: -1, ErrorLog: quiet, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(rs.git) }}
	host, err := os.Hostname()
	rs.must(err)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		lease := strings.Contains(q.URL.Path, "/leases")
		if lease && r.isCut() {
			<-q.Context().Done()
			return
		}
		isGit := q.URL.Host == "git.example.org"
		if !asks(q) && !lease {
			rs.say(saying{by: r.name, line: q.Method + " " + q.URL.Path})
		}
		if lease && q.Method != http.MethodGet { // one that gives it up names no holder
			body, err := io.ReadAll(q.Body)
			if err != nil {
				return
			}
			q.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(host+"_")) {
				q.Header.Set(leaseHeader, "true")
			}
		}
		if rs.strike(r, q) {
			<-q.Context().Done()
			return
		}
		if isGit {
			git.ServeHTTP(w, q)
		} else {
			kubernetes.ServeHTTP(w, q)
		}
	})
}

func (rs *replicas) say(s saying) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	s.at = time.Now()
	rs.log = append(rs.log, s)
}

func (r *replica) isCut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}

func (r *replica) cutOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = true
}

// strike lets the fault come with a request of a replica, and reports whether that is swallowed.
func (rs *replicas) strike(r *replica, q *http.Request) (swallowed bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.strikes == nil || !rs.strikes(q) {
		return false
	}
	rs.strikes, rs.struck = nil, r
	switch rs.fault {
	case suspended:
		_ = r.cmd.Process.Signal(syscall.SIGSTOP) // it runs: it has just asked
	case killed:
		_ = r.cmd.Process.Kill()
	case cutOff:
		r.cutOff()
	}
	return rs.fault != suspended
}

// strikeAt lets a fault come to the leader with a request. On a busy machine, that may be another
// one than now: one that cannot renew its lease in time ends.
func (rs *replicas) strikeAt(f leaderFault, strikes func(*http.Request) bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.fault, rs.strikes, rs.struck = f, strikes, nil
}

// leader waits until another one than before leads.
func (rs *replicas) leader(before *replica) *replica {
	rs.Helper()
	var leader *replica
	clustertest.Wait(rs, "a leader", func() error {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		leader = nil
		for _, s := range rs.log {
			if s.leads {
				leader = rs.by[s.by]
			}
		}
		if leader == nil || leader == before {
			return errors.New("there is none, or it is the one before")
		}
		return nil
	})
	return leader
}

func (rs *replicas) signal(r *replica, s syscall.Signal) {
	rs.Helper()
	rs.must(r.cmd.Process.Signal(s))
}

// isStruck waits until the fault has come, and returns to whom.
func (rs *replicas) isStruck() (old *replica) {
	rs.Helper()
	clustertest.Wait(rs, "a leader to be struck", func() error {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		if old = rs.struck; old == nil {
			return errors.New("all run")
		}
		return nil
	})
	return old
}

// over ends a fault, and waits until the old leader has ended.
func (rs *replicas) over(old *replica) {
	rs.Helper()
	if rs.fault == suspended {
		rs.signal(old, syscall.SIGCONT)
	}
	rs.ends(old)
}

// ends waits until a replica has ended, with an exit code that is an error.
func (rs *replicas) ends(r *replica) {
	rs.Helper()
	clustertest.Wait(rs, "the old leader to end", func() error {
		select {
		case <-r.ended:
			return nil
		default:
			return errors.New("it runs")
		}
	})
	if r.cmd.ProcessState.ExitCode() == 0 {
		rs.Errorf("it exits with 0: %s", r.output.String())
	}
}

// judge fails where a replica has written since another one leads.
func (rs *replicas) judge() {
	rs.Helper()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	leader, writes := "", 0
	for _, s := range rs.log {
		switch {
		case s.leads:
			leader = s.by
		case s.by != leader:
			rs.Errorf("%s leads, and %s writes: %s", leader, s.by, s.line)
		default:
			writes++
		}
	}
	if writes == 0 {
		rs.Error("nothing was written through the proxies")
	}
}

// toGate releases v2 as far as the first gate.
func (rs *replicas) toGate() {
	rs.Helper()
	rs.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	rs.replace("deployment.yaml", "web:v1", "web:v2")
	rs.push("web: v2")
	rs.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
}

// goOn approves the steps of a tag from one on, to the end.
func (rs *replicas) goOn(from int, tag string) {
	rs.Helper()
	for step := from; step < 2; step++ {
		rs.approve(".", "web", step)
		if step == 0 {
			rs.waitFor("web", "WaitingForApproval", 1, nil)
		}
	}
	rs.waitFor("web", "ReleaseCompleted", 2, map[string]int32{tag: 10})
	rs.untouched("web")
}

// A leader that is suspended in the middle of a release until another one has decided
// otherwise writes nothing when it goes on, and ends.
func TestLeader_Suspended(t *testing.T) {
	t.Parallel()
	rs := threeReplicas(t, nil)
	rs.follow()
	rs.toGate()
	old := rs.leader(nil)
	rs.signal(old, syscall.SIGSTOP)
	rs.leader(old)
	rs.approve(".", "web", 0)
	rs.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	rs.replace("deployment.yaml", "web:v2", "web:v3")
	rs.push("web: v3")
	rs.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v3": 2})
	rs.signal(old, syscall.SIGCONT)
	rs.approve(".", "web", 0) // so that there is something to do for both
	rs.ends(old)
	rs.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v3": 5})
	rs.goOn(1, "v3")
	rs.judge()
}

// A fault in the middle of the first sync: the rest is applied by the new leader alone.
func TestLeader_InFirstSync(t *testing.T) {
	t.Parallel()
	for _, f := range []leaderFault{suspended, killed, cutOff} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			const maps = 40
			rs := threeReplicas(t, func(s *env) {
				for i := range maps {
					s.write(fmt.Sprintf("map-%02d.yaml", i), fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: map-%02d}\n", i))
				}
				s.push("maps")
			})
			applied := 0
			rs.strikeAt(f, func(q *http.Request) bool {
				if q.Method == http.MethodPatch && strings.Contains(q.URL.Path, "/configmaps/") && !q.URL.Query().Has("dryRun") {
					applied++
				}
				return applied == maps/2
			})
			rs.follow()
			old := rs.isStruck()
			rs.leader(old)
			rs.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
			rs.applied(rs.run(rs.clone, "git", "rev-parse", "HEAD"))
			rs.over(old)
			rs.judge()
			if out, err := rs.c.Kubectl(t, "get", "configmaps", "-n", rs.ns, "-o", "name"); err != nil || strings.Count(out, "/map-") != maps {
				t.Errorf("%d ConfigMaps: %v", strings.Count(out, "/map-"), err)
			}
		})
	}
}

// A fault right before it pushes what it writes back: the new leader has pushed it.
func TestLeader_InWriteBack(t *testing.T) {
	t.Parallel()
	for _, f := range []leaderFault{suspended, killed, cutOff} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			rs := threeReplicas(t, nil)
			rs.follow(func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true} })
			rs.toGate()
			rs.strikeAt(f, atPush)
			if out, err := rs.c.Kubectl(t, "patch", "batchrelease", "web", "-n", rs.ns, "--subresource=status", "--type=merge", "-p",
				`{"status":{"currentStepState":"Completed"}}`); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			old := rs.isStruck()
			rs.leader(old)
			commits := func() string { return rs.run(rs.bare, "git", "log", "--format=%s", "main") }
			clustertest.Wait(t, "the approval to be written back", func() error {
				if now := commits(); strings.Count(now, "\n") != 2 {
					return errors.New(now)
				}
				return nil
			})
			rs.over(old)
			rs.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
			rs.run(rs.clone, "git", "pull", "--quiet", "--rebase", "origin", "main")
			rs.goOn(1, "v2")
			rs.judge()
			if now := commits(); strings.Count(now, "\n") != 3 {
				t.Errorf("three commits and one written back, and it has\n%s", now)
			}
		})
	}
}

// atPush is where a leader asks the Git server whether it takes a push.
func atPush(q *http.Request) bool { return q.URL.Query().Get("service") == "git-receive-pack" }

// A leader is suspended right before it pushes a revert. The new leader has pushed the
// revert, and the old one pushes nothing when it goes on.
func TestLeader_InRevert(t *testing.T) {
	t.Parallel()
	rs := threeReplicas(t, nil)
	rs.follow(func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true} })
	rs.toGate()
	subjects := func() string { return rs.run(rs.bare, "git", "log", "--format=%s", "main") }
	want := "Revert \"web: v2\"\n" + subjects()
	rs.strikeAt(suspended, atPush)
	if out, err := rs.c.Kubectl(t, "annotate", "batchrelease/web", "-n", rs.ns, v1alpha1.AnnotationRollback+"=true"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	old := rs.isStruck()
	rs.leader(old)
	clustertest.Wait(t, "the revert", func() error {
		if now := subjects(); now != want {
			return errors.New(now)
		}
		return nil
	})
	rs.over(old)
	rs.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10}) // as the revert says
	rs.judge()
	if now := subjects(); now != want {
		t.Errorf("the branch has\n%s\nwant\n%s", now, want)
	}
	rs.run(rs.bare, "git", "fsck", "--strict", "--no-dangling")
}

// A leader is suspended right before it pushes a note. The new leader has pushed that note and
// a newer one. The old leader pushes nothing when it goes on.
func TestLeader_InNotes(t *testing.T) {
	t.Parallel()
	rs := threeReplicas(t, nil)
	rs.follow(func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Notes: true} })
	rs.toGate()
	commit := rs.run(rs.bare, "git", "rev-parse", "main")
	const outcome = "Outcome: Completed"
	isNoted := func(what string) {
		t.Helper()
		clustertest.Wait(t, "the note", func() error {
			if note := rs.run(rs.bare, "git", "log", "-1", "--format=%N", "--notes=tranche", commit); !strings.Contains(note, what) {
				return errors.New(note)
			}
			return nil
		})
	}
	isNoted("Started: ")
	rs.strikeAt(suspended, atPush)
	rs.approve(".", "web", 0)
	old := rs.isStruck()
	rs.leader(old)
	rs.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	rs.goOn(1, "v2")
	isNoted(outcome)
	rs.over(old)
	rs.judge()
	isNoted(outcome)
	ended := false
	for version := range strings.Lines(rs.run(rs.bare, "git", "rev-list", "--reverse", "refs/notes/tranche")) {
		note := rs.run(rs.bare, "git", "show", strings.TrimSpace(version)+":"+commit)
		if ended && !strings.Contains(note, outcome) {
			t.Errorf("the outcome was noted, and then\n%s", note)
		}
		ended = ended || strings.Contains(note, outcome)
	}
	rs.run(rs.bare, "git", "fsck", "--strict", "--no-dangling")
}

// A leader that reaches everything but its lease ends before another one begins.
func TestLeader_CutOffFromItsLease(t *testing.T) {
	t.Parallel()
	rs := threeReplicas(t, nil)
	rs.follow()
	rs.toGate()
	old := rs.leader(nil)
	old.cutOff()
	rs.approve(".", "web", 0)
	rs.leader(old)
	rs.ends(old)
	rs.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	rs.goOn(1, "v2")
	rs.judge()
}

// A leader that is killed in the middle of a release.
func TestLeader_Killed(t *testing.T) {
	t.Parallel()
	rs := threeReplicas(t, nil)
	rs.follow()
	rs.toGate()
	old := rs.leader(nil)
	rs.approve(".", "web", 0)
	rs.signal(old, syscall.SIGKILL)
	rs.ends(old)
	rs.leader(old)
	rs.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	rs.goOn(1, "v2")
	rs.judge()
}
