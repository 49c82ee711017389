package rollout_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// costs are the requests that a release makes.
type costs struct {
	steps []string
	// writes are those that the API server has answered with success, by kind.
	writes map[string]int
	// repeated are how many more of a kind there may be. The hand-back may conflict with the
	// native controller's status in every release, and pods that take long are counted and listed.
	repeated map[string]int
	// events are the reasons of the events.
	events map[string]int
}

// A release makes these requests, as the API server counts them. No other client makes
// requests of these kinds meanwhile, so the test is not parallel. The Deployment has one pod,
// since the requests of more would depend on when each becomes ready.
func TestReleaseRequests(t *testing.T) {
	const statuses, reads, tries, pods = "PUT batchreleases/status", "GET batchreleases", "PATCH deployments dry run", "LIST pods"
	of := func(steps ...string) costs {
		gates := len(steps) - 1
		c := costs{
			steps: steps,
			writes: map[string]int{
				tries:                              3, // the template, the template that comes back, the hand-back
				"POST replicasets dry run":         1,
				"POST controllerrevisions dry run": 1,
				"PATCH replicasets dry run":        1,
				"PATCH deployments":                2, // the hold and the hand-back
				"POST replicasets":                 1,
				"PATCH replicasets":                3, // the size of the new one and of the old one, and the annotations
				"POST controllerrevisions":         1,
				"PATCH controllerrevisions":        1,
				"DELETE controllerrevisions":       1,
				statuses:                           4 + gates, // begun, upgrading, handing back, completed
				reads:                              2,         // before the last size and the hand-back
				pods:                               gates,
			},
			repeated: map[string]int{statuses: 2, reads: 2, tries: 1, pods: 3},
			events:   map[string]int{"ReleaseStarted": 1, "Held": 1, "ScalingReplicaSet": 2, "HandedBack": 1, "ReleaseCompleted": 1},
		}
		if gates > 0 {
			c.events["PauseElapsed"] = gates
		}
		return c
	}
	for name, tc := range map[string]costs{"one step": of("100%"), "three open steps": of("20%", "50%", "100%")} {
		t.Run(name, func(t *testing.T) { tc.measure(t) })
	}
}

func (tc *costs) measure(t *testing.T) {
	c := clustertest.Shared(t)
	f := newField(t, c, 1, 1)
	startControllerIn(t, c, f.ns)
	f.plan(tc.steps, "v1")
	release := func(tag string) {
		f.bring(tag)
		f.completed()
	}
	release("v2")
	release("v3")            // from now on each release forgets a record
	made := map[string]int{} // the least of four releases: a conflict repeats requests
	for _, tag := range []string{"v4", "v5", "v6", "v7"} {
		before := requestsOf(t, c)
		release(tag)
		for kind, n := range requestsOf(t, c) {
			if n -= before[kind]; n > 0 && (made[kind] == 0 || n < made[kind]) {
				made[kind] = n
			}
		}
	}
	t.Logf("%v: %v", tc.steps, made)
	for kind, more := range tc.repeated {
		if want := tc.writes[kind]; (made[kind] > 0 || want == 0) && made[kind] <= want+more { // one decision may come with another
			made[kind] = want
		}
	}
	if diff := cmp.Diff(tc.writes, made); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	tc.awaitEvents(f, 6)
}

// awaitEvents waits for the events of so many releases.
func (tc *costs) awaitEvents(f *field, releases int) {
	f.Helper()
	want := map[string]int{}
	for reason, n := range tc.events {
		want[reason] = releases * n
	}
	clustertest.Wait(f, "the events", func() error {
		var list eventsv1.EventList
		f.list(&list)
		got := map[string]int{}
		for i := range list.Items {
			if e := &list.Items[i]; e.ReportingController == "tranche" {
				got[e.Reason]++
			}
		}
		const sizes = "ScalingReplicaSet" // pods that come late have one more
		if n := got[sizes]; n > want[sizes]/2 && n <= want[sizes]*2 {
			got[sizes] = want[sizes]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

// requestMetric is a line of the API server's metrics.
var (
	requestMetric = regexp.MustCompile(`(?m)^apiserver_request_total\{(.*)\} (\S+)$`)
	metricLabel   = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// requestsOf counts the requests that the API server has answered with success, of the kinds
// that no native controller makes.
func requestsOf(t *testing.T, c *clustertest.Cluster) map[string]int {
	t.Helper()
	metrics, err := c.Kubectl(t, "get", "--raw", "/metrics")
	if err != nil {
		t.Fatalf("reading the API server's metrics: %v: %s", err, metrics)
	}
	kinds := map[string]int{}
	for _, m := range requestMetric.FindAllStringSubmatch(metrics, -1) {
		of := map[string]string{}
		for _, label := range metricLabel.FindAllStringSubmatch(m[1], -1) {
			of[label[1]] = label[2]
		}
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		kind := of["verb"] + " " + of["resource"]
		if of["subresource"] != "" {
			kind += "/" + of["subresource"]
		}
		if of["dry_run"] != "" {
			kind += " dry run"
		}
		if of["code"] < "300" && ofReleases.MatchString(kind) {
			kinds[kind] += int(n)
		}
	}
	return kinds
}

// ofReleases are the requests that only a release makes.
var ofReleases = regexp.MustCompile(
	`^((POST|PATCH) (deployments|replicasets)|(POST|PATCH|DELETE) controllerrevisions|GET batchreleases$|LIST pods$|PUT batchreleases/status)`)
