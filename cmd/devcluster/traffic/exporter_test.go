package traffic

import (
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// scraper is an exporter whose clock a test moves, and that is read over HTTP.
type scraper struct {
	*testing.T
	e   *exporter
	now time.Time
	url string
}

func newScraper(t *testing.T) *scraper {
	t.Helper()
	s := &scraper{T: t, now: time.Unix(1_700_000_000, 0)}
	s.e = newExporter(Default(), func() time.Time { return s.now })
	server := httptest.NewServer(newHandler(s.e))
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *scraper) pass(d time.Duration) { s.now = s.now.Add(d) }

// request sends a request and returns the answer, which must have a status.
func (s *scraper) request(method, path, body string, want int) string {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	if res.StatusCode != want {
		s.Fatalf("%s %s: %d, want %d: %s", method, path, res.StatusCode, want, text)
	}
	return string(text)
}

// series returns what is served of a pod, by name and labels other than those of the pod.
func (s *scraper) series(pod string) map[string]float64 {
	s.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(s.request(http.MethodGet, "/metrics", "", http.StatusOK)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || !strings.Contains(name, `namespace="shop"`) || !strings.Contains(name, `pod="`+pod+`"`) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.Fatal(err)
		}
		for _, label := range []string{`namespace="shop"`, `pod="` + pod + `"`, ",", "{"} {
			name = strings.ReplaceAll(name, label, " ")
		}
		all[strings.Join(strings.Fields(name), " ")] = n
	}
	return all
}

// expect compares the counts of requests; negative: there is no series of the pod.
func (s *scraper) expect(pod string, ok, failed float64) {
	s.Helper()
	got := s.series(pod)
	if ok < 0 {
		if len(got) > 0 {
			s.Errorf("%s has series: %v", pod, got)
		}
		return
	}
	if o, f := got[`http_requests_total code="200"`], got[`http_requests_total code="500"`]; o != ok || f != failed {
		s.Errorf("%s: %v ok and %v failed, want %v and %v", pod, o, f, ok, failed)
	}
	if n := got["http_request_duration_seconds_count"]; n != ok+failed || n != got[`http_request_duration_seconds_bucket le="+Inf"`] {
		s.Errorf("%s: %v latencies, want %v", pod, n, ok+failed)
	}
}

func newPod(name, image string, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: image}}},
		Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app"}},
		},
	}
}

func TestExporter_CountsWhilePodIsReady(t *testing.T) {
	s := newScraper(t)
	s.e.observe(newPod("a", "app:v1", false))
	s.pass(time.Minute)
	s.expect("a", -1, 0)

	s.e.observe(newPod("a", "app:v1", true))
	s.expect("a", 0, 0)
	for range 7 { // however often it is scraped
		s.pass(3 * time.Second)
		s.series("a")
	}
	s.pass(19 * time.Second)
	s.expect("a", 1998, 2)

	s.e.observe(newPod("a", "app:v1", false))
	s.pass(time.Minute)
	s.expect("a", 1998, 2)
	s.e.observe(newPod("a", "app:v1", true))
	s.pass(20 * time.Second)
	s.expect("a", 2997, 3)

	deleted := newPod("a", "app:v1", true)
	deleted.DeletionTimestamp = &metav1.Time{Time: s.now}
	s.e.observe(deleted)
	s.pass(time.Minute)
	s.expect("a", 2997, 3)
	s.e.remove(cache.MetaObjectToName(deleted))
	s.expect("a", -1, 0)
}

func TestExporter_PodOfJobHasNone(t *testing.T) {
	s := newScraper(t)
	pod := newPod("a", "app:v1", true)
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "a"}}
	s.e.observe(pod)
	s.pass(time.Minute)
	s.expect("a", -1, 0)
}

func TestExporter_BeginsAgainAtZero(t *testing.T) {
	restarted := newPod("a", "app:v1", true)
	restarted.Status.ContainerStatuses[0].RestartCount = 1
	another := newPod("a", "app:v1", true)
	another.UID = "another"
	for reason, pod := range map[string]*corev1.Pod{"a container was restarted": restarted, "another pod has the name": another} {
		t.Run(reason, func(t *testing.T) {
			s := newScraper(t)
			s.e.observe(newPod("a", "app:v1", true))
			s.pass(time.Minute)
			s.expect("a", 2997, 3)
			s.e.observe(pod)
			s.expect("a", 0, 0)
			s.pass(time.Second)
			s.expect("a", 50, 0)
		})
	}
}

func TestExporter_TagsChangeTraffic(t *testing.T) {
	for image, want := range map[string]struct{ ok, failed, mean float64 }{
		"app":                                   {999, 1, 0.05},
		"errors/slow:v1":                        {999, 1, 0.05},
		"registry:5000/app:v2-errors":           {950, 50, 0.05},
		"app:errors@sha256:00":                  {950, 50, 0.05},
		"app:v2-slow":                           {999, 1, 0.25},
		"app:v2-slow-errors":                    {950, 50, 0.25},
		"app:v2-errorsome":                      {999, 1, 0.05},
		"registry.example.org/shop/app:v2-fast": {999, 1, 0.05},
	} {
		s := newScraper(t)
		s.e.observe(newPod("a", image, true))
		s.pass(20 * time.Second)
		s.expect("a", want.ok, want.failed)
		got := s.series("a")
		if mean := got["http_request_duration_seconds_sum"] / 1000; math.Abs(mean-want.mean) > want.mean/50 {
			t.Errorf("%s: a mean latency of %v, want %v", image, mean, want.mean)
		}
		for _, le := range []float64{0.025, 0.1, 0.5} { // as an exponential distribution has it
			name := `http_request_duration_seconds_bucket le="` + strconv.FormatFloat(le, 'f', -1, 64) + `"`
			if share, expected := got[name]/1000, 1-math.Exp(-le/want.mean); math.Abs(share-expected) > 0.005 {
				t.Errorf("%s: a share of %v is within %vs, want %v", image, share, le, expected)
			}
		}
	}
}

func TestExporter_ProfileIsChanged(t *testing.T) {
	s := newScraper(t)
	s.e.observe(newPod("a", "app:v2-silent", true))
	s.e.observe(newPod("b", "app:v1", true))
	s.pass(20 * time.Second)
	s.expect("a", -1, 0)

	const change = `{"silent":false,"rate":10,"errors":0.5,"latency":"1s"}`
	s.request(http.MethodPut, "/namespaces/shop/tags/v2-silent", change, http.StatusNoContent)
	s.request(http.MethodPut, "/namespaces/other/tags/v1", `{"errors":1}`, http.StatusNoContent)
	s.expect("a", 0, 0)
	s.pass(20 * time.Second)
	s.expect("a", 100, 100)
	s.expect("b", 1998, 2)
	s.e.observe(newPod("c", "app:v2-silent", true)) // a pod that comes later
	s.pass(time.Second)
	s.expect("c", 5, 5)

	s.request(http.MethodDelete, "/namespaces/shop/tags/v2-silent", "", http.StatusNoContent)
	s.expect("a", -1, 0)
	s.expect("c", -1, 0)
	s.pass(time.Minute)

	s.request(http.MethodPut, "/namespaces/shop/tags/v1", `{"errors":1}`, http.StatusNoContent)
	before := s.series("b")[`http_requests_total code="200"`]
	s.pass(time.Second)
	if got := s.series("b"); got[`http_requests_total code="200"`] != before || got[`http_requests_total code="500"`] != 5+50 {
		t.Errorf("after the change: %v", got)
	}
}

func TestExporter_RefusesChange(t *testing.T) {
	s := newScraper(t)
	for body, want := range map[string]string{
		``:                     "reading the change: EOF",
		`{"error":1}`:          `unknown field "error"`,
		`{"errors":1.5}`:       "errors: 1.5 is not from 0 to 1",
		`{"rate":-1}`:          "rate: -1 is not from 0 to 10000",
		`{"latency":"0s"}`:     "latency: 0s is not above 0",
		`{"latency":"long"}`:   "invalid duration",
		`{"errors":1}{"a": 1}`: "there is more than one",
	} {
		if got := s.request(http.MethodPut, "/namespaces/shop/tags/v1", body, http.StatusBadRequest); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

func TestServe_RefusesProfiles(t *testing.T) {
	for want, change := range map[string]func(*Profiles){
		"errors: 2 is not from 0 to 1":              func(p *Profiles) { p.Ordinary.Errors = 2 },
		"tag errors: errors: -1 is not from 0 to 1": func(p *Profiles) { p.Errors = -1 },
		"tag slow: latency: 0s is not above 0":      func(p *Profiles) { p.Slow = 0 },
		"no cluster is named; give a kubeconfig":    func(*Profiles) {},
	} {
		o := Options{Profiles: Default()}
		change(&o.Profiles)
		if err := Serve(t.Context(), o, nil); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
