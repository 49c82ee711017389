package gitsync

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The tips that were seen since a status was written are written with the next one, with
// the times at which they were seen.
func TestSeenSinceTheStatus(t *testing.T) {
	at := func(commit string, second int64) v1alpha1.SeenCommit {
		return v1alpha1.SeenCommit{Commit: commit, Time: metav1.Unix(second, 0)}
	}
	status := v1alpha1.GitSourceStatus{AppliedCommit: "a", ObservedCommit: "a", Seen: []v1alpha1.SeenCommit{at("a", 1)}}
	l := &look{gs: &v1alpha1.GitSource{Status: status}}
	l.keep.passed = passed{applied: "a", tip: "c", seen: []v1alpha1.SeenCommit{at("c", 3), at("b", 2), at("a", 1)}}
	l.catchUp()
	s := l.gs.Status
	if s.AppliedCommit != "c" || s.ObservedCommit != "c" || fmt.Sprint(s.Seen) != fmt.Sprint(l.keep.passed.seen) {
		t.Errorf("%+v", s)
	}
	other := &look{gs: &v1alpha1.GitSource{Status: v1alpha1.GitSourceStatus{AppliedCommit: "d"}}}
	other.keep.passed = l.keep.passed
	if other.catchUp(); other.gs.Status.AppliedCommit != "d" || len(other.gs.Status.Seen) > 0 {
		t.Errorf("a status that was written since is taken for an older one: %+v", other.gs.Status)
	}
}
