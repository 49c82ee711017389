package report_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/outcome"
	"github.com/tranche-dev/tranche/gitsync/report"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// statusWriter is an API server that has the status, or refuses it.
type statusWriter struct {
	client.SubResourceWriter
	fails  error
	events chan string
	t      *testing.T
}

func (w *statusWriter) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	if len(w.events) > 0 {
		w.t.Errorf("before the status is written, an event says %s", <-w.events)
	}
	return w.fails
}

type server struct {
	client.Client
	status *statusWriter
}

func (s server) Status() client.SubResourceWriter { return s.status }

// An event says that a commit is applied once the status does. If the status is not
// written, the next sync applies the commit again, and says so.
func TestConclude_Applied(t *testing.T) {
	for name, tc := range map[string]struct {
		fails  error
		events int
	}{
		"the status is written":     {nil, 2},
		"the status is not written": {errors.New("etcdserver: request timed out"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"}}
			recorder := events.NewFakeRecorder(10)
			status := &statusWriter{fails: tc.fails, events: recorder.Events, t: t}
			w := report.New(report.Input{Source: gs, Client: server{status: status}, Events: recorder, Log: logr.Discard()})
			gs.Status.AppliedCommit = "b"
			o := &outcome.Outcome{Branch: "main", Commit: "b", Applied: []string{"applied main@a: 3 objects", "applied main@b: 4 objects"}}
			if err := w.Conclude(t.Context(), o); !errors.Is(err, tc.fails) {
				t.Errorf("error %v, want %v", err, tc.fails)
			}
			if got := len(recorder.Events); got != tc.events {
				t.Errorf("%d events, want %d", got, tc.events)
			}
		})
	}
}
