package rollout_test

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Answers about v2, and a course of them.
const (
	saysPass  = "pass"
	saysFail  = "fail"
	saysLater = "later" // nothing in the first two windows, and then that it is well
)

// oracle is the server that measures releases. It knows what it has answered about each, and so what
// each may do. It has no word of the controller but the questions.
type oracle struct {
	server *httptest.Server
	cases  map[string]*faultCase

	mu    sync.Mutex
	given map[string]map[float64]string // by case, and by the end of the window
}

func newOracle(t *testing.T, cases map[string]*faultCase) *oracle {
	o := &oracle{cases: cases, given: map[string]map[float64]string{}}
	o.server = httptest.NewServer(http.HandlerFunc(o.serve))
	t.Cleanup(o.server.Close)
	return o
}

// measure has the first step measured, in windows of 10 s.
func (o *oracle) measure(s *v1alpha1.BatchStrategy) {
	s.Steps[0].Analysis = &v1alpha1.StepAnalysis{Duration: *seconds(10)}
	s.Analysis = &v1alpha1.Analysis{
		OnFailure: v1alpha1.FailureRollback, UnknownDeadlineSeconds: ptr.To[int32](3),
		Metrics: []v1alpha1.Metric{{
			Name: "errors", Interval: seconds(10), Delay: seconds(0), Max: ptr.To(v1alpha1.Decimal("0.5")), Scope: v1alpha1.ScopeDeployment,
			Prometheus: &v1alpha1.PrometheusMetric{Address: o.server.URL, Query: `errors{release="$(deployment)"}`},
		}},
	}
}

func (o *oracle) serve(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	name := caseName.FindString(r.PostForm.Get("query"))
	to, err := strconv.ParseFloat(r.PostForm.Get("time"), 64)
	c := o.cases[name]
	if c == nil || err != nil {
		http.Error(w, "no such query", http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.given[name] == nil {
		o.given[name] = map[float64]string{}
	}
	if _, ok := o.given[name][to]; !ok {
		o.given[name][to] = c.says
		if c.says == saysLater && len(o.given[name]) > 2 {
			o.given[name][to] = saysPass
		}
	}
	var result string
	if value := map[string]string{saysPass: "0.25", saysFail: "0.9"}[o.given[name][to]]; value != "" {
		result = fmt.Sprintf(`{"value":[%f,%q]}`, to, value)
	}
	_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, result)
}

// count returns how many windows were answered so.
func (o *oracle) count(name, says string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, given := range o.given[name] {
		if given == says {
			n++
		}
	}
	return n
}

// judgeMoves: the gate opens by an answer that is well, and pods go back by one that is not (I11, I13).
func (o *oracle) judgeMoves(t *testing.T, c *faultCase, sizes map[string]int32) {
	t.Helper()
	switch {
	case c.says == "":
	case sizes["v2"] > 1 && o.count(c.name, saysPass) == 0:
		t.Fatalf("I11: %s: sizes %v, and no window was answered well", c, sizes)
	case c.begun && sizes["v2"] == 0 && o.count(c.name, saysFail) == 0:
		t.Fatalf("I13: %s: sizes %v, and no window has failed", c, sizes)
	}
	c.begun = c.begun || sizes["v2"] > 0
}

// judgeQuestions: the windows that were asked for are those of one schedule, and no more than it took.
func (o *oracle) judgeQuestions(t *testing.T, c *faultCase) {
	t.Helper()
	if c.says == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	windows := slices.Sorted(maps.Keys(o.given[c.name]))
	want := 1
	if c.says == saysLater {
		want = 3
	}
	if len(windows) != want {
		t.Errorf("%s: the windows that end at %v were asked for, want %d", c, windows, want)
	}
	for i, to := range windows {
		if math.Mod(to, 1) != 0 || to != windows[0]+float64(10*i) {
			t.Errorf("%s: the windows end at %v, want one each ten seconds", c, windows)
		}
	}
}

// I6, I11, I13: any single write may go wrong while a gate measures. The windows stay where the
// schedule has them. Each is answered once, and pods move by these answers alone. The suite takes a
// sample of faults and writes at once; -full takes all.
func TestFaultAtAnyWrite_Measured(t *testing.T) {
	t.Parallel()
	faults := []fault{killed, lost, unsent, conflict, broken, overloaded, gateway}
	sample := map[string]*faultCase{}
	for i, f := range faults {
		for j, s := range measuredStories {
			all := map[string]*faultCase{}
			for at := 1; at <= s.writes; at++ {
				if *fullFaults {
					name := fmt.Sprintf("case-%04d", len(all))
					all[name] = &faultCase{story: s, name: name, fault: f, at: at}
				} else if f == killed && at%9 == 3*j || f != killed && at == (5*i+11*j)%28+2 {
					name := fmt.Sprintf("case-%04d", len(sample))
					sample[name] = &faultCase{story: s, name: name, fault: f, at: at}
				}
			}
			if *fullFaults {
				t.Run(fmt.Sprintf("%s/%s", f, s.name), func(t *testing.T) {
					t.Parallel()
					playFaults(t, all)
				})
			}
		}
	}
	if !*fullFaults {
		playFaults(t, sample)
	}
}
