// Package prometheus asks servers that have Prometheus' HTTP API: Prometheus itself, Thanos,
// Mimir, VictoriaMetrics.
//
// It is a client of its own because client_golang/api hides what decides here: the status
// code, Retry-After and Date. That client also reads answers of any size. The value of an
// answer is exactly one finite number, or a reason of package unknown.
package prometheus
