package rendering

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// All renderings of a sync wait for slow servers no longer than one of them may. Once the
// time is used up, no server is asked.
func TestBases_OneBudget(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	gs := &v1alpha1.GitSource{}
	gs.Spec.Timeout.Duration = 5 * time.Second // a busy machine asks the server before it ends
	bases := repository.NewBases(t.TempDir(), gittree.Limits{})
	for sync := range int32(2) {
		r, since := New(gs, nil, bases), time.Now()
		for n := range 5 { // the commit, older ones, folders of other sources
			_, err := r.Bases(t.Context(), since)(manifest.RemoteBase{URL: fmt.Sprintf("%s/sync%d/%d", slow.URL, sync, n)})
			if err == nil || !strings.Contains(err.Error(), "no answer in time") {
				t.Errorf("base %d: %v", n, err)
			}
		}
		if n := asked.Load(); n != sync+1 {
			t.Errorf("%d servers were asked in %d syncs, want one in each", n, sync+1)
		}
	}
}

// full is a renderer without a place.
type full struct {
	desired.FolderRenderer
	given *[]*noPlace
}

func (f full) Render(string, filesys.FileSystem, string, manifest.RenderOptions) ([]plan.Object, error) {
	e := &noPlace{error: errors.New("no place")}
	*f.given = append(*f.given, e)
	return nil, e
}

type noPlace struct {
	error
	left bool
}

func (*noPlace) Free() <-chan struct{} { return nil }
func (e *noPlace) Leave()              { e.left = true }

// A sync waits for one place, whatever it has to render: it is repeated as a whole.
func TestBusy_OnePlace(t *testing.T) {
	var given []*noPlace
	r := New(&v1alpha1.GitSource{}, full{given: &given}, nil)
	for range 3 {
		if _, err := r.Folders().Render("shop", nil, ".", manifest.RenderOptions{}); err == nil {
			t.Fatal("it has a place")
		}
	}
	if r.Busy() != desired.Busy(given[0]) || given[0].left || !given[1].left || !given[2].left {
		t.Errorf("busy: %v, of %+v", r.Busy(), given)
	}
}
