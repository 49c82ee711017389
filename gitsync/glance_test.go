package gitsync_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// ledger writes down the requests of a controller, but for watches, leases and
// events.
type ledger struct {
	mu   sync.Mutex
	list []string
}

func (l *ledger) config(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if q := r.URL.Query(); q.Get("watch") == "" && !strings.Contains(r.URL.Path, "/events") {
				l.mu.Lock()
				l.list = append(l.list, r.Method+" "+r.URL.Path)
				l.mu.Unlock()
			}
			return rt.RoundTrip(r)
		})
	})
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// since returns the requests after the first n, and how many there are.
func (l *ledger) since(n int) ([]string, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.list[n:]...), len(l.list)
}

// A push costs a source that it does not touch one write of its status, and
// nothing else in the cluster; one that it does touch is looked at as a whole.
func TestAPushCostsWhatItTouches(t *testing.T) {
	s := newShopWithout(t)
	requests := &ledger{}
	t.Cleanup(s.startControllerWith(requests.config(s.c.Config), gitsyncOnly))
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan, "more/b.yaml": configMap("b", "one")})
	s.source()
	s.another("more", "more", func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = time.Hour })
	s.applied(first)
	s.ready("more", metav1.ConditionTrue, "Applied")
	status := func(name string) string {
		return "PUT /apis/tranche.dev/v1alpha1/namespaces/" + s.ns + "/gitsources/" + name + "/status"
	}

	_, n := requests.since(0)
	s.applied(s.push(map[string]string{"README.md": "docs\n"}))
	s.isAppliedBy("more", s.repo.Head())
	got, n := requests.since(n)
	if want := []string{status("more"), status("shop")}; !sameElements(got, want) {
		t.Errorf("a commit that touches none: %q, want %q", got, want)
	}

	s.isAppliedBy("more", s.push(map[string]string{"more/b.yaml": configMap("b", "two")}))
	s.applied(s.repo.Head())
	got, _ = requests.since(n)
	for _, r := range got {
		if r != status("shop") && !strings.Contains(r, "/configmaps/b") && !strings.Contains(r, "/gitsources/more") {
			t.Errorf("a commit that touches the other source: %s", r)
		}
	}
	if v := get(s, "b", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("b is %q", v)
	}
	// An approval is nothing that is rendered, and touches its source.
	s.applied(s.push(map[string]string{"deploy/approvals/web.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web}\nspec: {revision: abc, commit: \"" + first + "\", step: 0}\n"}))
	if a := s.release("web").Spec.Approval; a == nil || a.Revision != "abc" {
		t.Errorf("the approval is %+v", a)
	}
}

// However many sources follow a repository, a push is fetched once, and rendered
// where it is read.
func TestOneFetchForMany(t *testing.T) {
	t.Parallel()
	s := newShop(t, gitsyncOnly)
	var fetched atomic.Int32
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
				fetched.Add(1)
			}
			h.ServeHTTP(w, r)
		})
	}})
	files, sources := map[string]string{}, []string{}
	for i := range 12 {
		sources = append(sources, fmt.Sprint("source-", i))
		files[sources[i]+"/a.yaml"] = configMap(sources[i], "one")
	}
	s.push(files)
	for _, name := range sources {
		s.another(name, name, func(gs *v1alpha1.GitSource) {
			gs.Spec.URL, gs.Spec.Interval.Duration = server.URL+"/repo.git", time.Hour
		})
	}
	at := func(commit string) {
		t.Helper()
		for _, name := range sources {
			s.isAppliedBy(name, commit)
		}
	}
	at(s.repo.Head())
	for _, tt := range []struct {
		file             string
		fetches, renders int
	}{{"source-7/a.yaml", 1, 1}, {"README.md", 1, 0}} {
		before, rendered := fetched.Load(), s.rendered()
		tip := s.push(map[string]string{tt.file: configMap("source-7", "two")})
		s.kubectl("annotate", "gsrc", "--all", "--overwrite", "tranche.dev/reconcile="+tip)
		at(tip)
		if f, r := int(fetched.Load()-before), s.rendered()-rendered; f != tt.fetches || r != tt.renders {
			t.Errorf("a push of %s: %d fetches and %d renders, want %d and %d", tt.file, f, r, tt.fetches, tt.renders)
		}
	}
	if v := get(s, "source-7", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("it is %q", v)
	}
}

// rendered is how often sources of the namespace have been rendered.
func (s *shop) rendered() int {
	s.Helper()
	families, err := metrics.Registry.Gather()
	s.must(err)
	n := 0.0
	for _, f := range families {
		if f.GetName() != "tranche_source_renders_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			if has["namespace"] == s.ns && has["result"] == "rendered" {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return int(n)
}

func sameElements(a, b []string) bool {
	count := map[string]int{}
	for _, s := range a {
		count[s]++
	}
	for _, s := range b {
		count[s]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func (s *shop) isAppliedBy(source, commit string) {
	s.Helper()
	clustertest.Wait(s, source+" at "+commit, func() error {
		if got := get(s, source, &v1alpha1.GitSource{}).Status.AppliedCommit; got != commit {
			return fmt.Errorf("is at %s", got)
		}
		return nil
	})
}

// Pushes that do not touch a source do not put off the look for drift.
func TestDriftIsUndoneAmongPushes(t *testing.T) {
	s := newShop(t, gitsyncOnly)
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = 2 * time.Second })
	s.applied(first)
	if out, err := s.c.Kubectl(t, "patch", "-n", s.ns, "configmap", "a", "--type=merge", "-p", `{"data":{"value":"by hand"}}`); err != nil {
		t.Fatal(out)
	}
	pushes := 0
	clustertest.Wait(t, "the end of the drift", func() error {
		pushes++
		s.applied(s.push(map[string]string{"README.md": fmt.Sprint(pushes)}))
		if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
			return fmt.Errorf("%q after %d pushes", v, pushes)
		}
		return nil
	})
}

// A push that does not touch a source is on its status in time, though other
// sources, whose server is slow, never leave the controller idle.
func TestNobodyIsLastForEver(t *testing.T) {
	t.Parallel()
	s := newShopWithout(t)
	t.Cleanup(s.startManager(s.c.Config, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 1, NoRemoteBases: true, FileRoots: []string{os.TempDir()}})
	}))
	s.source()
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")}))
	others := gittest.NewRepo(t)
	var asked atomic.Int32
	server := gittest.Serve(t, filepath.Dir(others.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			select {
			case <-time.After(500 * time.Millisecond):
				h.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		})
	}})
	others.CommitAndPush(map[string]string{"all/b.yaml": "a: [\n"}) // looks only
	for i := range 4 {
		s.another(fmt.Sprint("other-", i), "all", func(gs *v1alpha1.GitSource) {
			gs.Spec.URL, gs.Spec.Interval.Duration = server.URL+"/repo.git", time.Second
		})
	}
	clustertest.Wait(t, "a controller that is never idle", func() error {
		if n := asked.Load(); n < 10 { // the first looks share an answer
			return fmt.Errorf("%d questions", n)
		}
		return nil
	})
	s.applied(s.push(map[string]string{"README.md": "docs\n"}))
}

// No more sources are looked at, and so rendered, at the same time than the
// controller is told.
func TestLooksAreBounded(t *testing.T) {
	t.Parallel()
	const most, sources = 2, 6
	s := newShopWithout(t)
	s.repo.CommitAndPush(map[string]string{"all/a.yaml": configMap("a", "one"), "all/b.yaml": "a: [\n"}) // looks only
	var mu sync.Mutex
	now, worst := 0, 0
	together := make(chan struct{}) // is closed when as many are there as may be
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			now++
			if now == most && worst < most {
				close(together)
			}
			worst = max(worst, now)
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				now--
			}()
			select {
			case <-together:
			case <-r.Context().Done():
			}
			_, r.URL.Path, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/") // each source has a URL of its own
			r.URL.Path = "/" + r.URL.Path
			h.ServeHTTP(w, r)
		})
	}})
	t.Cleanup(s.startManager(s.c.Config, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: most, NoRemoteBases: true})
	}))
	for i := range sources {
		s.another(fmt.Sprint("source-", i), "all", func(gs *v1alpha1.GitSource) { gs.Spec.URL = fmt.Sprintf("%s/%d/repo.git", server.URL, i) })
	}
	for i := range sources {
		s.ready(fmt.Sprint("source-", i), metav1.ConditionFalse, "InvalidManifest")
	}
	mu.Lock()
	defer mu.Unlock()
	if worst != most {
		t.Errorf("%d were looked at at the same time", worst)
	}
}
