package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// following are GitSources: one that is in sync, one whose commit is refused, one whose
// approval is ignored, one that is suspended and one that no controller has seen.
func following() []v1alpha1.GitSource {
	of := func(name string, edit func(*v1alpha1.GitSource), conditions ...metav1.Condition) v1alpha1.GitSource {
		gs := *waiting().source.DeepCopy()
		gs.Name, gs.CreationTimestamp, gs.Generation = name, *before(48 * time.Hour), 2
		gs.Status.ObservedGeneration, gs.Status.Conditions = 2, conditions
		edit(&gs)
		return gs
	}
	ready := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: "Ready", Status: status, Reason: reason, Message: message}
	}
	same := func(*v1alpha1.GitSource) {}
	const refused = "service.yaml: Service shop/web: spec.ports[0].port: must be a number"
	return []v1alpha1.GitSource{
		of("good", same, ready("True", "Applied", "applied main@90f3b1d"), metav1.Condition{Type: "InSync", Status: "True"}),
		of("refused", same, ready("False", "InvalidManifest", refused), metav1.Condition{Type: "Stalled", Status: "True", Reason: "InvalidManifest", Message: refused}),
		of("ignored", same, ready("True", "Applied", "applied main@90f3b1d"), metav1.Condition{Type: "InSync", Status: "False", Reason: "ApprovalIgnored", Message: "approvals/web.yaml: counts for nothing"}),
		of("suspended", func(gs *v1alpha1.GitSource) { gs.Spec.Suspend = true }, ready("False", "HostUnreachable", "no route to host")),
		of("new", func(gs *v1alpha1.GitSource) { gs.Status = v1alpha1.GitSourceStatus{} }),
	}
}

func TestGetSources(t *testing.T) {
	for name, namespaces := range map[string]bool{"table": false, "all": true, "wide": false, "name": false, "json": false, "yaml": false} {
		t.Run(name, func(t *testing.T) {
			output := name
			if name == "all" {
				output = outputTable
			}
			var out bytes.Buffer
			if err := printSources(&out, following(), output, namespaces, false, noon); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", "sources", name+".txt"), out.String())
		})
	}
	golden(t, filepath.Join("testdata", "sources", "problems.txt"), problemLines(following()))
}

// What the outcome of a sync is, and when there is none yet.
func TestSyncOutcome(t *testing.T) {
	reconciling := func(reason string) metav1.Condition {
		return metav1.Condition{Type: "Reconciling", Status: metav1.ConditionTrue, Reason: reason}
	}
	for _, tc := range []struct {
		reason string
		source int
		edit   func(*v1alpha1.GitSource)
		over   bool
		code   int
		said   string
	}{
		{"applied", 0, nil, true, 0, "applied main@90f3b1d"},
		{"refused", 1, nil, true, exitFailed, "must be a number"},
		{"out of sync is applied", 2, nil, true, 0, "applied main@90f3b1d"},
		{"not seen yet", 4, nil, false, 0, "has not synced it yet"},
		{"an outcome of before it was asked for", 1, func(gs *v1alpha1.GitSource) { gs.Status.LastHandledReconcileAt = "before" }, false, 0, "has not synced it yet"},
		{"an outcome of another spec", 0, func(gs *v1alpha1.GitSource) { gs.Generation++ }, false, 0, "has not synced it yet"},
		{"it is tried again, by another sync", 1, func(gs *v1alpha1.GitSource) { gs.Status.Conditions[1] = reconciling("Progressing") }, true, exitFailed, "must be a number"},
		{"it waits for another source", 1, func(gs *v1alpha1.GitSource) { gs.Status.Conditions[1] = reconciling("DependencyNotReady") }, false, 0, "must be a number"},
		{"it waits for pods", 0, func(gs *v1alpha1.GitSource) {
			gs.Status.Conditions[0].Status, gs.Status.Conditions[1] = metav1.ConditionUnknown, reconciling("WaitingForReadiness")
		}, false, 0, "applied"},
	} {
		gs := following()[tc.source]
		if tc.source != 4 {
			gs.Status.LastHandledReconcileAt = "now"
		}
		if tc.edit != nil {
			tc.edit(&gs)
		}
		said, over, err := syncOutcome(&gs, "now")
		code := 0
		if err != nil {
			code = exitCode(err)
		}
		if over != tc.over || code != tc.code || !strings.Contains(said, tc.said) {
			t.Errorf("%s: %q, over %t with %d (%v); want %q, %t with %d", tc.reason, said, over, code, err, tc.said, tc.over, tc.code)
		}
	}
}

// An event has the time of its last occurrence, whichever API it was written by.
func TestEventTimes(t *testing.T) {
	at := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(noon.Add(d)) }
	for reason, tc := range map[string]struct {
		e     eventsv1.Event
		want  time.Duration
		count int32
	}{
		"once":        {eventsv1.Event{EventTime: at(0)}, 0, 1},
		"a series":    {eventsv1.Event{EventTime: at(0), Series: &eventsv1.EventSeries{Count: 3, LastObservedTime: at(time.Minute)}}, time.Minute, 3},
		"the old API": {eventsv1.Event{DeprecatedLastTimestamp: metav1.NewTime(noon.Add(time.Hour)), DeprecatedCount: 2}, time.Hour, 2},
		"neither":     {eventsv1.Event{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)}}, 0, 1},
	} {
		tc.e.Regarding = corev1.ObjectReference{Kind: "BatchRelease", Namespace: "shop", Name: "web"}
		got := entryOf(&tc.e)
		if !got.Time.Time.Equal(noon.Add(tc.want)) || got.Count != tc.count {
			t.Errorf("%s: %s, %d times", reason, got.Time, got.Count)
		}
	}
}
