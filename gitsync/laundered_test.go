package gitsync_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// signsBack demands signatures of ada and of the controller, and signs what is written
// back. It returns ada's key.
func (s *env) signsBack(edit func(*v1alpha1.GitSource)) (gittest.Key, func(*v1alpha1.GitSource)) {
	s.Helper()
	ada, robot := gittest.NewSSHKey(s, "ed25519", ""), gittest.NewSSHKey(s, "ed25519", "")
	s.must(s.c.Client.Create(s.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "signing"}, Data: map[string][]byte{"identity": []byte(robot.Private)}}))
	keys := s.lists("keys", "ada@example.org "+ada.Public, "robot@example.org "+robot.Public)
	s.repo.Sign(&ada)
	return ada, func(gs *v1alpha1.GitSource) {
		gs.Spec.Verify = committers(keys)
		gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true, SigningKey: &v1alpha1.LocalObjectReference{Name: "signing"}}
		edit(gs)
	}
}

// plants puts a commit on top of a base that no key has signed, under a name in the bare
// repository.
func (s *env) plants(base, ref string) string {
	s.Helper()
	main := s.repo.Head()
	s.repo.Sign(nil)
	s.repo.Git("checkout", "-q", "--detach", base)
	evil := s.repo.Commit(map[string]string{"deploy/evil.yaml": configMap("evil", "one"), "deploy/approvals/.keep": "x"}, "evil")
	s.repo.Git("push", "-q", "--force", "origin", "HEAD:"+ref)
	s.repo.Git("checkout", "-q", "main")
	if s.repo.Head() != main {
		s.Fatalf("main is %s, and was %s", s.repo.Head(), main)
	}
	return evil
}

// The controller's signature covers the history of its commit. So it signs nothing on top
// of a branch for review that has a commit which spec.verify does not let pass.
func TestWriteBackSignsNoForeignCommit(t *testing.T) {
	t.Parallel()
	for name, base := range map[string]string{"ahead of the branch": "main", "behind the branch": "main~1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, andRollout)
			ada, edit := s.signsBack(func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack.Branch = "tranche/review" })
			s.beginRelease(edit)
			evil := s.plants(base, "refs/heads/tranche/review")
			s.rollBack("web")
			if m := s.differs("WriteBackConflict"); !strings.Contains(m, "branch tranche/review: commit "+evil[:7]) || !strings.Contains(m, "it is not signed") {
				t.Error(m)
			}
			s.lookNow()
			if got := s.inBare("rev-parse", "tranche/review"); got != evil {
				t.Errorf("the branch for review is\n%s", s.inBare("log", "--format=%h %an %s", "tranche/review"))
			}
			s.inBare("update-ref", "-d", "refs/heads/tranche/review")
			s.lookNow()
			s.differs("WaitingForReview")
			if got := s.subjects("tranche/review"); !slices.Equal(got, []string{"Revert \"web: v2\"", "web: v2", "web: v1"}) {
				t.Errorf("for review: %q", got)
			}
			// A person with a listed key may add to it.
			s.repo.Sign(&ada)
			s.repo.Git("fetch", "-q", "origin", "tranche/review")
			s.repo.Git("merge", "-q", "--ff-only", "FETCH_HEAD")
			s.repo.CommitAndPush(map[string]string{"README.md": "reviewed\n"}, "Reviewed")
			s.rolledBack("web")
			s.applied(s.repo.Head())
		})
	}
}

// The branch moves to a commit that no key has signed, while the controller commits.
func TestWriteBackSignsNoForeignTip(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	var evil atomic.Value
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if to, ok := evil.Load().(string); ok && to != "" && r.Method == http.MethodPost && strings.Contains(r.URL.Path, "git-receive-pack") {
				evil.Store("")
				gittest.Git(t, s.repo.Bare, "update-ref", "refs/heads/main", to)
			}
			next.ServeHTTP(w, r)
		})
	}})
	ada, edit := s.signsBack(func(gs *v1alpha1.GitSource) { gs.Spec.URL = server.URL + "/" + filepath.Base(s.repo.Bare) })
	s.beginRelease(edit)
	evil.Store(s.plants("main", "refs/heads/other"))
	s.rollBack("web")
	clustertest.Wait(s, "the tip to be refused", func() error {
		if c := meta.FindStatusCondition(s.gs().Status.Conditions, "Ready"); evil.Load() != "" || c.Status != metav1.ConditionFalse || c.Reason != "CommitNotVerified" {
			return fmt.Errorf("%s", said(s.gs()))
		}
		return nil
	})
	s.lookNow()
	if got := s.subjects("main"); !slices.Equal(got, []string{"evil", "web: v2", "web: v1"}) {
		t.Errorf("main is %q", got)
	}
	s.repo.Sign(&ada)
	s.repo.Git("pull", "-q", "--ff-only", "origin", "main")
	s.repo.CommitAndPush(map[string]string{"deploy/evil.yaml": "", "deploy/approvals/.keep": ""}, "Remove what is evil")
	s.lookNow()
	s.ends("Revert \"web: v2\"", "Remove what is evil", "evil", "web: v2", "web: v1")
	s.rolledBack("web")
}

// Notes that other users push get no signature of the controller on top, which would be
// one of a commit of the branch.
func TestNotesAreNotSignedForVerify(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	ada, edit := s.signsBack(func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack.Notes = true })
	evil := s.plants(s.push(map[string]string{"README.md": "x\n"}), "refs/notes/tranche")
	s.repo.Sign(&ada)
	s.beginRelease(edit)
	clustertest.Wait(s, "a note", func() error {
		if s.inBare("rev-parse", "refs/notes/tranche^") != evil {
			return fmt.Errorf("no note\n%s", said(s.gs()))
		}
		return nil
	})
	if c := s.inBare("cat-file", "commit", "refs/notes/tranche"); strings.Contains(c, "gpgsig") {
		t.Errorf("signed:\n%s", c)
	}
}
