// Package datadog asks the API of Datadog for the values of a query: GET /api/v1/query.
package datadog

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/rollout/analysis/outbound"
	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// DefaultAddress is that of the site US1.
const DefaultAddress = "https://api.datadoghq.com"

// Server is Datadog, or what speaks its API.
type Server struct {
	Client *outbound.Client
	// Address is that of the site; empty: [DefaultAddress].
	Address string
	// APIKey and ApplicationKey are sent as headers.
	APIKey, ApplicationKey string
}

// Points asks for the points of a query in a window. The query must have one series. Points
// without a number are left out.
func (s Server) Points(ctx context.Context, query string, from, to time.Time) ([]float64, error) {
	address := s.Address
	if address == "" {
		address = DefaultAddress
	}
	form := url.Values{
		"query": {query}, "from": {strconv.FormatInt(from.Unix(), 10)}, "to": {strconv.FormatInt(to.Unix(), 10)},
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(address, "/")+"/api/v1/query?"+form.Encode(), nil)
	if err != nil {
		return nil, unknown.New(unknown.ProviderRefused, "the address is not a URL")
	}
	r.Header.Set("DD-API-KEY", s.APIKey)
	r.Header.Set("DD-APPLICATION-KEY", s.ApplicationKey)
	r.Header.Set("Accept", "application/json")
	answer, err := s.Client.Do(r)
	if err != nil {
		return nil, err
	}
	if err := answer.CheckClock(); err != nil {
		return nil, err
	}
	return read(answer.Body, from, to)
}

// reply is an answer.
type reply struct {
	Status  string          `json:"status"`
	Error   string          `json:"error"`
	Series  []series        `json:"series"`
	Message json.RawMessage `json:"message"`
}

type series struct {
	// Points are pairs of the time in milliseconds, and the value or null.
	Points [][]*float64 `json:"pointlist"`
}

// read returns the points of an answer that are in the window.
func read(body []byte, from, to time.Time) ([]float64, error) {
	var got reply
	switch err := json.Unmarshal(body, &got); {
	case err != nil:
		return nil, unknown.Passing(unknown.BadAnswer, "the answer is not JSON of Datadog's API")
	case got.Status == "error", got.Error != "":
		return nil, unknown.New(unknown.ProviderRefused, "Datadog says that the query is in error")
	case got.Status != "ok":
		return nil, unknown.Passing(unknown.BadAnswer, "the answer is not JSON of Datadog's API")
	case len(got.Series) == 0:
		return nil, unknown.New(unknown.NoData, "the answer has no point in the window")
	case len(got.Series) > 1:
		return nil, unknown.New(unknown.SeveralSeries, strconv.Itoa(len(got.Series))+" series; aggregate them in the query")
	}
	var values []float64
	for _, p := range got.Series[0].Points {
		if len(p) != 2 || p[0] == nil {
			return nil, unknown.Passing(unknown.BadAnswer, "a point is not a time and a number")
		}
		if at := *p[0]; p[1] == nil || at < float64(from.UnixMilli()) || at >= float64(to.UnixMilli()) {
			continue
		}
		if math.IsInf(*p[1], 0) || math.IsNaN(*p[1]) { // JSON has neither; the decoder may change
			return nil, unknown.New(unknown.NotANumber, "the value is infinite")
		}
		values = append(values, *p[1])
	}
	if len(values) == 0 {
		return nil, unknown.New(unknown.NoData, "the answer has no point in the window")
	}
	return values, nil
}
