package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/rollout/analysis/outbound"
	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// Server is one server.
type Server struct {
	Client *outbound.Client
	// Address is where /api/v1/query is below, as https://prometheus.example.org/tenant.
	Address string
	// Header is sent with each query, as for the credentials.
	Header http.Header
}

// Value asks for the value of a query at a time.
func (s Server) Value(ctx context.Context, query string, at time.Time) (float64, error) {
	data, err := s.ask(ctx, "query", url.Values{"query": {query}, "time": {seconds(at)}})
	if err != nil {
		return 0, err
	}
	switch data.ResultType {
	case "scalar":
		var p point
		if json.Unmarshal(data.Result, &p) != nil {
			return 0, unknown.New(unknown.BadAnswer, "the scalar is not a time and a number")
		}
		return p.valueAt(at)
	case "vector":
		var series []struct{ Value *point }
		if json.Unmarshal(data.Result, &series) != nil {
			return 0, unknown.New(unknown.BadAnswer, "the vector has a value that is not a time and a number")
		}
		if err := one(len(series)); err != nil {
			return 0, err
		}
		if series[0].Value == nil {
			return 0, unknown.New(unknown.BadAnswer, "the series has no number, as one of a native histogram")
		}
		return series[0].Value.valueAt(at)
	}
	return 0, unknown.New(unknown.BadAnswer, "the result is neither a vector nor a scalar")
}

// Samples asks for the values of a query at from+step, from+2·step and so on, up to to. A
// value that is NaN is left out, because a quantile of no requests is NaN.
func (s Server) Samples(ctx context.Context, query string, from, to time.Time, step time.Duration) ([]float64, error) {
	data, err := s.ask(ctx, "query_range", url.Values{
		"query": {query}, "start": {seconds(from.Add(step))}, "end": {seconds(to)}, "step": {formatSeconds(step)},
	})
	if err != nil {
		return nil, err
	}
	var series []struct{ Values []point }
	if data.ResultType != "matrix" || json.Unmarshal(data.Result, &series) != nil {
		return nil, unknown.New(unknown.BadAnswer, "the result is not a matrix")
	}
	if err := one(len(series)); err != nil {
		return nil, err
	}
	// Victoria Metrics moves long ranges by up to a step, so that they are at multiples of it.
	if most := int(to.Sub(from)/step) + 1; len(series[0].Values) > most {
		return nil, unknown.New(unknown.BadAnswer, "the answer has more values than the window")
	}
	values := make([]float64, 0, len(series[0].Values))
	for _, p := range series[0].Values {
		switch {
		case p.at < unix(from.Add(-step)) || p.at > unix(to.Add(step)):
			return nil, unknown.New(unknown.BadAnswer, "a value is of another time than the window")
		case math.IsNaN(p.value):
		case math.IsInf(p.value, 0):
			return nil, unknown.New(unknown.NotANumber, "the value is infinite")
		default:
			values = append(values, p.value)
		}
	}
	switch {
	case len(series[0].Values) == 0:
		return nil, unknown.New(unknown.NoData, "the series has no sample")
	case len(values) == 0:
		return nil, unknown.New(unknown.NotANumber, "the value is NaN")
	}
	return values, nil
}

// one returns an error unless there is exactly one series.
func one(series int) error {
	switch {
	case series == 0:
		return unknown.New(unknown.NoData, "the answer has no series")
	case series > 1:
		return unknown.New(unknown.SeveralSeries, strconv.Itoa(series)+" series; aggregate them in the query, as by sum()")
	}
	return nil
}

// point is a time and a number in quotes: [1435781430.781, "1"].
type point struct{ at, value float64 }

// maxMoved is how far a value may be from the time of its question. Prometheus answers for that
// very time. VictoriaMetrics moves it by its -search.latencyOffset, 30 s by default.
const maxMoved = 5 * time.Minute

// valueAt returns the value, if it is a finite number and of the time that was asked for.
func (p point) valueAt(asked time.Time) (float64, error) {
	switch {
	case math.Abs(p.at-unix(asked)) > maxMoved.Seconds():
		return 0, unknown.New(unknown.BadAnswer, "the value is of another time than the question")
	case math.IsNaN(p.value):
		return 0, unknown.New(unknown.NotANumber, "the value is NaN")
	case math.IsInf(p.value, 0):
		return 0, unknown.New(unknown.NotANumber, "the value is infinite")
	}
	return p.value, nil
}

var errPoint = errors.New("not a time and a number")

func (p *point) UnmarshalJSON(text []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(text, &pair); err != nil {
		return errPoint
	}
	var at float64
	var number string
	if len(pair) != 2 || json.Unmarshal(pair[0], &at) != nil || json.Unmarshal(pair[1], &number) != nil || number == "" {
		return errPoint
	}
	// ParseFloat also takes hexadecimal numbers, underscores and words that no server sends.
	value, err := strconv.ParseFloat(number, 64)
	special := slices.Contains([]string{"NaN", "+Inf", "-Inf", "Inf"}, number)
	if err != nil || !special && strings.Trim(number, "0123456789+-.eE") != "" {
		return errPoint
	}
	p.at, p.value = at, value
	return nil
}

// reply is the envelope of each answer.
type reply struct {
	Status    string          `json:"status"`
	Data      *data           `json:"data"`
	ErrorType string          `json:"errorType"`
	Warnings  []string        `json:"warnings"`
	Partial   bool            `json:"isPartial"` // of VictoriaMetrics
	Error     json.RawMessage `json:"error"`
}

type data struct {
	ResultType string          `json:"resultType"`
	Result     json.RawMessage `json:"result"`
}

// ask sends a query. Its parameters are in the body, because a query may be longer than a URL.
func (s Server) ask(ctx context.Context, path string, form url.Values) (*data, error) {
	form.Set("partial_response", "false") // Thanos leaves out stores that do not answer, unless it is asked not to
	to := strings.TrimRight(s.Address, "/") + "/api/v1/" + path
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, unknown.New(unknown.ProviderRefused, "the address is not a URL")
	}
	for name, values := range s.Header {
		r.Header[name] = values
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := s.Client.Do(r)
	if err != nil {
		return nil, err
	}
	if err := answer.CheckClock(); err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, unknown.Passing(unknown.BadAnswer, "HTTP "+strconv.Itoa(answer.Status)+" is not the whole answer")
	}
	return read(answer.Body)
}

// read reads the envelope of an answer.
func read(body []byte) (*data, error) {
	var got reply
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&got); err != nil {
		return nil, unknown.Passing(unknown.BadAnswer, "the answer is not JSON of Prometheus' API")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, unknown.Passing(unknown.BadAnswer, "the answer is longer than one JSON object")
	}
	switch {
	case got.Status == "error":
		return nil, unknown.New(unknown.ProviderRefused, errorType(got.ErrorType))
	case got.Status != "success" || got.Data == nil || got.Data.Result == nil:
		return nil, unknown.Passing(unknown.BadAnswer, "the answer is not JSON of Prometheus' API")
	case len(got.Warnings) > 0:
		return nil, unknown.Passing(unknown.PartialAnswer, "warnings of the server: "+strconv.Itoa(len(got.Warnings)))
	case got.Partial:
		return nil, unknown.Passing(unknown.PartialAnswer, "the server says isPartial")
	}
	return got.Data, nil
}

// errorType returns the kind of an error, where it is one that Prometheus documents.
func errorType(kind string) string {
	known := []string{"timeout", "canceled", "execution", "bad_data", "internal", "unavailable", "not_found", "not_acceptable"}
	if slices.Contains(known, kind) {
		return "the server says " + kind
	}
	return "the server says that the query is in error"
}

// seconds formats a time as Prometheus reads it, to the millisecond.
func seconds(t time.Time) string { return strconv.FormatFloat(unix(t), 'f', 3, 64) }

func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func formatSeconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}
