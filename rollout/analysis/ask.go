package analysis

import (
	"cmp"
	"context"
	"errors"

	"github.com/tranche-dev/tranche/plan/condition"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/analysis/datadog"
	"github.com/tranche-dev/tranche/rollout/analysis/prometheus"
	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
	"github.com/tranche-dev/tranche/rollout/analysis/web"
)

// prometheus asks a Prometheus.
func (a *asking) prometheus(ctx context.Context, q *v1alpha1.PrometheusMetric) (values []float64, total string, err error) {
	client, provider, with, err := a.of(ctx, q.Provider, TypePrometheus, q.SecretRef)
	if err != nil {
		return nil, "", err
	}
	server := prometheus.Server{Client: client, Address: cmp.Or(provider.Address, q.Address), Header: with.header}
	if q.Samples != nil {
		values, err = server.Samples(ctx, q.Query, a.m.From, a.m.To, q.Samples.Duration)
		return a.zeroIfEmpty(values, err)
	}
	value, err := server.Value(ctx, q.Query, a.m.To)
	values, _, err = a.zeroIfEmpty([]float64{value}, err)
	if err != nil || q.Total == "" {
		return values, "", err
	}
	whole, err := server.Value(ctx, q.Total, a.m.To)
	if err != nil {
		return nil, "", ofTotal(err)
	}
	return values, format(whole), nil
}

// zeroIfEmpty takes an empty answer for 0, where the metric says so.
func (a *asking) zeroIfEmpty(values []float64, err error) ([]float64, string, error) {
	if err != nil && a.m.ZeroIfEmpty && unknown.Of(err).Reason == unknown.NoData {
		return []float64{0}, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	return values, "", nil
}

// ofTotal says that an error is of the query total.
func ofTotal(err error) error {
	e := *unknown.Of(err)
	e.Detail = "total: " + e.Detail
	return &e
}

func datadogAddress(site string) string { return "https://api." + cmp.Or(site, "datadoghq.com") }

// datadog asks Datadog. A proportion is that of the sums of the points. Else the value is the
// average of the points.
func (a *asking) datadog(ctx context.Context, q *v1alpha1.DatadogMetric) (values []float64, total string, err error) {
	client, provider, with, err := a.of(ctx, q.Provider, TypeDatadog, q.SecretRef)
	switch {
	case err != nil:
		return nil, "", err
	case with.apiKey == "" || with.appKey == "":
		return nil, "", unknown.Passing(unknown.SecretNotReadable, "api-key or app-key is missing")
	}
	server := datadog.Server{
		Client: client, Address: cmp.Or(provider.Address, datadogAddress(q.Site)), APIKey: with.apiKey, ApplicationKey: with.appKey,
	}
	points, err := server.Points(ctx, q.Query, a.m.From, a.m.To)
	if points, _, err = a.zeroIfEmpty(points, err); err != nil {
		return nil, "", err
	}
	if q.Total == "" {
		return []float64{sum(points) / float64(len(points))}, "", nil
	}
	whole, err := server.Points(ctx, q.Total, a.m.From, a.m.To)
	if err != nil {
		return nil, "", ofTotal(err)
	}
	return []float64{sum(points)}, format(sum(whole)), nil
}

func sum(points []float64) (s float64) {
	for _, p := range points {
		s += p
	}
	return s
}

// web sends a request to a server of the user.
func (a *asking) web(ctx context.Context, q *v1alpha1.WebMetric) (bool, error) {
	holds, err := condition.Compile(a.m.Condition)
	if err != nil {
		return false, unknown.New(unknown.ConditionFailed, "the condition does not compile")
	}
	client, _, with, err := a.of(ctx, "", "", q.SecretRef)
	if err != nil {
		return false, err
	}
	r := web.Request{Client: client, URL: q.URL, Method: q.Method, Header: with.header, Key: a.m.Hash()}
	if q.Body != nil {
		r.Body = q.Body.Raw
	}
	ok, err := r.Send(ctx, holds)
	if errors.Is(err, context.Canceled) {
		return false, unknown.Passing(unknown.ProviderUnavailable, "the request was cancelled")
	}
	return ok, err
}
