package replay

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

const (
	// maxEnded bounds the ended releases that a GitSource knows.
	maxEnded = 2048
	// maxEndedOfOne bounds those of one Deployment, as rollout does in the BatchRelease.
	maxEndedOfOne = 256
)

// AddEnded adds the ended releases of BatchReleases to the status of the GitSource. A
// BatchRelease that is deleted, or restored without its status, then takes nothing with
// it. Deployments share the list evenly, so that many releases of one of them do not
// make the source forget those of another.
//
// A user who may commit, and not approve, can fill the list. So a full list loses first the
// releases of which no approval has opened a gate. The status says until when releases may
// be missing.
func AddEnded(status *v1alpha1.GitSourceStatus, now time.Time, list ...*v1alpha1.BatchRelease) {
	e := ended{
		known: map[string][]v1alpha1.EndedRelease{}, present: map[string][]string{},
		last: map[string]time.Time{}, forgot: map[string]bool{},
	}
	for _, r := range status.EndedReleases {
		e.known[r.Deployment] = append(e.known[r.Deployment], r)
	}
	if status.ForgottenUntil == nil { // an earlier version may have written it, which forgot without a note
		e.noteFull(len(status.EndedReleases))
	}
	for _, br := range list {
		e.add(br)
	}
	status.EndedReleases = e.kept()
	for deployment := range e.forgot {
		until := metav1.NewTime(now)
		if last, ok := e.last[deployment]; ok && last.Before(now) {
			until.Time = last
		}
		if status.ForgottenUntil == nil || status.ForgottenUntil.Before(&until) {
			status.ForgottenUntil = &until
		}
	}
}

// ended has, by Deployment, the releases that have ended.
type ended struct {
	// known begins with the newest.
	known map[string][]v1alpha1.EndedRelease
	// present are the commits that BatchReleases are about.
	present map[string][]string
	// last is when the newest release has ended.
	last map[string]time.Time
	// forgot are the Deployments of which a release may be missing.
	forgot map[string]bool
}

// noteFull notes the Deployments whose lists may have lost a release before. A list of
// which every Deployment has an even share is a little shorter than its bound.
func (e *ended) noteFull(total int) {
	for deployment, of := range e.known {
		if len(of) >= maxEndedOfOne || total+len(e.known) > maxEnded {
			e.forgot[deployment] = true
		}
	}
}

// add puts in front of the known releases of a Deployment those that have ended since.
// Both lists begin with the newest. Older ones that are not known any more were dropped
// to keep to the bound.
func (e *ended) add(br *v1alpha1.BatchRelease) {
	deployment := br.Namespace + "/" + br.Spec.WorkloadRef.Name
	known, names := e.known[deployment], br.Status.EndedReleases
	if len(known) == 0 && len(names) >= maxEndedOfOne {
		e.forgot[deployment] = true // rollout has dropped some before the source knew them
	}
	var newer []v1alpha1.EndedRelease
	for _, name := range names {
		is := func(r v1alpha1.EndedRelease) bool { return r.Commit == name.Commit }
		if slices.ContainsFunc(known, is) {
			break
		}
		if !slices.ContainsFunc(newer, is) { // two revisions of one commit
			newer = append(newer, v1alpha1.EndedRelease{Deployment: deployment, Commit: name.Commit, Approved: wasApproved(br, name.Commit)})
		}
	}
	e.known[deployment] = append(newer, known...)
	e.present[deployment] = append(e.present[deployment], br.Spec.Commit, br.Status.UpdateCommit)
	if h := br.Status.History; len(h) > 0 && e.last[deployment].Before(h[0].EndTime.Time) {
		e.last[deployment] = h[0].EndTime.Time
	}
}

// wasApproved reports whether an approval has opened a gate of a release.
func wasApproved(br *v1alpha1.BatchRelease, commit string) bool {
	s := &br.Status
	return s.UpdateCommit == commit && len(s.Approvals) > 0 ||
		slices.ContainsFunc(s.History, func(r v1alpha1.ReleaseRecord) bool { return r.Commit == commit && len(r.Approvals) > 0 })
}

// kept returns the releases that the bounds leave, and notes of which Deployments some go.
func (e *ended) kept() []v1alpha1.EndedRelease {
	var all []v1alpha1.EndedRelease
	share := evenShare(e.known)
	for _, deployment := range slices.Sorted(maps.Keys(e.known)) {
		of := e.known[deployment]
		left := e.without(deployment, len(of)-min(len(of), share, maxEnded-len(all)))
		if len(left) < len(of) {
			e.forgot[deployment] = true
		}
		all = append(all, left...)
	}
	return all
}

// without returns the releases of a Deployment without n of them: the oldest, and those
// without an approval before all others. The present release goes last, because it may be one
// that has ended and that was pushed again.
func (e *ended) without(deployment string, n int) []v1alpha1.EndedRelease {
	of := slices.Clone(e.known[deployment])
	isPresent := func(r v1alpha1.EndedRelease) bool { return slices.Contains(e.present[deployment], r.Commit) }
	for _, goes := range []func(v1alpha1.EndedRelease) bool{
		func(r v1alpha1.EndedRelease) bool { return !r.Approved && !isPresent(r) },
		func(r v1alpha1.EndedRelease) bool { return !isPresent(r) },
		func(v1alpha1.EndedRelease) bool { return true },
	} {
		for i := len(of) - 1; i >= 0 && n > 0; i-- {
			if goes(of[i]) {
				of, n = slices.Delete(of, i, i+1), n-1
			}
		}
	}
	return of
}

// evenShare returns how many releases of each Deployment are kept.
func evenShare(known map[string][]v1alpha1.EndedRelease) int {
	for share := maxEndedOfOne; share > 1; share-- {
		total := 0
		for _, of := range known {
			total += min(len(of), share)
		}
		if total <= maxEnded {
			return share
		}
	}
	return 1
}
