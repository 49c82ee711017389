package signers

import (
	"testing"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

func TestLastChange(t *testing.T) {
	file := "approvals/web.yaml"
	for name, tt := range map[string]struct {
		reason string
		story  func(r *gittest.Repo) (want, by string)
	}{
		"plainly": {"the commit that wrote it", func(r *gittest.Repo) (string, string) {
			r.Author = "Grace Example <grace@example.org>"
			want := r.Commit(map[string]string{file: "one"})
			r.Author = gittest.Author
			r.Commit(map[string]string{"README.md": "x"})
			return want, "Grace Example <grace@example.org>"
		}},
		"changed since": {"the commit that wrote what stands there now", func(r *gittest.Repo) (string, string) {
			r.Commit(map[string]string{file: "one"})
			return r.Commit(map[string]string{file: "two"}), gittest.Author
		}},
		"merged": {"who wrote it on the branch, and not the forge that merged", func(r *gittest.Repo) (string, string) {
			r.Commit(map[string]string{"README.md": "x"})
			r.Git("checkout", "-q", "-b", "approve")
			r.Author = "Grace Example <grace@example.org>"
			want := r.Commit(map[string]string{file: "one"})
			r.Git("checkout", "-q", "main")
			r.Author = gittest.Author
			r.Commit(map[string]string{"README.md": "y"})
			r.Git("merge", "-q", "--no-ff", "-m", "Merge", "approve")
			return want, "Grace Example <grace@example.org>"
		}},
		"taken away and put back": {"the commit that put it back", func(r *gittest.Repo) (string, string) {
			r.Commit(map[string]string{file: "one"})
			r.Commit(map[string]string{file: ""})
			return r.Commit(map[string]string{file: "one"}), gittest.Author
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewRepo(t)
			want, by := tt.story(repo)
			before := plumbing.NewHash(repo.Head())
			repo.Commit(map[string]string{"README.md": "last"})
			s, tip := storeOf(repo), plumbing.NewHash(repo.Head())
			got, err := LastChange(s, tip, file, FileOrigin{})
			if err != nil {
				t.Fatal(err)
			}
			if got.In != want || got.By != by {
				t.Errorf("%s: got %s by %s, want %s by %s", tt.reason, got.In, got.By, want, by)
			}
			last, err := LastChange(s, before, file, FileOrigin{})
			if err != nil {
				t.Fatal(err)
			}
			if again, err := LastChange(s, tip, file, last); err != nil || again.In != want || again.tip != tip {
				t.Errorf("from an earlier answer: %+v %v", again, err)
			}
		})
	}
}
