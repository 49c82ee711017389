package gitsync

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A walk is bounded, and ends where the branch was set back. Among the commits that
// merges bring, only those with approvals of their own touch a source that does not
// read them otherwise.
func TestStretch(t *testing.T) {
	const folder = "deploy/approvals"
	for _, tc := range []struct {
		why     string
		most    int
		make    func(r *gittest.Repo, from string)
		from    string // another commit than the first one
		found   bool
		trees   int
		touches bool
	}{
		{why: "no commit", most: 3, make: func(*gittest.Repo, string) {}, found: true},
		{why: "as many commits as a walk may have", most: 3, make: docs(3), found: true, trees: 3},
		{why: "one more", most: 3, make: docs(4)},
		{why: "commits without a change", most: 9, found: true, trees: 1, make: func(r *gittest.Repo, _ string) {
			docs(1)(r, "")
			r.Git("commit", "-q", "--allow-empty", "-m", "Nothing")
		}},
		{why: "the branch was set back", most: 9, from: "0123456789012345678901234567890123456789", make: docs(2)},
		{why: "a merge of docs", most: 9, found: true, trees: 1, make: func(r *gittest.Repo, from string) {
			beside(r, from, map[string]string{"SIDE.md": "x"})
			r.Git("merge", "-q", "--no-ff", "-m", "Merge", "side")
		}},
		{why: "a merge of docs beside approvals that the branch got since", most: 9, found: true, trees: 2, make: func(r *gittest.Repo, from string) {
			r.Commit(map[string]string{folder + "/web.yaml": "a"})
			beside(r, from, map[string]string{"SIDE.md": "x"})
			r.Git("merge", "-q", "--no-ff", "-m", "Merge", "side")
		}},
		{why: "a merge that leaves an approval out", most: 9, found: true, trees: 1, touches: true, make: func(r *gittest.Repo, from string) {
			beside(r, from, map[string]string{folder + "/web.yaml": "a"})
			r.Git("merge", "-q", "--no-ff", "-s", "ours", "-m", "Merge", "side")
		}},
		{why: "a merge that leaves out an approval behind a linked folder", most: 9, found: true, trees: 1, touches: true, make: func(r *gittest.Repo, _ string) {
			r.Link(folder, "../reviews")
			from := r.Commit(map[string]string{"reviews/README.md": "of both"})
			beside(r, from, map[string]string{"reviews/web.yaml": "a"})
			r.Git("merge", "-q", "--no-ff", "-s", "ours", "-m", "Merge", "side")
		}},
		{why: "a merge that leaves out an approval behind a link on the way", most: 9, found: true, trees: 1, touches: true, make: func(r *gittest.Repo, _ string) {
			r.Link("deploy", "apps")
			from := r.Commit(map[string]string{"apps/README.md": "of both"})
			beside(r, from, map[string]string{"apps/approvals/web.yaml": "a"})
			r.Git("merge", "-q", "--no-ff", "-s", "ours", "-m", "Merge", "side")
		}},
		{why: "a merge that leaves out what a linked file was", most: 9, found: true, trees: 1, touches: true, make: func(r *gittest.Repo, _ string) {
			r.Link(folder+"/of/web.yaml", "../../../web.txt")
			from := r.Commit(map[string]string{"web.txt": "not yet"})
			beside(r, from, map[string]string{"web.txt": "a"})
			r.Git("merge", "-q", "--no-ff", "-s", "ours", "-m", "Merge", "side")
		}},
		{why: "a merge without changes beside a link", most: 9, found: true, trees: 2, make: func(r *gittest.Repo, _ string) {
			r.Link(folder, "../reviews")
			from := r.Commit(map[string]string{"reviews/README.md": "of both"})
			r.Git("checkout", "-q", "-b", "side", from)
			r.Git("commit", "-q", "--allow-empty", "-m", "Nothing")
			r.Git("checkout", "-q", "main")
			r.Git("merge", "-q", "--no-ff", "-m", "Merge", "side")
			docs(1)(r, "")
		}},
		{why: "a merge of more than a glance looks at", most: 9, found: true, trees: 1, touches: true, make: func(r *gittest.Repo, from string) {
			r.Git("checkout", "-q", "-b", "side", from)
			for range maxGlance + 1 {
				r.Git("commit", "-q", "--allow-empty", "-m", "Nothing")
			}
			r.Git("checkout", "-q", "main")
			r.Git("merge", "-q", "--no-ff", "-s", "ours", "-m", "Merge", "side")
		}},
	} {
		t.Run(tc.why, func(t *testing.T) {
			repo := gittest.NewRepo(t)
			from := repo.Commit(map[string]string{"README.md": "first"})
			tc.make(repo, from)
			if tc.from != "" {
				from = tc.from
			}
			store := filesystem.NewStorage(osfs.New(filepath.Join(repo.Work, ".git")), cache.NewObjectLRUDefault())
			st := &stretches{}
			for range 2 { // the second answer is the one that was kept
				way, err := st.between(store, plumbing.NewHash(from), plumbing.NewHash(repo.Head()), tc.most)
				if err != nil {
					t.Fatal(err)
				}
				if (way != nil) != tc.found {
					t.Fatalf("found %t, want %t", way != nil, tc.found)
				}
				if way == nil {
					continue
				}
				brings, err := way.bringsApprovals(store, "./"+folder+"/")
				if err != nil || len(way.trees) != tc.trees || brings != tc.touches {
					t.Errorf("%d trees, want %d; brings approvals %t, want %t; %v", len(way.trees), tc.trees, brings, tc.touches, err)
				}
			}
			if len(st.list) != 1 {
				t.Errorf("%d answers are kept", len(st.list))
			}
		})
	}
}

func docs(n int) func(*gittest.Repo, string) {
	return func(r *gittest.Repo, _ string) {
		for i := range n {
			r.Commit(map[string]string{"README.md": fmt.Sprint(i)})
		}
	}
}

// beside commits files on a branch beside the main one.
func beside(r *gittest.Repo, from string, files map[string]string) {
	r.Git("checkout", "-q", "-b", "side", from)
	r.Commit(files)
	r.Git("checkout", "-q", "main")
}

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
