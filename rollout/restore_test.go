package rollout_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// A Deployment is restored in the middle of a release, with the status of its
// BatchRelease. The ReplicaSets, the records, or both are not. The release stands at its
// gate, or says what is missing. No pod of v2 is added.
func TestRestore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ sets, records bool }{
		"all of it": {true, true}, "no ReplicaSets": {false, true}, "no records": {true, false}, "the Deployment alone": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, stop := atGateOf(t, 4)
			stop()
			backup := s.backUp()
			loseAll(s)
			if tc.records {
				s.restore(backup.records...)
				if !tc.sets {
					s.disorder()
				}
			}
			if tc.sets {
				s.restore(backup.sets...)
			}
			s.restore(backup.deployment, backup.release)
			s.restoreStatus(backup.release)
			startControllerIn(t, s.c, s.ns)
			if !tc.sets && !tc.records {
				s.waitFor(v1alpha1.ReasonRecordsLost, 0, map[string]int32{})
				s.stay(map[string]int32{})
				d, m := s.deployment("web"), s.release().Status.Message
				if !engine.Held(d) || !strings.Contains(m, backup.release.Status.StableRevision) {
					t.Errorf("held=%t: %s", engine.Held(d), m)
				}
				s.restore(backup.records...)
				s.kubectl("-n", s.ns, "annotate", "batchrelease/web", "example.org/look=now") // or within a minute
			}
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
			s.stay(map[string]int32{"v1": 3, "v2": 1})
			if at := s.release().Status; at.StableRevision != backup.release.Status.StableRevision || at.RollingBack {
				t.Errorf("stable %s, rolling back %t", at.StableRevision, at.RollingBack)
			}
			s.approve(0)
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 4})
			s.untouched()
		})
	}
}

// loseAll deletes the plan and the Deployment, and waits until what that owned is gone.
func loseAll(s *env) {
	s.Helper()
	s.must(s.c.Client.Delete(s.Context(), s.release()))
	s.kubectl("-n", s.ns, "delete", "deployment/web", "--cascade=foreground")
	clustertest.Wait(s, "the garbage collector", func() error {
		if sets, records := len(s.sets()), len(s.records()); sets+records > 0 {
			return fmt.Errorf("%d ReplicaSets and %d records", sets, records)
		}
		return nil
	})
}

// The records of a release under way are lost, alone or with the ReplicaSets. The plan is then
// removed. The Deployment is handed back at the template of its hold, and the native controller
// brings all pods of it. A pod of it that ran goes on running.
func TestRecordsLost_PlanRemoved(t *testing.T) {
	t.Parallel()
	pods := func(s *env) (uids []types.UID) {
		s.Helper()
		var list corev1.PodList
		s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
		for _, p := range list.Items {
			if p.DeletionTimestamp == nil && strings.HasSuffix(p.Spec.Containers[0].Image, ":v2") {
				uids = append(uids, p.UID)
			}
		}
		return uids
	}
	for name, sets := range map[string]bool{"records": true, "records and ReplicaSets": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, stop := atGateOf(t, 4)
			stop()
			if sets {
				for _, c := range s.records() {
					s.must(s.c.Client.Delete(t.Context(), &c))
				}
			} else {
				backup := s.backUp()
				loseAll(s)
				s.restore(backup.deployment, backup.release)
				s.restoreStatus(backup.release)
			}
			startControllerIn(t, s.c, s.ns)
			if sets {
				clustertest.Wait(t, "the record of the stable revision", func() error {
					if len(s.records()) == 0 {
						return errors.New("it is not there")
					}
					return nil
				})
				s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
				s.stay(map[string]int32{"v1": 3, "v2": 1})
			} else {
				s.waitFor(v1alpha1.ReasonRecordsLost, 0, map[string]int32{})
				s.stay(map[string]int32{})
			}
			ran := pods(s)
			s.must(s.c.Client.Delete(t.Context(), s.release()))
			s.rolled("web", 4)
			s.become(map[string]int32{"v2": 4})
			if d := s.deployment("web"); engine.Held(d) || d.Spec.Paused {
				t.Errorf("held=%t, paused=%t", engine.Held(d), d.Spec.Paused)
			}
			for _, uid := range ran {
				if !slices.Contains(pods(s), uid) {
					t.Errorf("pod %s that ran is gone", uid)
				}
			}
		})
	}
}

// A Deployment is restored with its records, after a release was rolled back. The status of
// its BatchRelease is not restored. The release that failed is not tried again.
func TestRestore_Failure(t *testing.T) {
	t.Parallel()
	s, stop := atGateOf(t, 2)
	s.kubectl("-n", s.ns, "annotate", "batchrelease/web", v1alpha1.AnnotationRollback+"=true")
	s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
	clustertest.Wait(t, "the failure to be kept", func() error {
		if n := len(s.failures()); n != 1 {
			return fmt.Errorf("%d failures", n)
		}
		return nil
	})
	stop()
	backup := s.backUp()
	loseAll(s)
	s.restore(backup.records...)
	s.restore(backup.sets...)
	s.restore(backup.deployment, backup.release)
	startControllerIn(t, s.c, s.ns)
	s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
	s.stay(map[string]int32{"v1": 2})
	clustertest.Wait(t, "the failure to have its owners", func() error {
		for _, c := range s.failures() {
			if len(c.GetOwnerReferences()) != 2 {
				return fmt.Errorf("%s has the owners %v", c.GetName(), c.GetOwnerReferences())
			}
		}
		return nil
	})
	s.bring("v3")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v3": 1})
	clustertest.Wait(t, "the failure to be forgotten", func() error {
		if n := len(s.failures()); n > 0 {
			return fmt.Errorf("%d failures", n)
		}
		return nil
	})
}

// failures returns the ControllerRevisions that keep what has failed.
func (s *env) failures() []client.Object {
	s.Helper()
	var list appsv1.ControllerRevisionList
	s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
	var failures []client.Object
	for i := range list.Items {
		if plan.IsFailure(&list.Items[i]) {
			failures = append(failures, &list.Items[i])
		}
	}
	return failures
}

// backup is what kubectl get -o yaml has of a release, without identities and owners.
type backup struct {
	deployment    *appsv1.Deployment
	release       *v1alpha1.BatchRelease
	sets, records []client.Object
}

func (s *env) backUp() backup {
	s.Helper()
	b := backup{deployment: s.deployment("web"), release: s.release()}
	for _, rs := range s.sets() {
		delete(rs.Labels, v1alpha1.LabelHeld) // as docs/backup.md says
		b.sets = append(b.sets, &rs)
	}
	for _, c := range s.records() {
		b.records = append(b.records, &c)
	}
	return b
}

// restore makes objects of a back-up, as kubectl create does.
func (s *env) restore(objects ...client.Object) {
	s.Helper()
	for _, o := range objects {
		made := o.DeepCopyObject().(client.Object)
		made.SetUID("")
		made.SetResourceVersion("")
		made.SetOwnerReferences(nil)
		made.SetManagedFields(nil)
		s.must(s.c.Client.Create(s.Context(), made, client.FieldOwner("kubectl-create")))
	}
}

// restoreStatus writes the status of a back-up as the controller's account.
func (s *env) restoreStatus(br *v1alpha1.BatchRelease) {
	s.Helper()
	own, err := client.New(s.c.Controller, client.Options{Scheme: s.c.Scheme})
	s.must(err)
	var live v1alpha1.BatchRelease
	s.must(own.Get(s.Context(), types.NamespacedName{Namespace: br.Namespace, Name: br.Name}, &live))
	live.Status = br.Status
	s.must(own.Status().Update(s.Context(), &live))
}
