package commitrange

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// A walk is bounded, and ends where the branch was set back. Among the commits that
// merges bring, only those with approvals of their own touch a source that does not
// read them otherwise.
func TestRange(t *testing.T) {
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
			for range MaxShort + 1 {
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
			st := &Cache{}
			for range 2 { // the second answer is the one that was kept
				way, err := st.Between(store, plumbing.NewHash(from), plumbing.NewHash(repo.Head()), tc.most)
				if err != nil {
					t.Fatal(err)
				}
				if (way != nil) != tc.found {
					t.Fatalf("found %t, want %t", way != nil, tc.found)
				}
				if way == nil {
					continue
				}
				brings, err := way.BringsApprovals(store, "./"+folder+"/")
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
