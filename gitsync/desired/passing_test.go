package desired

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// failsOnce is a renderer of which one rendering fails, for no reason of the folder's.
type failsOnce struct{ at, n int }

func (f *failsOnce) Render(_ string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error) {
	if f.n++; f.n == f.at {
		return nil, &plan.Problem{Reason: "RendererFailed", Where: dir, Err: errors.New("the renderer has ended: signal: killed"), Retry: true}
	}
	return manifest.Render(fsys, dir, opts)
}

// A renderer that ends while an older commit is rendered says nothing of that commit.
// Taken for one that does not render, it would move the commit of the release, and with
// it the gates that are open.
func TestFailedRendererSaysNothingOfACommit(t *testing.T) {
	t.Parallel()
	repo := gittest.NewRepo(t)
	v1 := repo.Commit(gittest.Web("v1"))
	v2 := repo.Commit(gittest.Web("v2"))
	files := gittest.Web("v2")
	files["deploy/a.yaml"] = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	repo.CommitAndPush(files)
	for at := 1; ; at++ {
		r, in := rendererAt(t, repo, v1), &failsOnce{at: at}
		r.Folders = in
		d, _, err := r.Read(nil)
		var list []*v1alpha1.BatchRelease
		if err == nil {
			list, _, err = r.Releases(context.Background(), d, d.Set.Releases, map[string]*v1alpha1.BatchRelease{"shop/web": liveAt("v1", v1)})
		}
		switch {
		case in.n < at: // all went well
			if err != nil || list[0].Spec.Commit != v2 || at < 3 {
				t.Fatalf("%d renderings: %v %v", in.n, list, err)
			}
			return
		case err == nil:
			t.Errorf("rendering %d failed, and the release is that of %s, want an error or none", at, list[0].Spec.Commit)
		case !IsPassing(err):
			t.Errorf("rendering %d failed: %v", at, err)
		}
	}
}
