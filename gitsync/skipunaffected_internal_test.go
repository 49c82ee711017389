package gitsync

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The tips that were seen since a status was written are written with the next one, with
// the times at which they were seen.
func TestSeenSinceTheStatus(t *testing.T) {
	at := func(commit string, second int64) v1alpha1.SeenCommit {
		return v1alpha1.SeenCommit{Commit: commit, Time: metav1.Unix(second, 0)}
	}
	status := v1alpha1.GitSourceStatus{AppliedCommit: "a", ObservedCommit: "a", Seen: []v1alpha1.SeenCommit{at("a", 1)}}
	gs := &v1alpha1.GitSource{Status: status}
	p := passed{applied: "a", tip: "c", seen: []v1alpha1.SeenCommit{at("c", 3), at("b", 2), at("a", 1)}}
	p.catchUp(gs)
	s := gs.Status
	if s.AppliedCommit != "c" || s.ObservedCommit != "c" || fmt.Sprint(s.Seen) != fmt.Sprint(p.seen) {
		t.Errorf("%+v", s)
	}
	other := &v1alpha1.GitSource{Status: v1alpha1.GitSourceStatus{AppliedCommit: "d"}}
	if p.catchUp(other); other.Status.AppliedCommit != "d" || len(other.Status.Seen) > 0 {
		t.Errorf("a status that was written since is taken for an older one: %+v", other.Status)
	}
}

// The status must soon have the tips that were seen since it was written, if a key ends
// before the next status, or within days. A process that starts after that end would not
// know who has signed before.
func TestMustNoteSeen(t *testing.T) {
	t.Parallel()
	key, now := gittest.NewSSHKey(t, "ed25519", ""), time.Now()
	ending := func(in time.Duration) *signature.Keys {
		line := "ada@example.org valid-before=\"" + now.Add(in).UTC().Format("20060102150405") + "Z\" " + key.Public
		keys, err := signature.ParseKeys(map[string][]byte{"allowed_signers": []byte(line)})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	const day = 24 * time.Hour
	for why, tc := range map[string]struct {
		by       signers.Policy
		interval time.Duration
		seen     []string
		notes    bool
	}{
		"no key":                         {seen: []string{"b", "a"}},
		"a key of commits ends soon":     {by: signers.Policy{Verify: ending(day)}, seen: []string{"b", "a"}, notes: true},
		"a key of approvals ends soon":   {by: signers.Policy{Signers: ending(day)}, seen: []string{"b", "a"}, notes: true},
		"nothing was seen since":         {by: signers.Policy{Verify: ending(day)}, seen: []string{"a"}},
		"it ends later":                  {by: signers.Policy{Verify: ending(30 * day)}, seen: []string{"b", "a"}},
		"it ends before the next status": {by: signers.Policy{Verify: ending(30 * day)}, interval: 60 * day, seen: []string{"b", "a"}, notes: true},
	} {
		var seen []v1alpha1.SeenCommit
		for _, commit := range tc.seen {
			seen = append(seen, v1alpha1.SeenCommit{Commit: commit})
		}
		tc.by.Now = now
		if got := mustNoteSeen(tc.by, now.Add(tc.interval), []v1alpha1.SeenCommit{{Commit: "a"}}, seen); got != tc.notes {
			t.Errorf("%s: %t", why, got)
		}
	}
}
