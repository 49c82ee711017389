package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/status"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// document runs the program and reads the one document that it prints.
func (s *env) document(into any, args ...string) {
	s.Helper()
	out, code := s.tranche(append(args, "-o", "json")...)
	if code != 0 {
		s.Fatalf("tranche %v: exit code %d:\n%s", args, code, out)
	}
	d := json.NewDecoder(strings.NewReader(out))
	s.must(d.Decode(into))
	if d.More() {
		s.Errorf("tranche %v prints more than one document:\n%s", args, out)
	}
}

// A user rejects a release. The bare repository has a commit that reverts it and says
// why, and the cluster goes back. History and events say who did what when.
func TestRejected(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.says(1, "reject web --yes --reason slow", "has no release under way: ReleaseCompleted; to take back the last one, tranche rollback web")
	s.replace("deployment.yaml", "web:v1", "web:v2")
	began := s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})

	var h status.History
	s.document(&h, "history", "--since", "1h")
	if len(h.Items) != 1 || h.Items[0].Outcome != status.OutcomeUnderWay || h.Items[0].Commit != began || h.Items[0].Author != "Ada <ada@example.org>" || h.Items[0].Subject != "web: v2" || h.Items[0].StartTime == nil {
		t.Errorf("the history of a release under way: %+v", h.Items)
	}

	if out, code := s.tranche("reject", "web", "--yes", "--push", "--reason", "5 % of the\nrequests fail"); code != 0 || !strings.Contains(out, "+        image: registry.example.org/web:v1") {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	reject := s.run(s.bare, "git", "rev-parse", "main")
	if got := s.run(s.bare, "git", "log", "-1", "--format=%s", "main"); got != `Reject "web: v2"` {
		t.Errorf("the subject is %s", got)
	}
	if got := s.run(s.bare, "git", "log", "-1", "--format=%(trailers:key=Tranche-Commit,key=Tranche-Rejected)", "main"); got != "Tranche-Commit: "+began+"\nTranche-Rejected: 5 % of the requests fail" {
		t.Errorf("the trailers are %s", got)
	}
	s.has(s.run(s.bare, "git", "show", "main:deployment.yaml"), "image: registry.example.org/web:v1")
	s.has(s.run(s.bare, "git", "log", "-1", "--format=%b", "main"), "Rejected: 5 % of the requests fail\n", "This reverts commit "+began+".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.untouched("web")

	h = status.History{}
	s.document(&h, "history", "web")
	want := status.Rejection{Commit: reject, By: "Ada <ada@example.org>", Reason: "5 % of the requests fail"}
	if len(h.Items) != 1 || h.Items[0].Outcome != string(v1alpha1.OutcomeRolledBack) || h.Items[0].Rejected == nil || *h.Items[0].Rejected != want || h.Items[0].EndTime == nil {
		t.Errorf("the history afterwards: %+v", h.Items)
	}
	s.says(0, "history --source source", s.ns+"/web", "RolledBack after", "rejected by Ada <ada@example.org>: 5 % of the requests fail")

	for command, kind := range map[string]string{
		"get": "BatchReleaseList", "get web": "BatchRelease", "get sources": "GitSourceList", "get sources source": "GitSource", "status web": "BatchRelease",
		"history": "ReleaseHistory", "events": "EventLog", "diff": "Diff", "version": "Version",
	} {
		var in, same struct{ APIVersion, Kind string }
		s.document(&in, strings.Fields(command)...)
		out, code := s.tranche(append(strings.Fields(command), "-o", "yaml")...)
		if err := yaml.Unmarshal([]byte(out), &same); err != nil || code != 0 || in.Kind != kind || in.APIVersion == "" || same != in {
			t.Errorf("tranche %s: exit code %d, %v: %+v in JSON and %+v in YAML, want a %s", command, code, err, in, same, kind)
		}
	}

	var log status.EventLog
	s.document(&log, "events", "web")
	var kinds, reasons []string
	for _, e := range log.Items {
		if !slices.Contains(kinds, e.Kind) {
			kinds = append(kinds, e.Kind)
		}
		reasons = append(reasons, e.Reason)
	}
	if began, back := slices.Index(reasons, "ReleaseStarted"), slices.Index(reasons, "RollingBack"); len(kinds) != 2 || began < 0 || back < began {
		t.Errorf("the events are about %v: %v", kinds, reasons)
	}
	if !slices.IsSortedFunc(log.Items, func(a, b status.EventEntry) int { return a.Time.Compare(b.Time.Time) }) {
		t.Errorf("the events are not in the order of time: %+v", log.Items)
	}
	s.says(0, "events --source source", "BatchRelease "+s.ns+"/web", "GitSource "+s.ns+"/source")
}
