package gitsync

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// endedIn is a BatchRelease with releases that have ended, the last commit first.
func endedIn(deployment string, commits ...string) *v1alpha1.BatchRelease {
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: deployment}}
	br.Spec.WorkloadRef.Name = deployment
	for _, c := range commits {
		br.Status.EndedReleases = append(br.Status.EndedReleases, v1alpha1.ReleaseName{Revision: "abc", Commit: c})
	}
	return br
}

func numbered(prefix string, newest, n int) []string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprint(prefix, newest-i))
	}
	return list
}

// A source knows the releases that have ended, whatever becomes of BatchReleases.
func TestAddEnded(t *testing.T) {
	var status v1alpha1.GitSourceStatus
	check := func(reason string, want ...string) {
		t.Helper()
		var got []string
		for _, r := range status.EndedReleases {
			got = append(got, r.Deployment+" "+r.Commit)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", reason, d)
		}
	}
	addEnded(&status, endedIn("web", "2", "1"), endedIn("api", "2"))
	check("all are added", "shop/api 2", "shop/web 2", "shop/web 1")
	addEnded(&status, endedIn("web", "4", "3", "2", "1"), endedIn("api"))
	check("newer ones come first, and a lost list takes nothing", "shop/api 2", "shop/web 4", "shop/web 3", "shop/web 2", "shop/web 1")
	addEnded(&status, endedIn("web", "5", "5"))
	check("two revisions of one commit are one, and a new list goes on", "shop/api 2", "shop/web 5", "shop/web 4", "shop/web 3", "shop/web 2", "shop/web 1")
	addEnded(&status, endedIn("web", "2", "1"))
	check("an older list changes nothing", "shop/api 2", "shop/web 5", "shop/web 4", "shop/web 3", "shop/web 2", "shop/web 1")
}

// Many releases of one Deployment do not make a source forget those of another, and a
// full list does not change from sync to sync.
func TestAddEnded_Bounds(t *testing.T) {
	var status v1alpha1.GitSourceStatus
	addEnded(&status, endedIn("quiet", numbered("q", 2, 2)...))
	var busy []*v1alpha1.BatchRelease
	for i := range 20 {
		busy = append(busy, endedIn(fmt.Sprint("busy", i), numbered("b", 1000, maxEndedOfOne)...))
	}
	for range 4 {
		addEnded(&status, busy...)
	}
	n := len(status.EndedReleases)
	if n > maxEnded || n < maxEnded*9/10 {
		t.Errorf("%d releases are known", n)
	}
	for _, want := range []v1alpha1.EndedRelease{{Deployment: "shop/quiet", Commit: "q1"}, {Deployment: "shop/busy7", Commit: "b1000"}, {Deployment: "shop/busy19", Commit: "b950"}} {
		if !slices.Contains(status.EndedReleases, want) {
			t.Errorf("%s of %s is forgotten", want.Commit, want.Deployment)
		}
	}
	before := slices.Clone(status.EndedReleases)
	if addEnded(&status, busy...); !slices.Equal(before, status.EndedReleases) {
		t.Error("the list changes though nothing has ended")
	}
	for round := range 30 {
		var many []*v1alpha1.BatchRelease
		for i := range 100 {
			many = append(many, endedIn(fmt.Sprint("many", round, "-", i), "1"))
		}
		addEnded(&status, many...)
		if n := len(status.EndedReleases); n > maxEnded {
			t.Errorf("%d releases are known after round %d", n, round)
		}
	}
}
