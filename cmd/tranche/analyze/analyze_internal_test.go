package analyze

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// traffic is a Prometheus that knows what each pod serves: 3 requests a second, of which a
// part fails, and a latency.
type traffic struct {
	*httptest.Server
	pods    map[string]float64 // the part that fails, by pod
	slow    map[string]float64 // the latency, by pod; 0.1 if it is not there
	down    bool
	mu      sync.Mutex
	queries []string
}

var (
	ofPods   = regexp.MustCompile(`pod=~"([^"]*)"`)
	inWindow = regexp.MustCompile(`\[(\d+)s\]`)
)

func newTraffic(t *testing.T, pods map[string]float64) *traffic {
	f := &traffic{pods: pods, slow: map[string]float64{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP answers as Prometheus' HTTP API does. Each pod and time has its own chance.
func (f *traffic) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	query := r.FormValue("query")
	f.queries = append(f.queries, query)
	selected := regexp.MustCompile("^(?:" + ofPods.FindStringSubmatch(query)[1] + ")$")
	names := slices.DeleteFunc(f.names(), func(pod string) bool { return !selected.MatchString(pod) })
	var result string
	switch {
	case len(names) == 0:
	case strings.HasSuffix(r.URL.Path, "query_range"):
		var points []string
		from, _ := strconv.ParseFloat(r.FormValue("start"), 64)
		to, _ := strconv.ParseFloat(r.FormValue("end"), 64)
		for at := from; at <= to; at += 60 {
			latency := 0.1
			if f.slow[names[0]] > 0 {
				latency = f.slow[names[0]]
			}
			latency *= 1 + 0.1*chance(names[0], at).NormFloat64()
			points = append(points, fmt.Sprintf(`[%f,"%f"]`, at, latency))
		}
		result = `{"metric":{},"values":[` + strings.Join(points, ",") + `]}`
	default:
		seconds, _ := strconv.Atoi(inWindow.FindStringSubmatch(query)[1])
		at, _ := strconv.ParseFloat(r.FormValue("time"), 64)
		count := 0
		for _, pod := range names {
			random := chance(pod, at)
			for range 3 * seconds {
				if failed := random.Float64() < f.pods[pod]; failed || !strings.Contains(query, "5..") {
					count++
				}
			}
		}
		result = fmt.Sprintf(`{"metric":{},"value":[%f,"%d"]}`, at, count)
	}
	kind := "vector"
	if strings.HasSuffix(r.URL.Path, "query_range") {
		kind = "matrix"
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":%q,"result":[%s]}}`, kind, result)
}

func (f *traffic) names() (names []string) {
	for pod := range f.pods {
		names = append(names, pod)
	}
	slices.Sort(names)
	return names
}

func chance(pod string, at float64) *rand.Rand {
	h := fnv.New64()
	_, _ = io.WriteString(h, pod)
	return rand.New(rand.NewPCG(h.Sum64(), uint64(at)))
}

// cluster is an API server with one BatchRelease, and pods.
func cluster(t *testing.T, br *v1alpha1.BatchRelease, pods ...corev1.Pod) *cli.Connection {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var v any = br
		if strings.HasSuffix(r.URL.Path, "/pods") {
			v = corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods}
		}
		_ = json.NewEncoder(w).Encode(v)
	}))
	t.Cleanup(server.Close)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("BatchRelease"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	config := &rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	return &cli.Connection{Client: c, Config: config, Namespace: "shop"}
}

// day is when the releases of the history are.
var day = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// past is a release of one hour.
func past(hour int, revision string, outcome v1alpha1.ReleaseOutcome, approvals ...v1alpha1.StepApproval) v1alpha1.ReleaseRecord {
	start := metav1.Time{Time: day.Add(time.Duration(hour) * time.Hour)}
	return v1alpha1.ReleaseRecord{
		Revision: revision, Commit: strings.Repeat(revision, 20)[:40], Outcome: outcome, StartTime: &start,
		EndTime: metav1.Time{Time: start.Add(time.Hour)}, Approvals: approvals,
	}
}

func released(history ...v1alpha1.ReleaseRecord) *v1alpha1.BatchRelease {
	return &v1alpha1.BatchRelease{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "BatchRelease"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
		Spec:       v1alpha1.BatchReleaseSpec{WorkloadRef: v1alpha1.WorkloadReference{Name: "web"}},
		Status:     v1alpha1.BatchReleaseStatus{History: history, StableRevision: "aaa"},
	}
}

// fourReleases are good, bad, slow and good again, newest first, and one whose predecessor is
// not in the history.
func fourReleases() *v1alpha1.BatchRelease {
	return released(
		past(9, "ddd", v1alpha1.OutcomeCompleted),
		past(7, "ccc", v1alpha1.OutcomeCompleted),
		past(5, "bbb", v1alpha1.OutcomeRolledBack),
		past(3, "aaa", v1alpha1.OutcomeCompleted),
	)
}

func fourRevisions(t *testing.T) *traffic {
	f := newTraffic(t, map[string]float64{
		"web-aaa-11111": 0.01, "web-aaa-22222": 0.01, "web-bbb-33333": 0.06, "web-ccc-44444": 0.01, "web-ddd-55555": 0.01, "api-bbb-66666": 1,
	})
	f.slow["web-ccc-44444"], f.slow["web-ddd-55555"] = 0.17, 0.17
	return f
}

func (o *options) printed(t *testing.T, k *cli.Connection, path string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	if o.output == "" {
		o.output = cli.OutputTable
	}
	err := o.run(context.Background(), &out, k, "web", path)
	return out.String(), err
}

func TestReplay(t *testing.T) {
	f := fourRevisions(t)
	o := options{prometheus: f.URL, exitCode: true}
	got, err := o.printed(t, cluster(t, fourReleases()), filepath.Join("testdata", "release.yaml"))
	if code := cli.ExitCode(err); err == nil || code != cli.ExitFailed {
		t.Errorf("error %v, code %d", err, code)
	}
	clitest.Golden(t, filepath.Join("testdata", "replay.txt"), got)
	for _, q := range f.queries {
		if strings.Contains(q, "$(") || !strings.Contains(q, "web-") {
			t.Errorf("query %s", q)
		}
	}
}

// The times of gates decide which windows are measured.
func TestWindows(t *testing.T) {
	gate := func(step int32, minute int) v1alpha1.StepApproval {
		return v1alpha1.StepApproval{Step: step, Time: metav1.Time{Time: day.Add(time.Duration(minute) * time.Minute)}}
	}
	for name, c := range map[string]struct {
		approvals []v1alpha1.StepApproval
		want      []int // begin and limit of each step, in minutes
	}{
		"no gate is known":            {nil, []int{0, 20, 10, 25}},
		"both are":                    {[]v1alpha1.StepApproval{gate(0, 30), gate(1, 50)}, []int{20, 40, 45, 60}},
		"a gate that opened early":    {[]v1alpha1.StepApproval{gate(0, 4), gate(1, 50)}, []int{0, 20, 45, 60}},
		"the second alone":            {[]v1alpha1.StepApproval{gate(1, 50)}, []int{0, 20, 45, 60}},
		"the first alone":             {[]v1alpha1.StepApproval{gate(0, 30)}, []int{20, 40, 30, 45}},
		"the second before the first": {[]v1alpha1.StepApproval{gate(1, 6)}, []int{0, 20, 6, 21}},
	} {
		s := v1alpha1.BatchStrategy{Analysis: &v1alpha1.Analysis{}, Steps: []v1alpha1.Step{
			{Analysis: &v1alpha1.StepAnalysis{Duration: metav1.Duration{Duration: 10 * time.Minute}}},
			{Analysis: &v1alpha1.StepAnalysis{Duration: metav1.Duration{Duration: 5 * time.Minute}}},
			{},
		}}
		record := past(0, "aaa", v1alpha1.OutcomeCompleted, c.approvals...)
		var got []int
		for _, w := range windows(&s, &record) {
			got = append(got, int(w.start.Sub(day).Minutes()), int(w.limit.Sub(day).Minutes()))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}

// pod is a running pod of revision aaa.
func pod(name string, age time.Duration) corev1.Pod {
	yes := true
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-aaa", Controller: &yes,
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: time.Now().Add(-age)}},
	}
}

// Identical pods rarely fail: with the 5 % that are allowed, more than 10 of 40 do in one run
// of 300,000. Each window has all pods, in two parts of the step's size.
func TestSame(t *testing.T) {
	f := newTraffic(t, map[string]float64{})
	var pods []corev1.Pod
	for i := range 10 {
		name := fmt.Sprintf("web-aaa-%05d", i)
		f.pods[name] = 0.02
		pods = append(pods, pod(name, 30*time.Hour))
	}
	o := options{prometheus: f.URL, same: true, windows: 40, seed: 7, output: cli.OutputJSON}
	text, err := o.printed(t, cluster(t, released(), pods...), filepath.Join("testdata", "release.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got Same
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Items) != 3 || got.Pods != 10 || got.Seed != 7 {
		t.Fatalf("%s", text)
	}
	for i, c := range got.Items {
		want := SameMetric{Update: []int{1, 1, 5}[i], Windows: 40}
		if c.Failed > 10 || (SameMetric{Update: c.Update, Windows: c.Windows, Unknown: c.Unknown}) != want {
			t.Errorf("%+v", c)
		}
	}
	sizes := map[int]int{}
	for _, q := range f.queries {
		sizes[len(strings.Split(ofPods.FindStringSubmatch(q)[1], "|"))]++
	}
	if len(sizes) != 3 || sizes[1] != sizes[9] || sizes[5] == 0 {
		t.Errorf("queries by number of pods: %v", sizes)
	}
}

// One pod of ten that differs is a false alarm in the windows in which it is the update part.
func TestSame_OnePodDiffers(t *testing.T) {
	f := newTraffic(t, map[string]float64{})
	var pods []corev1.Pod
	for i := range 4 {
		name := fmt.Sprintf("web-aaa-%05d", i)
		f.pods[name] = 0.01
		pods = append(pods, pod(name, 30*time.Hour))
	}
	f.pods["web-aaa-00002"] = 0.3
	o := options{prometheus: f.URL, same: true, windows: 12, seed: 3}
	text, err := o.printed(t, cluster(t, released(), pods...), filepath.Join("testdata", "release.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	failed := regexp.MustCompile(`False alarms: (\d+) of 36 comparisons`).FindStringSubmatch(text)
	if failed == nil {
		t.Fatal(text)
	}
	if n, _ := strconv.Atoi(failed[1]); n < 3 || n > 15 {
		t.Errorf("%s", text)
	}
	if !strings.Contains(text, "seed 3") || !strings.Contains(text, "probe is left out") {
		t.Error(text)
	}
}

func TestAnalyze_Errors(t *testing.T) {
	f := fourRevisions(t)
	down := newTraffic(t, nil)
	down.down = true
	k, file := cluster(t, fourReleases()), filepath.Join("testdata", "release.yaml")
	alone := cluster(t, released(), pod("web-aaa-00001", time.Hour))
	young := cluster(t, released(), pod("web-aaa-00001", time.Hour), pod("web-aaa-00002", time.Minute))
	for name, c := range map[string]struct {
		o    options
		k    *cli.Connection
		path string
		want string
	}{
		"a provider without address": {options{}, k, file, "provider platform is known to the controller alone; give it with --prometheus"},
		"a server that is down":      {options{prometheus: down.URL}, k, file, "measuring errors of ddd: "},
		"no plan":                    {options{prometheus: f.URL}, k, "../../../examples/shop/base", "no BatchRelease shop/web is in it"},
		"a plan without analysis":    {options{prometheus: f.URL}, k, "../../../examples/web/release.yaml", "no step has an analysis"},
		"one pod":                    {options{prometheus: f.URL, same: true, windows: 1}, alone, file, "has 1 pods; two parts need 2"},
		"pods that are young":        {options{prometheus: f.URL, same: true, windows: 1}, young, file, "is younger than one window"},
	} {
		out, err := c.o.printed(t, c.k, c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
			t.Errorf("%s: error %v and output %q, not %q", name, err, out, c.want)
		}
	}
}

func TestReplay_NoHistory(t *testing.T) {
	o := options{prometheus: "http://127.0.0.1:1"}
	got, err := o.printed(t, cluster(t, released()), filepath.Join("testdata", "release.yaml"))
	if err != nil || got != "BatchRelease shop/web has no past release.\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// Background metrics are measured in all windows of a release, until they fail.
func TestReplay_Background(t *testing.T) {
	plan := `apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web, namespace: shop}
spec:
  workloadRef: {name: web}
  strategy:
    steps: [{replicas: 1}, {replicas: 100%}]
    analysis:
      onFailure: Rollback
      background: [errors]
      metrics:
      - name: errors
        prometheus:
          provider: platform
          query: sum(increase(http_requests_total{pod=~"$(pods)",code=~"5.."}[$(window)]))
          total: sum(increase(http_requests_total{pod=~"$(pods)"}[$(window)]))
        interval: 2m
        max: 4%
`
	file := filepath.Join(t.TempDir(), "release.yaml")
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	f := fourRevisions(t)
	o := options{prometheus: f.URL, output: cli.OutputJSON}
	text, err := o.printed(t, cluster(t, fourReleases()), file)
	if err != nil {
		t.Fatal(err)
	}
	var got Replay
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	var says []string
	for _, r := range got.Items {
		says = append(says, fmt.Sprintf("%s %s %s %t", r.Revision, r.Verdict, r.Consequence, len(r.Steps) == 1 && r.Steps[0].Background))
	}
	want := []string{"ddd Pass  true", "ccc Pass  true", "bbb Fail rolled back true", "aaa Pass  true"}
	if !slices.Equal(says, want) {
		t.Errorf("got %q, want %q", says, want)
	}
	asked := map[string]int{} // windows of the update revision, of which an hour has 30
	for _, q := range f.queries {
		if !strings.Contains(q, "5..") {
			asked[ofPods.FindStringSubmatch(q)[1][4:7]]++
		}
	}
	if asked["ddd"] != 30 || asked["bbb"] >= 30 {
		t.Errorf("windows %v", asked)
	}
}
