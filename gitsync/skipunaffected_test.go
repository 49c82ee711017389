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
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// ledger writes down the requests of a controller, except for watches, leases and
// events. The method of a dry run begins with dry.
type ledger struct {
	mu   sync.Mutex
	list []string
}

const dry = "DRY-"

func (l *ledger) config(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if q := r.URL.Query(); q.Get("watch") == "" && !strings.Contains(r.URL.Path, "/events") {
				line := r.Method + " " + r.URL.Path
				if q.Has("dryRun") {
					line = dry + line
				}
				l.mu.Lock()
				l.list = append(l.list, line)
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

// A push costs a source that it does not touch nothing in the cluster; one that it does
// touch is looked at as a whole.
func TestAPushCostsWhatItTouches(t *testing.T) {
	s := newIdleEnv(t)
	requests := &ledger{}
	t.Cleanup(s.startControllerWith(requests.config(s.c.Config), gitsyncOnly))
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan, "more/b.yaml": configMap("b", "one")})
	s.source()
	s.another("more", "more", func(gs *v1alpha1.GitSource) { gs.Spec.Interval.Duration = time.Hour })
	s.applied(first)
	s.ready("more", metav1.ConditionTrue, "Applied")

	_, n := requests.since(0)
	s.passes(func() { s.push(map[string]string{"README.md": "docs\n"}) }, "shop", "more")
	if got, _ := requests.since(n); len(got) > 0 {
		t.Errorf("a commit that touches none: %q", got)
	}

	s.passes(func() {
		s.isAppliedBy("more", s.push(map[string]string{"more/b.yaml": configMap("b", "two")}))
	}, "shop")
	got, _ := requests.since(n)
	for _, r := range got {
		if !strings.Contains(r, "/configmaps/b") && !strings.Contains(r, "/gitsources/more") {
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
	s := newEnv(t, gitsyncOnly)
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
func (s *env) rendered() int {
	s.Helper()
	return s.renders("rendered", "")
}

// renders is how many looks at what the branch renders had a result, of one source or of all.
func (s *env) renders(result, source string) int {
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
			if has["namespace"] == s.ns && has["result"] == result && (source == "" || has["source"] == source) {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return int(n)
}

func (s *env) isAppliedBy(source, commit string) {
	s.Helper()
	clustertest.Wait(s, source+" at "+commit, func() error {
		gs := get(s, source, &v1alpha1.GitSource{})
		s.askWhereUntouched(gs, commit)
		if got := gs.Status.AppliedCommit; got != commit {
			return fmt.Errorf("is at %s", got)
		}
		return nil
	})
}

// Pushes that do not touch a source do not put off the look for drift.
func TestDriftIsUndoneAmongPushes(t *testing.T) {
	s := newEnv(t, gitsyncOnly)
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

// atOnce counts how many folders are rendered at the same time, and holds the first ones
// until there are as many as there may be.
type atOnce struct {
	gitsync.Renderer
	most     int
	together chan struct{} // is closed when as many are there as may be

	mu         sync.Mutex
	now, worst int
}

func (r *atOnce) Render(tenant string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	r.mu.Lock()
	r.now++
	if r.now == r.most && r.worst < r.most {
		close(r.together)
	}
	r.worst = max(r.worst, r.now)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.now--
	}()
	<-r.together
	return r.Renderer.Render(tenant, fsys, dir, opts)
}

// The controller works on, and so renders, no more sources at the same time than its
// options allow. Those that wait for a server do not count.
func TestLooksAreBounded(t *testing.T) {
	t.Parallel()
	const most, sources = 2, 6
	s := newIdleEnv(t)
	files := map[string]string{}
	for i := range sources {
		files[fmt.Sprintf("%d/a.yaml", i)], files[fmt.Sprintf("%d/b.yaml", i)] = configMap("a", "one"), "a: [\n" // looks only
	}
	s.repo.CommitAndPush(files)
	r := &atOnce{Renderer: renderers(), most: most, together: make(chan struct{})}
	t.Cleanup(s.startManager(s.c.Config, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: r, StorageDir: t.TempDir(), Concurrent: most, NoRemoteBases: true, FileRoots: []string{os.TempDir()}})
	}))
	for i := range sources {
		s.another(fmt.Sprint("source-", i), fmt.Sprint(i))
	}
	for i := range sources {
		s.ready(fmt.Sprint("source-", i), metav1.ConditionFalse, "InvalidManifest")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.worst != most {
		t.Errorf("%d were worked on at the same time", r.worst)
	}
}
