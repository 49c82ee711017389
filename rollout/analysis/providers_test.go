package analysis

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/analysis/outbound"
	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// anyAddress lets servers of tests be on this machine.
func anyAddress(netip.Addr) error { return nil }

var to = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// measureOnce asks once, as the pool does.
func measureOnce(t *testing.T, o Options, m engine.Measurement) engine.Measured {
	t.Helper()
	if o.Now == nil {
		o.Now = time.Now
	}
	m.Namespace, m.Plan, m.Metric, m.N = "shop", "web", "errors", 3
	if m.To.IsZero() {
		m.From, m.To = to.Add(-2*time.Minute), to
	}
	p := NewProviders(o)
	t.Cleanup(p.Close)
	got, _ := p.Question(m, metav1.OwnerReference{}).Run(t.Context())
	return got
}

func prometheusAt(address, query string) *verdict.Question {
	return &verdict.Question{Prometheus: &v1alpha1.PrometheusMetric{Address: address, Query: query}}
}

// answer is one of a server, and what is made of it.
type answer struct {
	status int
	header map[string]string
	body   string
	want   string // the value, or the reason
	retry  bool
}

func answers() map[string]answer {
	const vector = `{"status":"success","data":{"resultType":"vector","result":[%s]}}`
	valueAt := func(at time.Time, v string) string {
		return fmt.Sprintf(vector, fmt.Sprintf(`{"metric":{},"value":[%d,%q]}`, at.Unix(), v))
	}
	value := func(v string) string { return valueAt(to, v) }
	scalarAt := func(at time.Time) string {
		return fmt.Sprintf(`{"status":"success","data":{"resultType":"scalar","result":[%d,"7"]}}`, at.Unix())
	}
	with := func(field string) string { return strings.Replace(value("1"), `"data"`, field+`,"data"`, 1) }
	date := func(off time.Duration) map[string]string {
		return map[string]string{"Date": time.Now().Add(off).UTC().Format(http.TimeFormat)}
	}
	return map[string]answer{
		"a value":            {body: value("0.25"), want: "0.25"},
		"an exponent":        {body: value("1e-7"), want: "1e-07"},
		"a scalar":           {body: scalarAt(to), want: "7"},
		"moved by 30 s":      {body: valueAt(to.Add(-30*time.Second), "1"), want: "1"},
		"of yesterday":       {body: valueAt(to.AddDate(0, 0, -1), "1"), want: unknown.BadAnswer},
		"of tomorrow":        {body: scalarAt(to.AddDate(0, 0, 1)), want: unknown.BadAnswer},
		"infos are no harm":  {body: with(`"infos":["PromQL info: metric might not be a counter"]`), want: "1"},
		"no series":          {body: fmt.Sprintf(vector, ""), want: unknown.NoData},
		"NaN":                {body: value("NaN"), want: unknown.NotANumber},
		"+Inf":               {body: value("+Inf"), want: unknown.NotANumber},
		"-Inf":               {body: value("-Inf"), want: unknown.NotANumber},
		"a number too large": {body: value("1e999"), want: unknown.BadAnswer, retry: false},
		"a hexadecimal":      {body: value("0x1p-2"), want: unknown.BadAnswer},
		"several series": {body: fmt.Sprintf(vector, `{"metric":{"a":"1"},"value":[1,"1"]},{"metric":{"a":"2"},"value":[1,"2"]}`),
			want: unknown.SeveralSeries},
		"warnings":            {body: with(`"warnings":["a store did not answer"]`), want: unknown.PartialAnswer, retry: true},
		"isPartial":           {body: with(`"isPartial":true`), want: unknown.PartialAnswer, retry: true},
		"a native histogram":  {body: fmt.Sprintf(vector, `{"metric":{},"histogram":[1,{"count":"1"}]}`), want: unknown.BadAnswer},
		"a matrix":            {body: `{"status":"success","data":{"resultType":"matrix","result":[]}}`, want: unknown.BadAnswer},
		"a login page":        {body: `<html>secret-in-body</html>`, want: unknown.BadAnswer, retry: true},
		"JSON of another":     {body: `{"ok":true}`, want: unknown.BadAnswer, retry: true},
		"two answers":         {body: value("1") + value("2"), want: unknown.BadAnswer, retry: true},
		"nothing":             {body: ``, want: unknown.BadAnswer, retry: true},
		"cut off":             {body: value("1")[:40], want: unknown.BadAnswer, retry: true},
		"10 MiB":              {body: value("1") + strings.Repeat(" ", 10<<20), want: unknown.BadAnswer},
		"an error with 200":   {body: `{"status":"error","errorType":"bad_data","error":"secret-in-body"}`, want: unknown.ProviderRefused},
		"an error of no type": {body: `{"status":"error","error":"secret-in-body"}`, want: unknown.ProviderRefused},
		"a part of it":        {status: 206, body: value("1"), want: unknown.BadAnswer, retry: true},
		"400":                 {status: 400, body: `secret-in-body`, want: unknown.ProviderRefused},
		"401":                 {status: 401, want: unknown.ProviderRefused},
		"404":                 {status: 404, want: unknown.ProviderRefused},
		"422":                 {status: 422, want: unknown.ProviderRefused},
		"408":                 {status: 408, want: unknown.ProviderUnavailable, retry: true},
		"429":                 {status: 429, want: unknown.ProviderUnavailable, retry: true},
		"500":                 {status: 500, body: value("1"), want: unknown.ProviderUnavailable, retry: true},
		"503":                 {status: 503, want: unknown.ProviderUnavailable, retry: true},
		"a redirect":          {status: 302, header: map[string]string{"Location": "/again"}, want: unknown.BadAnswer},
		"a clock ahead":       {header: date(2 * time.Minute), body: value("1"), want: unknown.ClockSkew, retry: true},
		"a clock behind":      {header: date(-2 * time.Minute), body: value("1"), want: unknown.ClockSkew, retry: true},
		"a clock a bit off":   {header: date(20 * time.Second), body: value("1"), want: "1"},
	}
}

// A server says anything. Only an answer that is one finite number is a value. All else is
// Unknown, with its reason, and says whether the same window is asked again.
func TestPrometheus_Answers(t *testing.T) {
	t.Parallel()
	for name, c := range answers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				if c.status != 0 {
					w.WriteHeader(c.status)
				}
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			both := engine.Measurement{Update: prometheusAt(server.URL, "up"), Stable: prometheusAt(server.URL, "up")}
			got := measureOnce(t, Options{MayReach: anyAddress}, both)
			for side, a := range map[string]*verdict.Answer{"update": got.Update, "stable": got.Stable} {
				if said := a.Unknown + strings.Join(a.Values, ","); said != c.want {
					t.Errorf("%s: %q (%s), want %q", side, said, a.Message, c.want)
				}
				if strings.Contains(a.Message, "secret") || strings.Contains(a.Message, "127.0.0.1") {
					t.Errorf("%s: the message repeats the answer or the address: %s", side, a.Message)
				}
			}
			if got.Retrying != c.retry {
				t.Errorf("asked again: %t, want %t", got.Retrying, c.retry)
			}
		})
	}
}

// The window is the one that the measurement names, whatever the time is; the sides and the
// total are kept apart.
func TestPrometheus_Window(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		f := r.PostForm
		asked = append(asked, r.URL.Path+" "+f.Get("query")+" "+f.Get("time")+f.Get("start")+" "+f.Get("end")+" "+f.Get("step"))
		switch {
		case strings.HasSuffix(r.URL.Path, "query_range"):
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[
				{"values":[[%d,"0.5"],[%[1]d,"NaN"],[%[1]d,"0.75"]]}]}}`, to.Unix())
		case r.PostForm.Get("query") == "empty":
			_, _ = fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
		default:
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"value":[%s,"4"]}]}}`, f.Get("time"))
		}
	}))
	defer server.Close()
	o := Options{MayReach: anyAddress}
	proportion := func(query, total string) *verdict.Question {
		q := prometheusAt(server.URL+"/tenant/", query)
		q.Prometheus.Total = total
		return q
	}
	got := measureOnce(t, o, engine.Measurement{Update: proportion("bad", "all"), Stable: proportion("bad", "empty")})
	ofTotal := got.Stable.Unknown == unknown.NoData && strings.HasPrefix(got.Stable.Message, "total: ")
	if got.Update.Values[0] != "4" || got.Update.Total != "4" || !ofTotal {
		t.Errorf("update %+v, stable %+v", got.Update, got.Stable)
	}
	got = measureOnce(t, o, engine.Measurement{Update: proportion("empty", "all"), ZeroIfEmpty: true})
	if got.Update.Values[0] != "0" || got.Update.Total != "4" || got.Stable != nil {
		t.Errorf("no errors are %+v", got.Update)
	}
	samples := prometheusAt(server.URL, "p99")
	samples.Prometheus.Samples = &metav1.Duration{Duration: 30 * time.Second}
	if got = measureOnce(t, o, engine.Measurement{Update: samples}); !cmp.Equal(got.Update.Values, []string{"0.5", "0.75"}) {
		t.Errorf("samples %+v", got.Update)
	}
	at := fmt.Sprint(to.Unix())
	want := []string{
		"/tenant/api/v1/query bad " + at + ".000  ", "/tenant/api/v1/query all " + at + ".000  ",
		"/tenant/api/v1/query bad " + at + ".000  ", "/tenant/api/v1/query empty " + at + ".000  ",
		"/tenant/api/v1/query empty " + at + ".000  ", "/tenant/api/v1/query all " + at + ".000  ",
		"/api/v1/query_range p99 " + fmt.Sprint(to.Unix()-90) + ".000 " + at + ".000 30",
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// A server that does not answer, and one that answers byte by byte, end with their time.
func TestWeb_Slow(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/drip" {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(" "))
				w.(http.Flusher).Flush()
				select {
				case <-time.After(time.Millisecond):
				case <-stop:
				}
			}
			return
		}
		select {
		case <-r.Context().Done():
		case <-stop:
		}
	}))
	defer server.Close()
	defer close(stop)
	for _, path := range []string{"/drip", "/never"} {
		q := &v1alpha1.WebMetric{URL: server.URL + path, Timeout: &metav1.Duration{Duration: 50 * time.Millisecond}}
		m := engine.Measurement{Update: &verdict.Question{Web: q}, Condition: "status == 200"}
		got := measureOnce(t, Options{MayReach: anyAddress}, m)
		if got.Update.Unknown != unknown.ProviderUnavailable || !got.Retrying || got.Update.Message != "the server did not answer in time" {
			t.Errorf("%s: %+v", path, got.Update)
		}
	}
}

// A web measurement has one key, sends what the plan says, and is judged by its condition.
func TestWeb(t *testing.T) {
	t.Parallel()
	var keys []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		var sent map[string]any
		isJSON := r.Header.Get("Content-Type") == "application/json"
		if r.Method != http.MethodPost || !isJSON || json.NewDecoder(r.Body).Decode(&sent) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"failed": sent["fail"], "big": 9007199254740993})
	}))
	defer server.Close()
	ask := func(condition, body string) *verdict.Answer {
		q := &v1alpha1.WebMetric{URL: server.URL, Method: "POST", Body: &runtime.RawExtension{Raw: []byte(body)}}
		m := engine.Measurement{Update: &verdict.Question{Web: q}, Condition: condition}
		return measureOnce(t, Options{MayReach: anyAddress}, m).Update
	}
	for _, c := range []struct{ condition, body, want string }{
		{"status == 200 && body.failed == 0", `{"fail":0}`, "1"},
		{"status == 200 && body.failed == 0", `{"fail":2}`, "0"},
		{"body.big == 9007199254740993", `{"fail":2}`, "1"},
		{"body.missing == 0", `{"fail":2}`, unknown.ConditionFailed},
		{"status == 200", `not JSON`, unknown.ProviderRefused},
	} {
		if a := ask(c.condition, c.body); a.Unknown+strings.Join(a.Values, ",") != c.want {
			t.Errorf("%s on %s: %+v, want %s", c.condition, c.body, a, c.want)
		}
	}
	for _, key := range keys {
		if key == "" || key != keys[0] {
			t.Errorf("one measurement has the keys %q", keys)
		}
	}
}

// A configured provider is exempt from the check of addresses, gets its credentials from
// files, and serves the namespaces that it names. No secret is in a log or an answer.
func TestProvider(t *testing.T) {
	t.Parallel()
	s := newConfigured(t)
	s.answer = fmt.Sprintf(`{"status":"success","data":{"resultType":"vector","result":[{"value":[%d,"4"]}]}}`, to.Unix())
	named := func(name string) *verdict.Answer {
		return s.ask(&verdict.Question{Prometheus: &v1alpha1.PrometheusMetric{Provider: name, Query: "up"}})
	}
	a := named("platform")
	if a.Unknown != "" || s.sent.Get("Authorization") != "Bearer top-secret" || s.sent.Get("X-Scope-Orgid") != "shop" {
		t.Errorf("%+v by %v", a, s.sent)
	}
	for _, name := range []string{"theirs", "dog", "none"} {
		if a := named(name); a.Unknown != unknown.ProviderRefused || !strings.HasSuffix(a.Message, "it has platform") {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if text := s.log.String(); strings.Contains(text, "secret") || !strings.Contains(text, "platform") {
		t.Errorf("the log has a secret, or no provider: %s", text)
	}
}

// The value of a Datadog query is the average of its points in the window, or their sum with a
// total. Its other answers are Unknown, with their reasons.
func TestDatadog(t *testing.T) {
	t.Parallel()
	s := newConfigured(t)
	ask := func(total string) *verdict.Answer {
		return s.ask(&verdict.Question{Datadog: &v1alpha1.DatadogMetric{Provider: "dog", Query: "sum:errors{*}", Total: total}})
	}
	at := func(before time.Duration) int64 { return to.Add(-before).UnixMilli() }
	s.answer = fmt.Sprintf(`{"status":"ok","series":[{"pointlist":[[%d,1],[%d,3],[%d,null],[%d,5]]}]}`,
		at(3*time.Minute), at(2*time.Minute), at(time.Minute), at(time.Second))
	a := ask("")
	if a.Unknown != "" || a.Values[0] != "4" || s.sent.Get("Dd-Api-Key") != "api-secret" || s.sent.Get("Dd-Application-Key") != "app-secret" {
		t.Errorf("%+v by %v", a, s.sent)
	}
	if a := ask("sum:requests{*}"); a.Values[0] != "8" || a.Total != "8" {
		t.Errorf("%+v", a)
	}
	for _, c := range []struct{ answer, want string }{
		{`{"status":"error","error":"secret"}`, unknown.ProviderRefused}, {`{"status":"ok","series":[]}`, unknown.NoData},
		{`{"status":"ok","series":[{},{}]}`, unknown.SeveralSeries}, {`{"status":"ok","series":[{"pointlist":[[1]]}]}`, unknown.BadAnswer},
		{`[]`, unknown.BadAnswer}, {`{"status":"ok","series":[{"pointlist":[[1,2]]}]}`, unknown.NoData},
	} {
		s.answer = c.answer
		if a := ask(""); a.Unknown != c.want || strings.Contains(a.Message, "secret") {
			t.Errorf("%s: %+v, want %s", c.answer, a, c.want)
		}
	}
}

// configured is a server that a configuration names, as Prometheus and as Datadog.
type configured struct {
	*testing.T
	o      Options
	answer string
	sent   http.Header // with the last request
	log    bytes.Buffer
}

func newConfigured(t *testing.T) *configured {
	s, dir := &configured{T: t}, t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.sent = r.Header
		_, _ = fmt.Fprint(w, s.answer)
	}))
	t.Cleanup(server.Close)
	c, err := ReadConfiguration(write("analysis.yaml", fmt.Sprintf(`
providers:
- {name: platform, type: prometheus, address: %q, bearerTokenFile: %q, headers: {X-Scope-OrgID: $(namespace)}}
- {name: theirs, type: prometheus, address: %q, namespaces: [other]}
- {name: dog, type: datadog, address: %q, apiKeyFile: %q, appKeyFile: %q}
`, server.URL, write("token", "top-secret\n"), server.URL, server.URL, write("api", "api-secret\n"), write("app", "app-secret"))))
	if err != nil {
		t.Fatal(err)
	}
	s.o = Options{Configuration: c, Log: logOf(&s.log)}
	return s
}

func (s *configured) ask(q *verdict.Question) *verdict.Answer {
	s.Helper()
	return measureOnce(s.T, s.o, engine.Measurement{Update: q}).Update
}

// The configuration is read again when it changes, and a file that is not valid leaves the
// former providers.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	const server = `providers: [{name: a, type: prometheus, address: "http://h"`
	for text, want := range map[string]string{
		`providers: [{name: a, type: graphite}]`:                             "must be prometheus or datadog",
		`providers: [{name: a, type: prometheus}]`:                           "address is missing",
		`providers: [{name: a, type: prometheus, address: "https://u:p@h"}]`: "without user",
		`providers: [{name: a, type: prometheus, address: "ftp://h"}]`:       "must be an http or https URL",
		`providers: [{name: a, type: prometheus, adress: "http://h"}]`:       "unknown field",
		server + `, username: u}]`:                                           "set together",
		`providers: [{name: a, type: datadog}]`:                              "apiKeyFile or appKeyFile is missing",
		`providers: [{name: A, type: datadog}]`:                              "lower-case",
		server + `, headers: {"a b": c}}]`:                                   "name of a header",
		server + `}, {name: a, type: prometheus, address: "http://i"}]`:      "another one of that name",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	file := filepath.Join(t.TempDir(), "analysis.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`providers: [{name: a, type: prometheus, address: "http://h"}]`)
	c, err := ReadConfiguration(file)
	if err != nil || c.TypeOf("shop", "a") != TypePrometheus || c.TypeOf("shop", "b") != "" {
		t.Fatalf("%v", err)
	}
	write(`providers: [`)
	if c.TypeOf("shop", "a") != TypePrometheus {
		t.Error("the former providers are gone")
	}
	write(`providers: [{name: b, type: prometheus, address: "http://h"}]`)
	if c.TypeOf("shop", "a") != "" || c.TypeOf("shop", "b") != TypePrometheus {
		t.Error("the file was not read again")
	}
}

// A tenant's address may not be of this machine, of the link or of a metadata service.
func TestAddressRefused(t *testing.T) {
	t.Parallel()
	hit := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hit = true }))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	for _, host := range []string{
		"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433", "169.254.169.254", "[fe80::1]",
	} {
		address := "http://" + host + port
		got := measureOnce(t, Options{}, engine.Measurement{Update: prometheusAt(address, "up")})
		if a := got.Update; a.Unknown != unknown.ProviderRefused && a.Unknown != unknown.ProviderUnavailable || hit {
			t.Errorf("%s: %+v, asked: %t", address, a, hit)
		}
	}
	none, err := outbound.ParseNetworks([]string{"none"})
	if err != nil {
		t.Fatal(err)
	}
	m := engine.Measurement{Update: prometheusAt("http://192.0.2.1", "up")}
	if a := measureOnce(t, Options{Networks: none}, m).Update; a.Unknown != unknown.ProviderRefused {
		t.Errorf("%+v", a)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add(fmt.Appendf(nil, `{"status":"success","data":{"resultType":"vector","result":[{"value":[%d,"4"]}]}}`, to.Unix()))
	f.Add([]byte(`{"status":"success","data":{"resultType":"matrix","result":[{"values":[[1,"4"]]}]}}`))
	f.Add([]byte(`{"status":"ok","series":[{"pointlist":[[1,2]]}]}`))
	f.Add([]byte(`{"status":"success","data":{"resultType":"scalar","result":[1,"0x1p4"]}}`))
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }))
	f.Cleanup(server.Close)
	p := NewProviders(Options{Now: time.Now, MayReach: anyAddress})
	f.Cleanup(p.Close)
	f.Fuzz(func(t *testing.T, answer []byte) {
		body = answer
		samples := prometheusAt(server.URL, "up")
		samples.Prometheus.Samples = &metav1.Duration{Duration: time.Minute}
		for _, q := range []*verdict.Question{prometheusAt(server.URL, "up"), samples, {Web: &v1alpha1.WebMetric{URL: server.URL}}} {
			m := engine.Measurement{Key: verdict.Key{Namespace: "shop"}, From: to.Add(-time.Minute), To: to, Update: q}
			m.Condition = "body.ok || body == 'x'"
			got, err := p.Question(m, metav1.OwnerReference{}).Run(context.Background())
			a := got.Update
			if (a.Unknown == "") != (len(a.Values) > 0) || got.Retrying != (err != nil) {
				t.Errorf("%+v, %v", a, err)
			}
			for _, v := range a.Values {
				if strings.ContainsAny(strings.ToLower(v), "nx") { // NaN, Inf, hexadecimal
					t.Errorf("the value %s", v)
				}
			}
		}
	})
}

func logOf(b *bytes.Buffer) logr.Logger {
	return funcr.New(func(prefix, args string) { fmt.Fprintln(b, prefix, args) }, funcr.Options{Verbosity: 9})
}
