package replay

import (
	"fmt"
	"slices"
	"testing"
	"time"

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
	AddEnded(&status, time.Now(), endedIn("web", "2", "1"), endedIn("api", "2"))
	check("all are added", "shop/api 2", "shop/web 2", "shop/web 1")
	AddEnded(&status, time.Now(), endedIn("web", "4", "3", "2", "1"), endedIn("api"))
	check("newer ones come first, and a lost list takes nothing", "shop/api 2", "shop/web 4", "shop/web 3", "shop/web 2", "shop/web 1")
	AddEnded(&status, time.Now(), endedIn("web", "5", "5"))
	check("two revisions of one commit are one, and a new list goes on", "shop/api 2", "shop/web 5", "shop/web 4", "shop/web 3", "shop/web 2", "shop/web 1")
	AddEnded(&status, time.Now(), endedIn("web", "2", "1"))
	check("an older list changes nothing", "shop/api 2", "shop/web 5", "shop/web 4", "shop/web 3", "shop/web 2", "shop/web 1")
}

// Many releases of one Deployment do not make a source forget those of another, and a
// full list does not change from sync to sync.
func TestAddEnded_Bounds(t *testing.T) {
	var status v1alpha1.GitSourceStatus
	AddEnded(&status, time.Now(), endedIn("quiet", numbered("q", 2, 2)...))
	var busy []*v1alpha1.BatchRelease
	for i := range 20 {
		busy = append(busy, endedIn(fmt.Sprint("busy", i), numbered("b", 1000, maxEndedOfOne)...))
	}
	for range 4 {
		AddEnded(&status, time.Now(), busy...)
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
	if AddEnded(&status, time.Now(), busy...); !slices.Equal(before, status.EndedReleases) {
		t.Error("the list changes though nothing has ended")
	}
	for round := range 30 {
		var many []*v1alpha1.BatchRelease
		for i := range 100 {
			many = append(many, endedIn(fmt.Sprint("many", round, "-", i), "1"))
		}
		AddEnded(&status, time.Now(), many...)
		if n := len(status.EndedReleases); n > maxEnded {
			t.Errorf("%d releases are known after round %d", n, round)
		}
	}
}

// endings plays releases of a Deployment one after the other, as rollout and gitsync
// note them. at is when the newest has ended.
type endings struct {
	status v1alpha1.GitSourceStatus
	br     *v1alpha1.BatchRelease
	at     time.Time
}

func newEndings() *endings {
	return &endings{br: endedIn("web"), at: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}
}

// end ends a release a minute later.
func (r *endings) end(commit string, approvals ...v1alpha1.StepApproval) {
	r.at = r.at.Add(time.Minute)
	s := &r.br.Status
	s.EndedReleases = slices.Insert(s.EndedReleases, 0, v1alpha1.ReleaseName{Revision: "abc", Commit: commit})
	s.EndedReleases = s.EndedReleases[:min(len(s.EndedReleases), maxEndedOfOne)]
	s.History = slices.Insert(s.History, 0, v1alpha1.ReleaseRecord{Commit: commit, EndTime: metav1.NewTime(r.at), Approvals: approvals})
	s.History = s.History[:min(len(s.History), 10)]
	r.note()
}

func (r *endings) note() { AddEnded(&r.status, r.at.Add(time.Hour), r.br) }

func (r *endings) until(t *testing.T, want time.Time) {
	t.Helper()
	if got := r.status.ForgottenUntil; (got == nil) != want.IsZero() || got != nil && !got.Time.Equal(want) {
		t.Errorf("releases may be missing until %v, want %v", got, want)
	}
}

func (r *endings) knows(t *testing.T, commit string, want bool) {
	t.Helper()
	if r.status.HasEnded("shop/web", commit) != want {
		t.Errorf("%s is known: %t", commit, !want)
	}
}

var byGrace = v1alpha1.StepApproval{By: "grace@example.org"}

// A full list does not make an old approval count: either its release is known, or all
// approvals of that age are refused.
func TestAddEnded_Full(t *testing.T) {
	flood := func(r *endings, n int, approvals ...v1alpha1.StepApproval) {
		for i := range n {
			r.end(fmt.Sprint("flood", i), approvals...)
		}
	}
	for name, tt := range map[string]func(t *testing.T, r *endings){
		"releases without an approval do not push out one that had one": func(t *testing.T, r *endings) {
			r.end("v1")
			r.end("v2", byGrace)
			flood(r, 10)
			r.until(t, time.Time{})
			flood(r, 2*maxEndedOfOne)
			r.knows(t, "v2", true)
			r.knows(t, "v1", false)
			r.until(t, r.at)
		},
		"an approval that no gate has used is too old": func(t *testing.T, r *endings) {
			r.end("v2")
			given := r.at
			flood(r, maxEndedOfOne)
			r.knows(t, "v2", false)
			if why := tooOld(given, r.status.ForgottenUntil.Time, r.at); why == "" {
				t.Error("it counts again")
			}
		},
		"the oldest of many that were approved goes, and its approval is too old": func(t *testing.T, r *endings) {
			r.end("v2", byGrace)
			flood(r, maxEndedOfOne, byGrace)
			r.knows(t, "v2", false)
			r.until(t, r.at)
		},
		"a release that is pushed again is known while it is under way": func(t *testing.T, r *endings) {
			r.end("v2")
			flood(r, maxEndedOfOne-1)
			r.br.Spec.Commit = "v2"
			r.end("last")
			r.knows(t, "v2", true)
			r.knows(t, "flood0", false)
		},
		"the time stays while nothing ends": func(t *testing.T, r *endings) {
			flood(r, 2*maxEndedOfOne, byGrace)
			before := *r.status.DeepCopy()
			r.note()
			if d := cmp.Diff(before, r.status); d != "" {
				t.Errorf("(-before +after):\n%s", d)
			}
		},
		"an earlier version has left a full list": func(t *testing.T, r *endings) {
			flood(r, maxEndedOfOne)
			r.until(t, time.Time{})
			r.note()
			r.until(t, r.at)
		},
		"the source is new, and the list of rollout is full": func(t *testing.T, r *endings) {
			flood(r, maxEndedOfOne)
			r.status = v1alpha1.GitSourceStatus{}
			r.note()
			r.until(t, r.at)
		},
		"the releases of a Deployment go that is not among the plans": func(t *testing.T, r *endings) {
			r.end("v2", byGrace)
			r.br = nil
			now := r.at.Add(time.Hour)
			for range 2 {
				var many []*v1alpha1.BatchRelease
				for i := range maxEnded {
					many = append(many, endedIn(fmt.Sprint("a", i), "1"))
				}
				AddEnded(&r.status, now, many...)
			}
			r.knows(t, "v2", false)
			r.until(t, now)
		},
	} {
		t.Run(name, func(t *testing.T) { tt(t, newEndings()) })
	}
}

// For approvals of plans that a full list loses, the newest date stays, and none of
// that age counts.
func TestUse_Full(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	given := func(i int) v1alpha1.UsedPlanApproval {
		return v1alpha1.UsedPlanApproval{Plan: "digest", Payload: fmt.Sprint(i), Time: &metav1.Time{Time: at.Add(time.Duration(i) * time.Minute)}}
	}
	now := at.Add(24 * time.Hour)
	var status v1alpha1.GitSourceStatus
	for i := range maxUsed {
		UsePlanApprovals(&status, now, []v1alpha1.UsedPlanApproval{given(i), given(i)})
	}
	if status.PlanApprovalsForgottenUntil != nil || len(status.UsedPlanApprovals) != maxUsed {
		t.Fatalf("%d are known, and until %v some may be missing", len(status.UsedPlanApprovals), status.PlanApprovalsForgottenUntil)
	}
	for i := maxUsed; i < maxUsed+3; i++ {
		UsePlanApprovals(&status, now, []v1alpha1.UsedPlanApproval{given(i)})
	}
	until := plansForgottenUntil(&status, now)
	if len(status.UsedPlanApprovals) != maxUsed || until == nil || !until.Equal(given(2).Time) {
		t.Fatalf("%d are known, and until %v some may be missing", len(status.UsedPlanApprovals), until)
	}
	if tooOld(given(2).Time.Time, until.Time, now) == "" || tooOld(given(3).Time.Time, until.Time, now) != "" {
		t.Error("the third must be too old, and the fourth must not")
	}
	undated := v1alpha1.GitSourceStatus{}
	for i := range maxUsed {
		undated.UsedPlanApprovals = append(undated.UsedPlanApprovals, v1alpha1.UsedPlanApproval{Plan: "digest", Payload: fmt.Sprint(i)})
	}
	if until := plansForgottenUntil(&undated, now); until == nil || !until.Time.Equal(now) {
		t.Errorf("an earlier version has filled the list, and until %v some may be missing", until)
	}
}

// An approval counts whose date is after what is forgotten, and not yet to come.
func TestTooOld(t *testing.T) {
	until := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	now := until.Add(48 * time.Hour)
	for date, counts := range map[time.Time]bool{
		until.Add(-time.Second): false, until: false, until.Add(time.Second): true,
		now: true, now.Add(time.Hour): true, now.Add(8760 * time.Hour): false,
	} {
		if why := tooOld(date, until, now); (why == "") != counts {
			t.Errorf("%s: %q", date, why)
		}
	}
}
