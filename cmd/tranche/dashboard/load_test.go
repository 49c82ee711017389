package dashboard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/feed"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// apiServer answers what an informer asks, with any number of releases, and counts it.
type apiServer struct {
	releases []byte // a list

	mu      sync.Mutex
	watches map[string]int // by resource
	changes chan []byte    // of a release, as an event of a watch
	cuts    chan struct{}  // closed to end the watches
	down    atomic.Bool    // it refuses all requests
	closed  atomic.Value   // the address of a kind that it lets no client watch
	hangs   atomic.Bool    // it answers no request
}

// kinds are the resources that the dashboard reads, by their address.
var kinds = map[string]string{
	"/apis/tranche.dev/v1alpha1/batchreleases": "BatchRelease", "/apis/tranche.dev/v1alpha1/gitsources": "GitSource",
	"/apis/apps/v1/deployments": "Deployment", "/apis/apps/v1/replicasets": "ReplicaSet", "/apis/events.k8s.io/v1/events": "Event",
}

func releaseNumber(n int) *v1alpha1.BatchRelease {
	br := clitest.Release()
	br.TypeMeta = metav1.TypeMeta{APIVersion: "tranche.dev/v1alpha1", Kind: "BatchRelease"}
	br.Name, br.Namespace, br.ResourceVersion = fmt.Sprintf("web-%04d", n), fmt.Sprintf("shop-%02d", n%50), "1"
	if n%10 > 0 {
		br.Status.Phase, br.Status.Reason = v1alpha1.PhaseCompleted, v1alpha1.ReasonReleaseCompleted
	}
	return br
}

// newAPIServer starts one with this many releases.
func newAPIServer(t testing.TB, releases int) (*apiServer, *rest.Config) {
	t.Helper()
	list := v1alpha1.BatchReleaseList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	list.TypeMeta = metav1.TypeMeta{APIVersion: "tranche.dev/v1alpha1", Kind: "BatchReleaseList"}
	for n := range releases {
		list.Items = append(list.Items, *releaseNumber(n))
	}
	text, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	a := &apiServer{releases: text, watches: map[string]int{}, changes: make(chan []byte), cuts: make(chan struct{})}
	server := httptest.NewServer(a)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return a, &rest.Config{Host: server.URL, QPS: -1}
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	kind, ok := kinds[r.URL.Path]
	switch closed, _ := a.closed.Load().(string); {
	case a.hangs.Load():
		<-r.Context().Done()
	case a.down.Load():
		http.Error(w, "down", http.StatusServiceUnavailable)
	case closed == r.URL.Path && r.URL.Query().Get("watch") != "":
		http.Error(w, "no", http.StatusForbidden)
	case r.URL.Path == "/readyz":
		_, _ = w.Write([]byte("ok")) // the reader may have gone
	case !ok:
		a.discover(w, r.URL.Path)
	case r.URL.Query().Get("sendInitialEvents") != "": // the informer lists instead
		http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`, http.StatusUnprocessableEntity)
	case r.URL.Query().Get("watch") == "":
		if kind == "BatchRelease" {
			_, _ = w.Write(a.releases) // the reader may have gone
			return
		}
		version := strings.TrimPrefix(r.URL.Path[:strings.LastIndex(r.URL.Path, "/")], "/apis/")
		_, _ = fmt.Fprintf(w, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"1"},"items":[]}`, kind, version)
	default:
		a.watch(w, r, kind)
	}
}

// watch holds a watch open, and sends the changes of releases.
func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, kind string) {
	a.mu.Lock()
	a.watches[kind]++
	cut := a.cuts
	a.mu.Unlock()
	_ = http.NewResponseController(w).Flush() // the reader may have gone
	for {
		var changes chan []byte
		if kind == "BatchRelease" {
			changes = a.changes
		}
		select {
		case <-r.Context().Done():
			return
		case <-cut:
			return
		case text := <-changes:
			_, _ = w.Write(text)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// discover answers which resources there are.
func (a *apiServer) discover(w http.ResponseWriter, path string) {
	var answer any = map[string]any{"kind": "APIVersions", "versions": []string{}}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	resources := map[string]*metav1.APIResourceList{}
	for at, kind := range kinds {
		dir, name := at[:strings.LastIndex(at, "/")], at[strings.LastIndex(at, "/")+1:]
		if resources[dir] == nil {
			of := strings.TrimPrefix(dir, "/apis/")
			group, version, _ := strings.Cut(of, "/")
			served := metav1.GroupVersionForDiscovery{GroupVersion: of, Version: version}
			groups.Groups = append(groups.Groups, metav1.APIGroup{
				Name: group, Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served,
			})
			resources[dir] = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: of}
		}
		resource := metav1.APIResource{Name: name, Kind: kind, Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}
		resources[dir].APIResources = append(resources[dir].APIResources, resource)
	}
	if list := resources[path]; list != nil {
		answer = list
	} else if path == "/apis" {
		answer = groups
	}
	_ = json.NewEncoder(w).Encode(answer) // the reader may have gone
}

// cut ends the watches that are open.
func (a *apiServer) cut() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.cuts)
	a.cuts = make(chan struct{})
}

func newScheme(t testing.TB) *kruntime.Scheme {
	t.Helper()
	scheme := kruntime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// following is a feed that follows that cluster.
func following(t testing.TB, config *rest.Config) *feed.Cluster {
	t.Helper()
	ctrl.SetLogger(logr.Discard()) // of the informers
	f, err := feed.NewCluster(config, newScheme(t), nil, feed.Kinds{Sources: true, Workloads: true, Events: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	if err := errors.Join(f.Start(ctx), f.Probe(ctx, config, 50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	return f
}

// serve starts a dashboard on that cluster. It returns its URL, with the token.
func serve(t testing.TB, config *rest.Config) string {
	t.Helper()
	f := following(t, config)
	local := access.NewLocal(1, time.Now)
	s := &dashboard.Server{Feed: f, Auth: local, Rights: access.All{}, Now: time.Now}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	s.Hosts = []string{strings.TrimPrefix(server.URL, "http://")}
	return server.URL + "/?token=" + local.Token
}

// tabs opens streams as tabs of a browser do, and returns what each sends, line by line.
func tabs(t testing.TB, url string, n int) []*lines {
	t.Helper()
	base, _, _ := strings.Cut(url, "?")
	plain := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	get := func(target string, cookies []*http.Cookie) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cookies {
			r.AddCookie(c)
		}
		res, err := plain.Do(r) //nolint:bodyclose // the test's end closes it
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	signedIn := get(url, nil).Cookies()
	all := make([]*lines, n)
	for i := range all {
		all[i] = newLines(get(base+"api/stream", signedIn).Body)
	}
	return all
}

// 50 tabs share one watch for each kind, and all of them get a change.
func TestStream_FiftyTabsShareTheInformers(t *testing.T) {
	const n = 200
	a, config := newAPIServer(t, n)
	all := tabs(t, serve(t, config), 50)
	for i, tab := range all {
		if got := strings.Count(tab.message(t), `"deployment":"web"`); got != n {
			t.Errorf("tab %d: %d releases", i, got)
		}
	}
	br := releaseNumber(7)
	br.ResourceVersion, br.Status.Message = "2", "it has changed"
	text, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": br})
	if err != nil {
		t.Fatal(err)
	}
	a.changes <- text
	for i, tab := range all {
		if got := tab.message(t); strings.Count(got, `"deployment":"web"`) != 1 || !strings.Contains(got, "it has changed") {
			t.Errorf("tab %d: %s", i, got)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.watches) != len(kinds) {
		t.Errorf("watches of %v", a.watches)
	}
	for kind, watches := range a.watches {
		if watches != 1 {
			t.Errorf("%d watches of %s", watches, kind)
		}
	}
}

// The page knows if the API server does not answer, or lets no informer watch. Once all is well
// again, the page gets what changes.
func TestStream_SaysThatItIsStale(t *testing.T) {
	for _, tt := range []struct {
		name       string
		begin, end func(*apiServer)
		want       string
	}{
		{"the API server is down", func(a *apiServer) { a.down.Store(true) }, func(a *apiServer) { a.down.Store(false) },
			"The API server does not answer: "},
		{"it hangs", func(a *apiServer) { a.hangs.Store(true) }, func(a *apiServer) { a.hangs.Store(false) },
			"The API server does not answer: "},
		{"it lets no informer watch", func(a *apiServer) { a.closed.Store("/apis/tranche.dev/v1alpha1/gitsources"); a.cut() },
			func(a *apiServer) { a.closed.Store("") },
			"dashboard cannot follow /apis/tranche.dev/v1alpha1/gitsources: 403 Forbidden"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a, config := newAPIServer(t, 1)
			began := time.Now().Truncate(time.Second)
			tab := tabs(t, serve(t, config), 1)[0]
			if first := tab.message(t); strings.Contains(first, "stale") {
				t.Error(first)
			}
			tt.begin(a)
			var got struct{ Stale *feed.Stale }
			text := tab.message(t)
			if err := json.Unmarshal([]byte(strings.TrimPrefix(text, "data: ")), &got); err != nil || got.Stale == nil {
				t.Fatalf("%s: %v", text, err)
			}
			if !strings.Contains(got.Stale.Reason, tt.want) || got.Stale.Since.Before(began) || got.Stale.Since.After(time.Now()) {
				t.Errorf("%+v", got.Stale)
			}
			tt.end(a)
			if text := tab.message(t); strings.Contains(text, "stale") {
				t.Error(text)
			}
			br := releaseNumber(0)
			br.ResourceVersion, br.Status.Message = "2", "it has changed"
			change, err := json.Marshal(map[string]any{"type": "MODIFIED", "object": br})
			if err != nil {
				t.Fatal(err)
			}
			a.changes <- change
			if text := tab.message(t); !strings.Contains(text, "it has changed") {
				t.Error(text)
			}
		})
	}
}

// A request of a person fails within seconds if the API server hangs, and at once after that.
func TestAnswers(t *testing.T) {
	a, config := newAPIServer(t, 1)
	f := following(t, config)
	a.hangs.Store(true)
	at := rest.CopyConfig(config)
	at.Wrap(f.Answers)
	c, err := client.New(at, client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // each on its own would wait
		var down *feed.DownError
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &v1alpha1.BatchRelease{})
		if !errors.As(err, &down) {
			t.Fatalf("the error is %v", err)
		}
	}
	if f.Down() == nil {
		t.Error("the API server is not known to be down")
	}
}

// BenchmarkStream is the time until a tab has all releases, and the memory of the server
// with 50 tabs.
func BenchmarkStream(b *testing.B) {
	for _, n := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("releases=%d", n), func(b *testing.B) {
			_, config := newAPIServer(b, n)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			url := serve(b, config)
			for b.Loop() {
				tabs(b, url, 1)[0].message(b)
			}
			all := tabs(b, url, 50)
			for _, tab := range all {
				tab.message(b)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB-with-50-tabs")
			slices.Reverse(all)
		})
	}
}
