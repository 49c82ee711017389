package desired

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A commit was seen first with the oldest of the newest tips that have it.
func TestFirstSeen(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	var commits []string
	for _, v := range []string{"v1", "v2", "v3", "v4"} {
		commits = append(commits, repo.CommitAndPush(gittest.Web(v)))
	}
	r := rendererAt(t, repo, "")
	at := func(minute int) metav1.Time { return metav1.NewTime(time.Date(2026, 6, 1, 12, minute, 0, 0, time.UTC)) }
	gone := "1234567890123456789012345678901234567890"
	s := signers.Policy{Order: gitobject.Precedence{}, Seen: []v1alpha1.SeenCommit{
		{Commit: commits[3], Time: at(9)}, {Commit: gone, Time: at(7)}, {Commit: commits[2], Time: at(5)}, {Commit: commits[0], Time: at(2)},
	}}
	for i, want := range []int{2, 5, 5, 9} {
		got, err := s.FirstSeen(context.Background(), r.Snapshot, plumbing.NewHash(commits[i]))
		if err != nil || got == nil || !got.Time.Equal(at(want).Time) {
			t.Errorf("commit %d: %v, %v, want %s", i, got, err, at(want))
		}
	}
	s.Seen = slices.Delete(s.Seen, 0, 1)
	if got, err := s.FirstSeen(context.Background(), r.Snapshot, plumbing.NewHash(commits[3])); err != nil || got != nil {
		t.Errorf("a commit that no tip has was seen at %v, %v", got, err)
	}
}
