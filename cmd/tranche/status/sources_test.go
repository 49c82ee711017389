package status

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
)

func TestGetSources(t *testing.T) {
	for name, namespaces := range map[string]bool{"table": false, "all": true, "wide": false, "name": false, "json": false, "yaml": false} {
		t.Run(name, func(t *testing.T) {
			output := name
			if name == "all" {
				output = cli.OutputTable
			}
			var out bytes.Buffer
			if err := printSources(&out, clitest.Sources(), output, namespaces, false, clitest.Noon); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, filepath.Join("testdata", "sources", name+".txt"), out.String())
		})
	}
	clitest.Golden(t, filepath.Join("testdata", "sources", "problems.txt"), cli.ProblemLines(clitest.Sources()))
}

// An event has the time of its last occurrence, whichever API it was written by.
func TestEventTimes(t *testing.T) {
	at := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(clitest.Noon.Add(d)) }
	for reason, tc := range map[string]struct {
		e     eventsv1.Event
		want  time.Duration
		count int32
	}{
		"once": {eventsv1.Event{EventTime: at(0)}, 0, 1},
		"a series": {eventsv1.Event{
			EventTime: at(0), Series: &eventsv1.EventSeries{Count: 3, LastObservedTime: at(time.Minute)},
		}, time.Minute, 3},
		"the old API": {eventsv1.Event{DeprecatedLastTimestamp: metav1.NewTime(clitest.Noon.Add(time.Hour)), DeprecatedCount: 2}, time.Hour, 2},
		"neither":     {eventsv1.Event{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(clitest.Noon)}}, 0, 1},
	} {
		tc.e.Regarding = corev1.ObjectReference{Kind: "BatchRelease", Namespace: "shop", Name: "web"}
		got := entryOf(&tc.e)
		if !got.Time.Time.Equal(clitest.Noon.Add(tc.want)) || got.Count != tc.count {
			t.Errorf("%s: %s, %d times", reason, got.Time, got.Count)
		}
	}
}
