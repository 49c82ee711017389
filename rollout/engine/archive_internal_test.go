package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The releases that have ended are at most 256: the oldest goes, and the newest is
// first. A release that is known already is not listed twice.
func TestEndedReleases(t *testing.T) {
	name := func(i int) v1alpha1.ReleaseName {
		return v1alpha1.ReleaseName{Revision: fmt.Sprint("r", i), Commit: fmt.Sprint("c", i)}
	}
	d := newDraft(&Observed{Release: &v1alpha1.BatchRelease{}}, time.Unix(0, 0).UTC())
	end := func(i int) []v1alpha1.ReleaseName {
		d.Status.UpdateRevision, d.Status.UpdateCommit = name(i).Revision, name(i).Commit
		d.archive(v1alpha1.OutcomeSuperseded)
		return d.Status.EndedReleases
	}
	for i := range keptEnded {
		end(i)
	}
	all := end(0)
	if len(all) != keptEnded || all[0] != name(keptEnded-1) || all[keptEnded-1] != name(0) {
		t.Fatalf("%d ended releases, from %v to %v", len(all), all[0], all[len(all)-1])
	}
	all = end(keptEnded)
	if len(all) != keptEnded || all[0] != name(keptEnded) || all[keptEnded-1] != name(1) {
		t.Errorf("%d ended releases, from %v to %v", len(all), all[0], all[len(all)-1])
	}
	if n := len(d.Status.History); n != keptReleases {
		t.Errorf("%d releases in the history", n)
	}
}
