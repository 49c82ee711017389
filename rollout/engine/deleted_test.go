package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// doom has a ReplicaSet be deleted in the foreground, with one pod that does not end.
func doom(rs *appsv1.ReplicaSet) {
	rs.DeletionTimestamp, rs.Finalizers = &metav1.Time{Time: epoch}, []string{"foregroundDeletion"}
	rs.Status = appsv1.ReplicaSetStatus{ObservedGeneration: rs.Generation, TerminatingReplicas: ptr.To(int32(1))}
}

const doomed = " is being deleted and kept by finalizers foregroundDeletion; 1 of its pods are terminating: see their finalizers and nodes"

// A ReplicaSet that is being deleted gets no pod, and has its name. The release goes on
// with another one, and the status names what is in the way.
func TestDeletedReplicaSet(t *testing.T) {
	w := newWorld(10, 3, 2, "1", "100%")
	w.status = stored(engine.Decide(w.observe(), epoch).Status)
	w.records = []int{0}
	for range 2 {
		w.status = stored(engine.Decide(w.observe(), epoch).Status)
	}
	o := w.observe()
	doom(o.ReplicaSets[0])
	d := engine.Decide(o, epoch)
	if want := "0 of 10 pods run " + hashes[0] + "; ReplicaSet web-" + hashes[0] + doomed; d.Status.Reason != v1alpha1.ReasonPodsUnavailable || d.Status.Message != want {
		t.Errorf("between releases: %s: %s\nwant %s", d.Status.Reason, d.Status.Message, want)
	}

	w.brought = 1
	o = w.observe()
	doom(o.ReplicaSets[0])
	o.Release.Status = stored(engine.Decide(o, epoch).Status)
	if d = engine.Decide(o, epoch); !strings.Contains(fmt.Sprint(d.Actions), "hold at template "+hashes[1]) {
		t.Errorf("a release does not begin: %s: %s, %v", d.Status.Reason, d.Status.Message, d.Actions)
	}

	for _, tc := range []struct {
		state  v1alpha1.StepState
		step   int32
		writes string
	}{
		{v1alpha1.StepBlocking, 0, fmt.Sprintf("[find another name than web-%s]", hashes[0])},
		{v1alpha1.StepUpgrade, 1, fmt.Sprintf("[resize ReplicaSet web-%s from 2 to 4 find another name than web-%s]", hashes[1], hashes[0])},
	} {
		o = at(tc.step, tc.state, 2, steps("2", "4", "100%")...).observe()
		doom(o.ReplicaSets[0])
		d = engine.Decide(o, epoch)
		if got := fmt.Sprint(d.Actions); got != tc.writes {
			t.Errorf("step %d: %s\nwant %s", tc.step, got, tc.writes)
		}
		if want := "; ReplicaSet web-" + hashes[0] + doomed; !strings.Contains(d.Status.Message, want) {
			t.Errorf("step %d: %s\nwant it with %s", tc.step, d.Status.Message, want)
		}
		o.Deployment.Status.CollisionCount = ptr.To(int32(1))
		if got := fmt.Sprint(engine.Decide(o, epoch).Actions); !strings.Contains(got, "create ReplicaSet web-") || strings.Contains(got, "create ReplicaSet web-"+hashes[0]+" ") {
			t.Errorf("step %d, with another name: %s", tc.step, got)
		}
	}
}

// A native controller that does not scale is named after 20 s, and not at the deadline.
func TestUnanswered(t *testing.T) {
	const about = "about to release "
	refused := appsv1.DeploymentCondition{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "policy sizes denies it"}
	for _, tc := range []struct {
		why     string
		edit    func(*appsv1.Deployment)
		after   time.Duration
		message string
	}{
		{"it has time to answer", func(d *appsv1.Deployment) { d.Generation++ }, 19 * time.Second, about + hashes[1]},
		{"it is stopped", func(d *appsv1.Deployment) { d.Generation++ }, 20 * time.Second, about + hashes[1] + "; the Deployment controller has not answered for more than 20s"},
		{"it does not scale", func(d *appsv1.Deployment) { *d.Spec.Replicas = 4 }, time.Minute, about + hashes[1] + "; the Deployment controller has not brought the pods to 4 for more than 20s"},
		{"a policy refuses its sizes", func(d *appsv1.Deployment) {
			*d.Spec.Replicas, d.Status.Conditions = 4, []appsv1.DeploymentCondition{refused}
		}, time.Minute, about + hashes[1] + "; the Deployment controller cannot scale: policy sizes denies it"},
	} {
		w := newWorld(10, 3, 2, "1", "100%")
		w.records = []int{0}
		w.status = stored(engine.Decide(w.observe(), epoch).Status)
		w.brought = 1
		w.status = stored(engine.Decide(w.observe(), epoch).Status)
		o := w.observe()
		tc.edit(o.Deployment)
		d := engine.Decide(o, epoch.Add(tc.after))
		if d.Status.Reason != v1alpha1.ReasonTakingHold || d.Status.Message != tc.message || len(d.Actions) > 0 || tc.after < engine.Answers && d.Wait > engine.Answers-tc.after {
			t.Errorf("%s: %s: %s, wait %s, %v\nwant %s", tc.why, d.Status.Reason, d.Status.Message, d.Wait, d.Actions, tc.message)
		}
	}
}

// A plan that is deleted waits for no ReplicaSet that is being deleted: no status could say
// so. The native controller then takes that one for the new one, and keeps N − U. At 0
// replicas it has nothing to keep, and makes the pods when the deletion ends.
func TestDeletedReplicaSet_PlanDeleted(t *testing.T) {
	const begun = "quiet; bring 2; quiet; "
	for _, tc := range []struct {
		why, moves string
		least      int32 // of 10 pods; maxUnavailable is 1
	}{
		{"the stable one, and Git goes back", begun + "foreground 1; quiet; bring 1; run 5m; unplan; quiet", 9},
		{"the update one at a gate", begun + "approve 0; quiet; foreground 2; quiet; unplan; quiet", 9},
		{"the stable one at a gate", begun + "foreground 1; quiet; unplan; quiet", 9},
		{"the update one, at 0 replicas, and back", begun + "foreground 2; quiet; scale 0; unplan; quiet; scale 10; quiet", 0},
	} {
		c := newCluster(ten())
		for _, move := range strings.Split(tc.moves, "; ") {
			c.exec(move)
		}
		available := func() (n int32) {
			for _, i := range c.live() {
				n += c.sets[i].rs.Status.AvailableReplicas
			}
			return n
		}
		if n := available(); n < tc.least || c.held() || len(c.records) > 0 {
			t.Errorf("%s: %d of 10 pods are available, want %d, and nothing of the plan\n%s", tc.why, n, tc.least, c)
		}
		c.exec("gone")
		c.exec("quiet")
		if active, _ := c.active(); available() != 10 || len(active) != 1 {
			t.Errorf("%s: once the deletion has ended %d of 10 pods are available\n%s", tc.why, available(), c)
		}
	}
}
