package gitsync_test

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// While another controller may lead, neither an approval nor notes are pushed; then
// they are.
func TestMayPush(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	var may atomic.Bool
	t.Cleanup(s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		return errors.Join(rollout.Add(mgr, rollout.Options{Concurrent: 2}), gitsync.Add(mgr, gitsync.Options{
			StorageDir: t.TempDir(), Concurrent: 2, NoCrossNamespaceRefs: true, NoRemoteBases: true, FileRoots: []string{os.TempDir()}, FileWriteRoots: []string{os.TempDir()},
			MayPush: func() error {
				if !may.Load() {
					return errors.New("another one may lead")
				}
				return nil
			},
		}))
	}))
	s.applied2(s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v1"), "deploy/plan.yaml": webPlan}, "web: v1"),
		writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack.Notes = true })
	s.isAt("web", "ReleaseCompleted", 1)
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v2")}, "web: v2")
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	s.approve("web")
	clustertest.Wait(t, "the source to say so", func() error {
		if c := s.inSync(); c.Reason != "WriteBackFailed" || !strings.Contains(c.Message, "another one may lead") {
			return errors.New(said(s.gs()))
		}
		return nil
	})
	if refs := s.inBare("for-each-ref", "--format=%(refname)"); refs != "refs/heads/main" || len(s.subjects("main")) != 2 {
		t.Errorf("refs %q, commits %q", refs, s.subjects("main"))
	}
	may.Store(true)
	s.lookNow()
	clustertest.Wait(t, "the approval and the notes", func() error {
		if refs := s.inBare("for-each-ref", "--format=%(refname)"); !strings.Contains(refs, "refs/notes/tranche") || len(s.subjects("main")) != 3 {
			return errors.New(refs + ": " + strings.Join(s.subjects("main"), ", "))
		}
		return nil
	})
}
