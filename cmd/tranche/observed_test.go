package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// events is what kubectl describe tells of an object below Events: reason and
// message of each, in order.
func (s *env) events(kind, name string) []string {
	s.Helper()
	var list eventsv1.EventList
	s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
	slices.SortStableFunc(list.Items, func(a, b eventsv1.Event) int {
		return cmp.Or(a.EventTime.Compare(b.EventTime.Time), cmp.Compare(a.Name, b.Name))
	})
	var told []string
	for _, e := range list.Items {
		if e.Regarding.Kind == kind && e.Regarding.Name == name {
			told = append(told, e.Type+" "+e.Reason+" "+e.Note)
		}
	}
	return told
}

// hasEvents waits until the events of an object have these reasons, in this order, and
// fails if kubectl describe does not show them.
func (s *env) hasEvents(kind, name string, reasons ...string) {
	s.Helper()
	clustertest.Wait(s, "the events of "+kind+" "+name, func() error {
		var got []string
		story := s.events(kind, name)
		for _, line := range story {
			got = append(got, strings.Fields(line)[1])
		}
		if diff := gocmp.Diff(reasons, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s%s", diff, strings.Join(story, "\n"))
		}
		return nil
	})
	out, err := s.c.Kubectl(s, "describe", "-n", s.ns, strings.ToLower(kind), name)
	if err != nil {
		s.Errorf("%v: %s", err, out)
	}
	_, events, _ := strings.Cut(out, "\nEvents:\n")
	for _, reason := range reasons {
		if !strings.Contains(events, reason) {
			s.Errorf("kubectl describe does not tell of %s:\n%s", reason, out)
		}
	}
}

// metric is the sum of a metric's series that have these labels, in this
// test's namespace: of a histogram, the number of observations. It is -1 where
// there is none.
func (s *env) metric(name string, labels map[string]string) float64 {
	s.Helper()
	families, err := metrics.Registry.Gather()
	s.must(err)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels["namespace"] = s.ns
	sum, found := series(families).sum(name, labels)
	if !found {
		return -1
	}
	return sum
}
