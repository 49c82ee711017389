package rollout_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// zeroBounds is a strategy that the API server refuses on a Deployment: no rollout could
// move with it.
const zeroBounds = `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":0,"maxUnavailable":0}}`

// refusedBounds waits until the release says why it cannot go on, and fails where pods
// have moved since then.
func (s *env) refusedBounds(held bool, sizes map[string]int32) {
	s.Helper()
	clustertest.Wait(s, "the strategy to be refused", func() error {
		br := s.release()
		conditions := map[string]metav1.ConditionStatus{}
		for _, c := range br.Status.Conditions {
			conditions[c.Type] = c.Status
		}
		if br.Status.ObservedGeneration != br.Generation || conditions[v1alpha1.ConditionStalled] != metav1.ConditionTrue || conditions[v1alpha1.ConditionReady] != metav1.ConditionFalse {
			return fmt.Errorf("%s: %s; %v", br.Status.Reason, br.Status.Message, conditions)
		}
		return nil
	})
	s.disturb()
	if got := s.sizes(); fmt.Sprint(got) != fmt.Sprint(sizes) {
		s.Errorf("sizes %v, want %v", got, sizes)
	}
	if d := s.deployment("web"); d.Spec.Paused != held {
		s.Errorf("paused %t, want %t", d.Spec.Paused, held)
	}
}

// A user sets a strategy on the BatchRelease that could not be handed back. It comes with
// a release, in the middle of one, and together with the last approval. No pod moves, and
// the Deployment is not held for ever. Another strategy, or the end of the plan, lets the
// release go on or hands the Deployment back.
func TestZeroBounds(t *testing.T) {
	t.Parallel()
	give := func(s *env, strategy string) {
		s.kubectl("-n", s.ns, "patch", "batchrelease/web", "--type=merge", "-p", `{"spec":{"deploymentStrategy":`+strategy+`}}`)
	}
	atFirst := map[string]int32{"v1": 3, "v2": 1}
	for name, tell := range map[string]func(*testing.T){
		"with a release": func(t *testing.T) {
			s, _ := newEnvWithController(t)
			s.install(4)
			s.plan("1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			give(s, zeroBounds)
			s.refusedBounds(false, map[string]int32{"v1": 4})
			s.bring("v2")
			s.refusedBounds(false, map[string]int32{"v1": 4})
			give(s, "null")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, atFirst)
			s.finish(4)
		},
		"in the middle, and corrected": func(t *testing.T) {
			s := atGate(t, 4)
			give(s, zeroBounds)
			s.refusedBounds(true, atFirst)
			give(s, "null")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, atFirst)
			s.finish(4)
		},
		"in the middle, and the plan ends": func(t *testing.T) {
			c := clustertest.Shared(t)
			s := &env{T: t, c: c, ns: c.Namespace(t)} // the watcher wants what cannot be: the plan's strategy back
			startControllerIn(t, s.c, s.ns)
			s.toGate(4)
			give(s, zeroBounds)
			s.refusedBounds(true, atFirst)
			s.unplan()
			s.rolled("web", 4)
			s.untouched()
			if r := s.deployment("web").Spec.Strategy.RollingUpdate; r.MaxSurge.String() != "25%" || r.MaxUnavailable.String() != "25%" {
				t.Errorf("handed back with %s, %s; want what it had before the release", r.MaxSurge, r.MaxUnavailable)
			}
		},
		"in the middle, and the release is taken back": func(t *testing.T) {
			s := atGate(t, 4)
			give(s, zeroBounds)
			s.refusedBounds(true, atFirst)
			s.bring("v1")
			s.refusedBounds(true, atFirst)
			give(s, "null")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 4})
			s.untouched()
		},
		"with the last approval": func(t *testing.T) {
			s := atGate(t, 4)
			revision, commit := s.release().Status.UpdateRevision, s.release().Spec.Commit
			s.kubectl("-n", s.ns, "patch", "batchrelease/web", "--type=merge", "-p", fmt.Sprintf(
				`{"spec":{"deploymentStrategy":%s,"approval":{"revision":%q,"commit":%q,"step":0,"approvedBy":"Ada <ada@example.org>","approvedIn":"abcdef1"}}}`, zeroBounds, revision, commit))
			s.refusedBounds(true, atFirst)
			give(s, "null")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
			s.untouched()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t)
		})
	}
}

// The API server itself refuses it on the Deployment: before, in and after a release.
func TestZeroBounds_OnTheDeployment(t *testing.T) {
	t.Parallel()
	refused := []attempt{
		{"no rollout could move", "may not be 0 when `maxSurge` is 0", `patch deployment/web --type=merge -p {"spec":{"strategy":` + zeroBounds + `}}`},
		{"not in the write that ends a hold", "may not be 0 when `maxSurge` is 0", `patch deployment/web --type=merge -p {"spec":{"paused":false,"strategy":` + zeroBounds + `}}`},
	}
	s := atGate(t, 4)
	s.attempt(refused)
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.finish(4)
	s.attempt(refused)
	s.untouched()
}
