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

// writtenIn are histories of a file, each with the commit that wrote what it has.
var writtenIn = map[string]struct {
	file, reason string
	story        func(r *gittest.Repo) (want string)
}{
	"written here": {writtenFile, "the commit that wrote it", func(r *gittest.Repo) string {
		return r.Commit(map[string]string{writtenFile: "one"})
	}},
	"changed": {writtenFile, "a change is new", func(r *gittest.Repo) string {
		r.Commit(map[string]string{writtenFile: "one"})
		return r.Commit(map[string]string{writtenFile: "two"})
	}},
	"renamed and changed": {writtenFile, "a change is new", func(r *gittest.Repo) string {
		r.Commit(map[string]string{"approvals/a.yaml": "one"})
		return r.Commit(map[string]string{"approvals/a.yaml": "", writtenFile: "two"})
	}},
	"renamed": {writtenFile, "a name is not", func(r *gittest.Repo) string {
		want := r.Commit(map[string]string{"approvals/a.yaml": "one"})
		r.Commit(map[string]string{"approvals/a.yaml": "", writtenFile: "one"})
		return want
	}},
	"moved to another folder, twice": {writtenFile, "nor is a folder", func(r *gittest.Repo) string {
		want := r.Commit(map[string]string{"b/web.yaml": "one"})
		r.Commit(map[string]string{"README.md": "x"})
		r.Commit(map[string]string{"b/web.yaml": "", "shop/approvals/web.yaml": "one"})
		r.Commit(map[string]string{"shop/approvals/web.yaml": "", writtenFile: "one"})
		return want
	}},
	"moved over another one": {writtenFile, "what was there says nothing", func(r *gittest.Repo) string {
		want := r.Commit(map[string]string{"approvals/a.yaml": "one", writtenFile: "two"})
		r.Commit(map[string]string{"approvals/a.yaml": "", writtenFile: "one"})
		return want
	}},
	"copied": {writtenFile, "a second copy is not new", func(r *gittest.Repo) string {
		want := r.Commit(map[string]string{"approvals/a.yaml": "one"})
		r.Commit(map[string]string{writtenFile: "one"})
		return want
	}},
	"at the root": {"web.yaml", "a second copy is not new", func(r *gittest.Repo) string {
		want := r.Commit(map[string]string{"a.yaml": "one"})
		r.Commit(map[string]string{"web.yaml": "one"})
		return want
	}},
	"moved on a branch": {writtenFile, "the merge brings nothing", func(r *gittest.Repo) string {
		want := r.Commit(map[string]string{"approvals/a.yaml": "one"})
		r.Git("checkout", "-q", "-b", "tidy")
		r.Commit(map[string]string{"approvals/a.yaml": "", writtenFile: "one"})
		r.Git("checkout", "-q", "main")
		r.Commit(map[string]string{"README.md": "y"})
		r.Git("merge", "-q", "--no-ff", "-m", "Merge", "tidy")
		return want
	}},
	"taken away and put back": {writtenFile, "the commit that put it back", func(r *gittest.Repo) string {
		r.Commit(map[string]string{writtenFile: "one"})
		r.Commit(map[string]string{writtenFile: ""})
		return r.Commit(map[string]string{writtenFile: "one"})
	}},
}

const writtenFile = "approvals/web.yaml"

func TestWrittenIn(t *testing.T) {
	for name, tt := range writtenIn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewRepo(t)
			repo.Commit(map[string]string{"README.md": "first"})
			want := tt.story(repo)
			s, tip := storeOf(repo), plumbing.NewHash(repo.Head())
			brought, err := LastChange(s, tip, tt.file, FileOrigin{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := WrittenIn(s, tt.file, brought); err != nil || got.In != want {
				t.Errorf("%s: got %s, want %s (%v)", tt.reason, got.In, want, err)
			}
		})
	}
}
