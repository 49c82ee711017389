package repository

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Sources that pin many tags of one repository do not cost it a pack each: tags of the
// branch come together. Those of other commits come one by one, and together after the
// mirror was cloned again.
func TestPins_ManyTags(t *testing.T) {
	const tags = maxPacks + 10
	for name, perTag := range map[string]bool{"of commits of the branch": false, "of other commits": true} {
		t.Run(name, func(t *testing.T) {
			repo := gittest.NewRepo(t)
			repo.CommitAndPush(map[string]string{"a": "one"})
			for n := range tags {
				if perTag {
					repo.Git("checkout", "-q", "--detach", "main")
					repo.Commit(map[string]string{"a": fmt.Sprint(n)})
				}
				repo.Git("tag", "-a", "-m", "a tag", fmt.Sprintf("v%d", n))
			}
			repo.Git("push", "-q", "--tags", "origin")
			wants := strings.Fields(repo.Git("for-each-ref", "--sort=version:refname", "--format=%(*objectname)", "refs/tags"))
			var asked atomic.Int32
			server := gittest.Serve(t, filepath.Dir(repo.Bare), gittest.ServeOptions{Wrap: func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
						asked.Add(1)
					}
					h.ServeHTTP(w, r)
				})
			}})
			u, err := gitserver.ParseURL(server.URL + "/repo.git")
			if err != nil {
				t.Fatal(err)
			}
			r := gitserver.Remote{URL: u}
			m := NewCache(t.TempDir()).Of(r)
			looks := func() {
				t.Helper()
				for n := range tags {
					want := wants[n]
					s, err := m.FetchReference(t.Context(), r, v1alpha1.GitReference{Branch: "main", Tag: fmt.Sprintf("v%d", n)}, time.Now())
					if err != nil {
						t.Fatal(err)
					}
					if s.Commit.String() != want || s.Tag.Name != fmt.Sprintf("v%d", n) {
						t.Errorf("v%d is %s, want %s", n, s.Commit, want)
					}
					s.Close()
				}
			}
			looks()
			if packs := m.current.packs(); !perTag && (packs != 2 || asked.Load() != 2) {
				t.Errorf("%d packs by %d requests, want one for the branch and one for its tags", packs, asked.Load())
			}
			before, generation := asked.Load(), m.generation
			looks()
			if n := asked.Load() - before; n > 2 || m.generation != generation {
				t.Errorf("%d requests for tags that are there, and %d new clones", n, m.generation-generation)
			}
		})
	}
}
