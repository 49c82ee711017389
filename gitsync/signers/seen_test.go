package signers

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// storeOf returns the objects of a repository.
func storeOf(repo *gittest.Repo) *filesystem.Storage {
	return filesystem.NewStorage(osfs.New(filepath.Join(repo.Work, ".git")), cache.NewObjectLRUDefault())
}

// The list of tips is bounded, and what is dropped never makes a first sight earlier.
func TestSeenIsBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	var seen []v1alpha1.SeenCommit
	first := map[string]time.Time{}
	var tips []string
	for i := range 20_000 {
		tip := fmt.Sprintf("%040x", i)
		seen = WithSeen(seen, now, tip)
		first[tip], tips = now, append(tips, tip)
		if seen[0].Commit != tip {
			t.Fatalf("the newest tip is not in the list: %+v", seen[0])
		}
		now = now.Add(7 * time.Minute)
	}
	if n := len(seen); n > maxSeen || n < maxSeen-1 {
		t.Errorf("%d tips are kept of %d", n, len(tips))
	}
	again := WithSeen(seen, now, seen[5].Commit)
	if !slices.Equal(again, seen) {
		t.Error("a tip that is known was added")
	}
	whole := 0
	for i, s := range seen {
		if !s.Time.Time.Equal(first[s.Commit]) {
			t.Errorf("%s was seen at %s, and the list has %s", s.Commit, first[s.Commit], s.Time)
		}
		if i > 0 && s.Time.After(seen[i-1].Time.Time) {
			t.Fatalf("%d is out of order", i)
		}
		if now.Sub(s.Time.Time) <= seenWhole {
			whole++
		}
	}
	if want := int(seenWhole / (7 * time.Minute)); whole != want {
		t.Errorf("of the last day %d tips are kept, want all %d", whole, want)
	}
}

// A tag that a key signed before it expired stays signed. One that was first seen later,
// or at the same commit in its place, is not, whatever its date.
func TestTagUnsigned_ExpiredKey(t *testing.T) {
	t.Parallel()
	repo, ada := gittest.NewRepo(t), gittest.NewSSHKey(t, "ed25519", "")
	repo.Env = []string{"GIT_COMMITTER_DATE=2026-06-01T12:00:00Z"}
	commit := repo.Commit(map[string]string{"a": "one"})
	repo.Sign(&ada)
	at := map[string]*repository.Snapshot{}
	for _, name := range []string{"v1", "v2"} {
		repo.Git("tag", "-s", "-m", name, name, commit)
		at[name] = &repository.Snapshot{
			EncodedObjectStorer: storeOf(repo),
			Tag:                 repository.Tag{Name: name, Object: plumbing.NewHash(repo.Git("rev-parse", name)), Commit: plumbing.NewHash(commit)},
		}
	}
	keys, err := signature.ParseKeys(map[string][]byte{"allowed_signers": []byte(`ada@example.org valid-before="20260602Z" ` + ada.Public)})
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2026, 6, 1, 13, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		first time.Time
		now   string // the tag that is there now
		want  string
	}{
		"seen in time":             {first, "v1", ""},
		"seen late":                {first.Add(48 * time.Hour), "v1", "first seen later"},
		"another tag seen in time": {first, "v2", "first seen later"},
	} {
		by := Policy{Verify: keys, Now: first.Add(72 * time.Hour), Seen: []v1alpha1.SeenCommit{
			{Commit: commit, Time: metav1.NewTime(first)}, {Commit: at["v1"].Tag.Object.String(), Time: metav1.NewTime(tt.first)},
		}}
		why, err := by.TagUnsigned(at[tt.now])
		if err != nil || (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
			t.Errorf("%s: %q, want %q (%v)", name, why, tt.want, err)
		}
	}
}

// A commit that a key signed before it expired stays signed if it was seen in time, itself
// or in the history of a tip. The date that it has does not count.
func TestSignerOf_ExpiredKey(t *testing.T) {
	t.Parallel()
	repo, ada := gittest.NewRepo(t), gittest.NewSSHKey(t, "ed25519", "")
	repo.Env = []string{"GIT_COMMITTER_DATE=2026-06-01T12:00:00Z"}
	repo.Sign(&ada)
	commit := repo.Commit(map[string]string{"a": "one"})
	tip := repo.Commit(map[string]string{"a": "two"})
	storage := storeOf(repo)
	keys, err := signature.ParseKeys(map[string][]byte{"allowed_signers": []byte(`ada@example.org valid-before="20260602Z" ` + ada.Public)})
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2026, 6, 1, 13, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		seen  string
		first time.Time
		want  string
	}{
		"seen in time":       {commit, first, ""},
		"seen late":          {commit, first.Add(48 * time.Hour), "first seen later"},
		"a tip seen in time": {tip, first, ""},
		"a tip seen late":    {tip, first.Add(48 * time.Hour), "first seen later"},
		"another tip":        {strings.Repeat("a", 40), first, "first seen later"},
	} {
		seen := []v1alpha1.SeenCommit{{Commit: tt.seen, Time: metav1.NewTime(tt.first)}}
		by := Policy{Now: first.Add(72 * time.Hour), Order: gitobject.Precedence{}, Seen: seen}
		_, why, err := by.SignerOf(t.Context(), storage, plumbing.NewHash(commit), keys)
		if err != nil || (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
			t.Errorf("%s: %q, want %q (%v)", name, why, tt.want, err)
		}
	}
}
