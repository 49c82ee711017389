package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	stale "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"sigs.k8s.io/yaml"
)

// watchdog is a Prometheus with a clock of its own. It scrapes real processes, and
// evaluates the rules of config/monitoring with Prometheus' engine, but an hour passes in
// the time of its scrapes.
type watchdog struct {
	testing.TB
	now     time.Time
	targets []string // host:port
	engine  *promql.Engine
	rules   []rule
	kept    samples
	last    map[string]map[string]bool // by what was scraped or recorded: the series it had
	since   map[string]time.Time       // by alert and labels: since when its expression is true
	firing  []string                   // names of alerts, sorted
}

type rule struct {
	Alert, Record, Expr string
	For                 model.Duration
	Labels, Annotations map[string]string
}

// rulesOf reads the rules of config/monitoring/alerts.yaml.
func rulesOf(t testing.TB) []rule {
	t.Helper()
	var file struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	text, err := os.ReadFile("../../config/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil && !strings.Contains(err.Error(), "unknown field") {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Spec.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// scrapeEvery is the Prometheus' interval, of scrapes and of rules.
const scrapeEvery = 30 * time.Second

func newWatchdog(t testing.TB, targets ...string) *watchdog {
	t.Helper()
	return &watchdog{
		TB: t, now: time.Now(), targets: targets, rules: rulesOf(t), kept: samples{},
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: parser.NewParser(parser.Options{})}),
		last:   map[string]map[string]bool{}, since: map[string]time.Time{},
	}
}

// pass lets time pass, and returns the names of the alerts that fire at its end.
func (w *watchdog) pass(d time.Duration) []string {
	w.Helper()
	for end := w.now.Add(d); w.now.Before(end); {
		w.step(scrapeEvery)
	}
	return w.firing
}

// step goes on by one scrape and one evaluation.
func (w *watchdog) step(d time.Duration) {
	w.Helper()
	w.now = w.now.Add(d)
	for _, target := range w.targets {
		w.ingest(target, w.scrape(target))
	}
	w.evaluate()
}

// expect fails the test unless all of these fire, and none that is not allowed.
func (w *watchdog) expect(when string, alerts ...string) {
	w.Helper()
	if slices.Sort(alerts); !slices.Equal(w.firing, alerts) {
		w.Errorf("%s: %v fire, want %v", when, w.firing, alerts)
	}
}

// scrape returns the samples of a process; none where it does not answer. Labels of
// the target lose against those of the metric: honorLabels.
func (w *watchdog) scrape(target string) map[string]float64 {
	w.Helper()
	all := map[string]float64{}
	for name, v := range w.exposed(target) {
		l, err := parser.NewParser(parser.Options{}).ParseMetric(name)
		if err != nil {
			w.Fatalf("scraping %s: %s: %v", target, name, err)
		}
		b := labels.NewBuilder(l)
		for name, of := range map[string]string{"instance": target, "namespace": "tranche-system"} {
			if l.Get(name) == "" {
				b.Set(name, of)
			}
		}
		all[b.Labels().String()] = v
	}
	return all
}

// exposed are the samples that a process exposes, by metric with labels.
func (w *watchdog) exposed(target string) map[string]float64 {
	w.Helper()
	ctx, stop := context.WithTimeout(w.Context(), 10*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+"/metrics", nil)
	if err != nil {
		w.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		return nil
	}
	all := map[string]float64{}
	for _, f := range parseMetrics(w, string(text)) {
		for _, m := range f.GetMetric() {
			var pairs []string
			for _, l := range m.GetLabel() {
				pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			of := "{" + strings.Join(pairs, ",") + "}"
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				all[f.GetName()+of] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				all[f.GetName()+of] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
				all[f.GetName()+"_count"+of] = float64(m.GetHistogram().GetSampleCount())
			case dto.MetricType_SUMMARY, dto.MetricType_UNTYPED: // no rule asks for one
			}
		}
	}
	return all
}

// ingest keeps the samples that were scraped or recorded. A series that was there before
// and is not now becomes stale, as in Prometheus.
func (w *watchdog) ingest(from string, all map[string]float64) {
	w.Helper()
	at := w.now.UnixMilli()
	for name := range w.last[from] {
		if _, ok := all[name]; !ok {
			w.kept[name].samples = append(w.kept[name].samples, sample{at, math.Float64frombits(stale.StaleNaN)})
		}
	}
	w.last[from] = map[string]bool{}
	for name, v := range all {
		w.last[from][name] = true
		if w.kept[name] == nil {
			l, err := parser.NewParser(parser.Options{}).ParseMetric(name)
			if err != nil {
				w.Fatalf("keeping %s: %v", name, err)
			}
			w.kept[name] = &kept{labels: l}
		}
		w.kept[name].samples = append(w.kept[name].samples, sample{at, v})
	}
}

// evaluate runs the rules in their order, once.
func (w *watchdog) evaluate() {
	w.Helper()
	firing, seen := map[string]bool{}, map[string]bool{}
	for _, r := range w.rules {
		vector := w.query(r.Expr)
		if r.Record != "" {
			all := map[string]float64{}
			for _, s := range vector {
				all[labels.NewBuilder(s.Metric).Set(string(model.MetricNameLabel), r.Record).Labels().String()] = s.F
			}
			w.ingest("rule "+r.Record, all)
			continue
		}
		for _, s := range vector {
			key := r.Alert + s.Metric.String()
			seen[key] = true
			if _, ok := w.since[key]; !ok {
				w.since[key] = w.now
			}
			if w.now.Sub(w.since[key]) >= time.Duration(r.For) {
				firing[r.Alert] = true
			}
		}
	}
	maps.DeleteFunc(w.since, func(key string, _ time.Time) bool { return !seen[key] })
	w.firing = slices.Sorted(maps.Keys(firing))
}

func (w *watchdog) query(expr string) promql.Vector {
	w.Helper()
	q, err := w.engine.NewInstantQuery(w.Context(), w.kept, nil, expr, w.now)
	if err != nil {
		w.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(w.Context())
	vector, err := result.Vector()
	if err != nil {
		w.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(vector)
}

// samples are what a watchdog remembers, by metric with labels.
type samples map[string]*kept

type kept struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func (s samples) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{of: s, mint: mint, maxt: maxt}, nil
}

type querier struct {
	storage.LabelQuerier // rules do not ask for labels
	of                   samples
	mint, maxt           int64
}

func (q *querier) Close() error { return nil }

func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{at: -1}
	for _, k := range q.of {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(k.labels.Get(m.Name)) }) {
			continue
		}
		within := slices.DeleteFunc(slices.Clone(k.samples), func(s chunks.Sample) bool { return s.T() < q.mint || s.T() > q.maxt })
		if len(within) > 0 {
			set.all = append(set.all, storage.NewListSeries(k.labels, within))
		}
	}
	slices.SortFunc(set.all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set
}

type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.at] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// sample is a number at a time in milliseconds.
type sample struct {
	at int64
	v  float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// An alert comes after its time, outlives a scrape that fails, and does not outlive
// what it is about. A recorded series that is gone is gone.
func TestWatchdog(t *testing.T) {
	w := newWatchdog(t)
	w.rules = []rule{{Record: "bad", Expr: "x == 1"}, {Alert: "Bad", Expr: "bad", For: model.Duration(time.Minute)}}
	for i, tc := range []struct {
		x    float64
		want int
	}{{0, 0}, {1, 0}, {1, 0}, {1, 1}, {0, 0}, {1, 0}} {
		w.now = w.now.Add(scrapeEvery)
		w.ingest("target", map[string]float64{`x{a="b"}`: tc.x})
		w.evaluate()
		if len(w.firing) != tc.want {
			t.Errorf("step %d: %v fire, want %d", i, w.firing, tc.want)
		}
	}
	w.now = w.now.Add(scrapeEvery)
	w.ingest("target", nil)
	if got := w.query("x"); len(got) > 0 {
		t.Errorf("a target that is gone: %v", got)
	}
	if got := w.query("last_over_time(x[5m])"); len(got) != 1 || cmp.Compare(got[0].F, 1) != 0 {
		t.Errorf("what it said last: %v", got)
	}
}
