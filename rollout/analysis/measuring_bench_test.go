package analysis

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/verdict"
)

// BenchmarkMeasuring measures one window of each of 500 releases, with a query for each of two
// revisions. The server is in this process, and there is no cluster. cpu-ms/window is the
// processor time of all 500 with that of the server. With windows of 10 s it is used each 10 s.
func BenchmarkMeasuring(b *testing.B) {
	const releases = 500
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"value":[%d,"4"]}]}}`, to.Unix())
	}))
	defer server.Close()
	m := NewMeasuring(Options{Now: time.Now, MayReach: anyAddress})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.Start(ctx) }()
	defer func() { cancel(); <-ended }()
	plans := make([]*v1alpha1.BatchRelease, releases)
	for i := range plans {
		plans[i] = &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web-", i)}}
	}
	began, cpu, n := time.Now(), cpuTime(b), 0
	for b.Loop() {
		n++
		for _, br := range plans {
			m.Ask(br, []engine.Measurement{{
				Key:  verdict.Key{Namespace: br.Namespace, Plan: br.Name, N: int32(n)},
				From: to.Add(-10 * time.Second), To: to, Update: prometheusAt(server.URL, "up"), Stable: prometheusAt(server.URL, "up"),
			}})
		}
		for _, br := range plans {
			for len(m.Answers(br)) == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	b.ReportMetric(float64(2*releases*n)/time.Since(began).Seconds(), "queries/s")
	b.ReportMetric(float64((cpuTime(b)-cpu).Milliseconds())/float64(n), "cpu-ms/window")
}

// cpuTime is what this process has taken.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var of syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &of); err != nil {
		b.Fatal(err)
	}
	return time.Duration(of.Utime.Nano() + of.Stime.Nano())
}
