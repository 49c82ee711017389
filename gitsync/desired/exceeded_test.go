package desired

import (
	"errors"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
)

// tooMuch is a renderer that takes each folder for too much after it has read it.
type tooMuch struct{ n int }

func (r *tooMuch) Render(_ string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	r.n++
	_, _ = manifest.Render(fsys, dir, opts)
	return nil, &plan.Problem{Reason: "LimitExceeded", Where: dir, Err: errors.New("rendering takes more than 30s of CPU time")}
}

// A folder that takes too much to render takes it once. It does not take it again at
// each push that leaves it as it is, nor at each sync.
func TestExceededCommits(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	repo.CommitAndPush(gittest.Web("v1"))
	known, in := &ExceededCommits{}, &tooMuch{}
	look := func(reason string, want int) {
		t.Helper()
		r := rendererAt(t, repo, "")
		r.Folders, r.Exceeded = in, known
		if _, _, err := r.Read(nil); !gittree.IsExceeded(err) {
			t.Errorf("%s: %v", reason, err)
		}
		if in.n != want {
			t.Errorf("%s: %d renderings, want %d", reason, in.n, want)
		}
	}
	look("the first look", 1)
	look("the same commit", 1)
	repo.CommitAndPush(map[string]string{"README.md": "x"})
	look("a push beside it", 1)
	repo.CommitAndPush(gittest.Web("v2"))
	look("a push to it", 2)
	repo.CommitAndPush(map[string]string{"deploy/new.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"})
	look("a new file in it", 3)

	// An older commit that takes too much is no part of what the tip costs.
	older := plumbing.NewHash(repo.Head())
	repo.CommitAndPush(gittest.Web("v3"))
	for i := range 2 {
		r := rendererAt(t, repo, "")
		r.Folders, r.Exceeded = in, known
		tree, err := gittree.Open(r.Snapshot, older)
		if err != nil {
			t.Fatal(err)
		}
		d, err := NewHistory(r, &State{}).Older(older, tree)
		if err != nil || d.Set != nil || len(d.Reads) == 0 {
			t.Errorf("%s: %+v, %v", older, d, err)
		}
		if in.n != 4 {
			t.Errorf("look %d: %d renderings, want 4", i, in.n)
		}
	}
}
