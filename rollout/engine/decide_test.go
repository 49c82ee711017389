package engine_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// at returns a world in which a release of v2 stands at a step in a state, with new pods
// of v2 available. Its decision is at a time after the step's state began.
func at(step int32, state v1alpha1.StepState, new int32, plan ...v1alpha1.Step) *world {
	w := newWorld(10, 3, 2)
	w.spec.Strategy.Steps = plan
	w.brought, w.template, w.held, w.paused, w.recreate = 1, 1, true, true, true
	w.records, w.releasing = []int{0}, []int{1}
	w.sets[0] = replicaSet{exists: true, size: 10 - new, ready: 10 - new, statusReady: 10 - new, observed: true, desired: 10, maximum: 13}
	w.sets[1] = replicaSet{exists: true, size: new, ready: new, statusReady: new, observed: true, desired: 10, maximum: 13}
	start := metav1.NewTime(epoch)
	w.status = v1alpha1.BatchReleaseStatus{
		Phase: v1alpha1.PhaseRollingUpdate, CurrentStepIndex: step, CurrentStepState: state,
		CurrentStepReplicas: &plan[step].Replicas, UpdateRevision: hashes[1], UpdateCommit: commitOf(1), StableRevision: hashes[0],
		StepStateTime: &start, ProgressTime: &start, BestAvailableReplicas: new,
	}
	if state == v1alpha1.StepBlocking {
		w.status.CurrentStepTarget = new
	}
	return w
}

func steps(replicas ...string) []v1alpha1.Step {
	plan := make([]v1alpha1.Step, len(replicas))
	for i, r := range replicas {
		plan[i].Replicas = intstr.Parse(r)
	}
	return plan
}

func TestGates(t *testing.T) {
	pausing := steps("20%", "50%", "100%")
	pausing[0].Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: 10 * time.Minute}}
	approval := func(revision, commit string, step int32) func(*world, *engine.Observed) {
		return func(_ *world, o *engine.Observed) {
			o.Release.Spec.Approval = &v1alpha1.Approval{Revision: revision, Commit: commit, Step: step}
		}
	}
	for _, tc := range []struct {
		name, why string
		plan      []v1alpha1.Step
		edit      func(*world, *engine.Observed)
		after     time.Duration
		step      int32
		state     v1alpha1.StepState
		reason    string
		wait      time.Duration
		event     string // that must be sent, if set
	}{
		{name: "nobody has approved", why: "a gate without a pause waits for ever", plan: steps("20%", "50%", "100%"), after: time.Hour,
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForApproval},
		{name: "approved", why: "revision, commit and step are this release's", plan: steps("20%", "50%", "100%"), edit: approval(hashes[1], commitOf(1), 0),
			step: 1, state: v1alpha1.StepUpgrade, reason: v1alpha1.ReasonUpgrading},
		{name: "approved by a short commit", why: "seven characters name a commit", plan: steps("20%", "50%", "100%"), edit: approval(hashes[1], commitOf(1)[:7], 0),
			step: 1, state: v1alpha1.StepUpgrade, reason: v1alpha1.ReasonUpgrading},
		{name: "too short a commit", why: "six characters do not name a commit", plan: steps("20%", "50%", "100%"), edit: approval(hashes[1], commitOf(1)[:6], 0),
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForApproval},
		{name: "approved without the commit", why: "a revision can come back, and must then be approved again", plan: steps("20%", "50%", "100%"), edit: approval(hashes[1], "", 0),
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForApproval},
		{name: "another revision", why: "an approval counts for one release (I5)", plan: steps("20%", "50%", "100%"), edit: approval(hashes[2], commitOf(1), 2),
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForApproval},
		{name: "another commit", why: "an approval counts for one release (I5)", plan: steps("20%", "50%", "100%"), edit: approval(hashes[1], commitOf(2), 2),
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForApproval},
		{name: "approved ahead of time", why: "up to and including a later step", plan: steps("20%", "50%", "100%"), edit: approval(hashes[1], commitOf(1), 5),
			step: 1, state: v1alpha1.StepUpgrade, reason: v1alpha1.ReasonUpgrading},
		{name: "approved in the cluster", why: "the state was written by a person", plan: steps("20%", "50%", "100%"),
			edit: func(_ *world, o *engine.Observed) { o.Release.Status.CurrentStepState = v1alpha1.StepCompleted },
			step: 1, state: v1alpha1.StepUpgrade, reason: v1alpha1.ReasonUpgrading},
		{name: "approved in the cluster, to be reviewed", why: "it counts when it is in Git", plan: steps("20%", "50%", "100%"),
			edit: func(_ *world, o *engine.Observed) {
				o.Release.Spec.ReviewApprovals, o.Release.Status.CurrentStepState = true, v1alpha1.StepCompleted
			},
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForReview},
		{name: "reviewed", why: "it is in Git now", plan: steps("20%", "50%", "100%"),
			edit: func(_ *world, o *engine.Observed) {
				o.Release.Spec.ReviewApprovals, o.Release.Status.RequestedApproval = true, &v1alpha1.RequestedApproval{}
				approval(hashes[1], commitOf(1), 0)(nil, o)
			},
			step: 1, state: v1alpha1.StepUpgrade, reason: v1alpha1.ReasonUpgrading},
		{name: "approved in the cluster where signatures count", why: "it would go round the signature", plan: steps("20%", "50%", "100%"),
			edit: func(_ *world, o *engine.Observed) {
				o.Release.Status.CurrentStepState, o.Release.Spec.RequireSignedApprovals = v1alpha1.StepCompleted, true
			},
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForApproval, event: v1alpha1.ReasonApprovalRefused},
		{name: "refused while there is no Deployment", why: "it would be in the status when the Deployment is back", plan: steps("20%", "50%", "100%"),
			edit: func(_ *world, o *engine.Observed) {
				o.Release.Status.CurrentStepState, o.Release.Spec.RequireSignedApprovals = v1alpha1.StepCompleted, true
				o.Deployment = nil
			},
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonDeploymentNotFound, wait: 10 * time.Minute, event: v1alpha1.ReasonApprovalRefused},
		{name: "refused during a pause", why: "the pause does not begin anew", plan: pausing, after: 4 * time.Minute,
			edit: func(_ *world, o *engine.Observed) {
				o.Release.Status.CurrentStepState, o.Release.Spec.RequireSignedApprovals = v1alpha1.StepCompleted, true
			},
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForPause, wait: 6 * time.Minute, event: v1alpha1.ReasonApprovalRefused},
		{name: "approved in Git where signatures count", why: "gitsync has checked that one", plan: steps("20%", "50%", "100%"),
			edit: func(_ *world, o *engine.Observed) {
				o.Release.Spec.RequireSignedApprovals = true
				approval(hashes[1], commitOf(1), 0)(nil, o)
			},
			step: 1, state: v1alpha1.StepUpgrade, reason: v1alpha1.ReasonUpgrading, event: v1alpha1.ReasonStepApproved},
		{name: "pausing", why: "the pause is not over", plan: pausing, after: 4 * time.Minute,
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForPause, wait: 6 * time.Minute},
		{name: "paused long enough", why: "the pause is over", plan: pausing, after: 10 * time.Minute,
			step: 1, state: v1alpha1.StepUpgrade, reason: v1alpha1.ReasonUpgrading},
		{name: "an approval shortens a pause", why: "a person has said so", plan: pausing, edit: approval(hashes[1], commitOf(1), 0), after: time.Minute,
			step: 1, state: v1alpha1.StepUpgrade, reason: v1alpha1.ReasonUpgrading},
		{name: "frozen", why: "nothing opens while the plan is paused", plan: pausing, after: time.Hour,
			edit: func(_ *world, o *engine.Observed) {
				o.Release.Spec.Paused = true
				approval(hashes[1], commitOf(1), 5)(nil, o)
			},
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonReleasePaused},
		{name: "a pod has failed at the gate", why: "a gate opens only for pods that are available", plan: pausing, after: time.Hour,
			edit: func(_ *world, o *engine.Observed) { o.ReplicaSets[1].Status.AvailableReplicas = 1 },
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonUpgrading},
		{name: "too many pods have failed at the gate", why: "the step is under way again, and has a deadline", plan: pausing, after: time.Hour,
			edit: func(_ *world, o *engine.Observed) { o.ReplicaSets[1].Status.AvailableReplicas = 0 },
			step: 0, state: v1alpha1.StepUpgrade, reason: v1alpha1.ReasonUpgrading, event: v1alpha1.ReasonPodsLost},
		{name: "the pods of a raised target are not there yet", why: "a Deployment that grows restarts neither the pause nor the step", plan: pausing, after: 5 * time.Minute,
			edit: func(_ *world, o *engine.Observed) {
				*o.Deployment.Spec.Replicas = 20
				*o.ReplicaSets[0].Spec.Replicas = 18 - 2
				*o.ReplicaSets[1].Spec.Replicas = 4
			},
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonUpgrading},
		{name: "the approval was for other steps", why: "the step that the gate leads to was edited since (I3)", plan: steps("20%", "50%", "100%"),
			edit: func(_ *world, o *engine.Observed) {
				a := v1alpha1.Approval{Revision: hashes[1], Commit: commitOf(1), Step: 0}
				o.Release.Spec.Approval = a.DeepCopy()
				a.Steps = []intstr.IntOrString{intstr.FromString("20%"), intstr.FromString("30%"), intstr.FromString("100%")}
				o.Release.Status.Approval = &v1alpha1.ObservedApproval{Approval: a}
			},
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForApproval},
		{name: "the release has ended before", why: "its approvals have had their effect (I5)", plan: steps("20%", "50%", "100%"),
			edit: func(w *world, o *engine.Observed) {
				approval(hashes[1], commitOf(1), 0)(w, o)
				o.Release.Status.EndedReleases = []v1alpha1.ReleaseName{{Revision: hashes[1], Commit: commitOf(1)}}
			},
			step: 0, state: v1alpha1.StepBlocking, reason: v1alpha1.ReasonWaitingForApproval},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := at(0, v1alpha1.StepBlocking, 2, tc.plan...)
			o := w.observe()
			if tc.edit != nil {
				tc.edit(w, &o)
			}
			d := engine.Decide(o, epoch.Add(tc.after))
			if tc.reason == v1alpha1.ReasonUpgrading {
				tc.wait = 150 * time.Second // the deadline runs, and a quarter of it is the time to say so
			}
			if s := d.Status; s.CurrentStepIndex != tc.step || s.CurrentStepState != tc.state || s.Reason != tc.reason || d.Wait != tc.wait {
				t.Errorf("%s: step %d %s %s, wait %s; want step %d %s %s, wait %s", tc.why,
					s.CurrentStepIndex, s.CurrentStepState, s.Reason, d.Wait, tc.step, tc.state, tc.reason, tc.wait)
			}
			if told := func(e engine.Event) bool { return e.Reason == tc.event }; tc.event != "" && !slices.ContainsFunc(d.Events, told) {
				t.Errorf("%s: no event %s in %v", tc.why, tc.event, d.Events)
			}
			if len(d.Actions) > 0 {
				t.Errorf("a round that opens a gate, or waits at it, writes sizes: %v", d.Actions)
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	const deadline = 600 * time.Second
	for _, tc := range []struct {
		name, why string
		after     time.Duration
		policy    v1alpha1.FailurePolicy
		edit      func(*engine.Observed)
		reason    string
		failed    bool
		stalled   bool
	}{
		{name: "in time", why: "a second is left", after: deadline - time.Second, reason: v1alpha1.ReasonUpgrading},
		{name: "missed, hold", why: "stops and says so", after: deadline, policy: v1alpha1.FailureHold, reason: v1alpha1.ReasonProgressDeadlineExceeded, stalled: true},
		{name: "missed, rollback", why: "goes back, and remembers", after: deadline, policy: v1alpha1.FailureRollback, reason: v1alpha1.ReasonRollingBack, failed: true},
		{name: "a new best", why: "the deadline runs from the last new best", after: deadline, policy: v1alpha1.FailureRollback,
			edit: func(o *engine.Observed) { o.Release.Status.BestAvailableReplicas = 0 }, reason: v1alpha1.ReasonUpgrading},
		{name: "as many as before", why: "pods that come and go do not extend it", after: deadline, policy: v1alpha1.FailureRollback,
			edit: func(o *engine.Observed) { o.Release.Status.BestAvailableReplicas = 1 }, reason: v1alpha1.ReasonRollingBack, failed: true},
		{name: "paused", why: "time while paused does not count", after: 10 * deadline, policy: v1alpha1.FailureRollback,
			edit: func(o *engine.Observed) { o.Release.Spec.Paused = true }, reason: v1alpha1.ReasonReleasePaused},
		{name: "just unpaused", why: "time while paused does not count", after: 10 * deadline, policy: v1alpha1.FailureRollback,
			edit: func(o *engine.Observed) { o.Release.Status.Reason = v1alpha1.ReasonReleasePaused }, reason: v1alpha1.ReasonUpgrading},
		{name: "on the way back", why: "there is nowhere else to go", after: deadline, policy: v1alpha1.FailureRollback,
			edit: func(o *engine.Observed) {
				o.Release.Status.RollingBack = true
				o.Release.Status.CurrentStepIndex, o.Release.Status.CurrentStepReplicas = 1, ptr.To(intstr.FromString("100%"))
			}, reason: v1alpha1.ReasonProgressDeadlineExceeded, stalled: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := at(0, v1alpha1.StepUpgrade, 2, steps("20%", "100%")...)
			w.sets[1].ready, w.sets[1].statusReady, w.sets[1].pending = 1, 1, 1
			w.spec.Strategy.OnFailure = tc.policy
			w.status.BestAvailableReplicas = 1
			o := w.observe()
			if tc.edit != nil {
				tc.edit(&o)
			}
			d := engine.Decide(o, epoch.Add(tc.after))
			stalled := false
			for _, c := range d.Status.Conditions {
				stalled = stalled || c.Type == v1alpha1.ConditionStalled && c.Status == metav1.ConditionTrue
			}
			if d.Status.Reason != tc.reason || (d.Status.FailedRevision != "") != tc.failed || stalled != tc.stalled {
				t.Errorf("%s: %s, failed %q, stalled %t: %s", tc.why, d.Status.Reason, d.Status.FailedRevision, stalled, d.Status.Message)
			}
		})
	}
}

// The same input gives the same output, and is not changed. Only a hold that another
// field manager has opened is put back before the native controller has seen what is
// there. The native controller is about to act on that.
func TestHoldWaits(t *testing.T) {
	hold := "[hold at template " + hashes[1] + " remember the template of " + hashes[1] + " as written]"
	for _, tc := range []struct {
		because string
		edit    func(w *world)
		want    string
	}{
		{"the native controller has seen the template of others", func(w *world) { w.template = 2 }, hold},
		{"it has not: a hold is there, and nothing can happen", func(w *world) { w.template, w.observed = 2, 0 }, "[]"},
		{"it has not, and would begin to roll (H7)", func(w *world) { w.recreate, w.paused, w.observed = false, false, 0 }, hold},
		{"it has not, and would add pods (H7)", func(w *world) { w.recreate, w.observed = false, 0 }, hold},
		{"it has not, and would take the goal for saturated (H6)", func(w *world) { w.sets[1].size, w.observed = 10, 0 },
			"[put right the annotations of ReplicaSet web-" + hashes[1] + "]"},
		{"it has grown the goal to N, which is alone", func(w *world) { w.sets[0].size, w.sets[1].size, w.observed = 0, 10, 0 }, "[]"},
	} {
		w := at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...)
		tc.edit(w)
		if got := fmt.Sprint(engine.Decide(w.observe(), epoch).Actions); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.because, got, tc.want)
		}
	}
}

func TestDecideIsPure(t *testing.T) {
	w := at(1, v1alpha1.StepUpgrade, 2, steps("20%", "50%", "100%")...)
	o := w.observe()
	before := o.Release.DeepCopy()
	first, second := engine.Decide(o, epoch), engine.Decide(o, epoch)
	if len(first.Actions) == 0 || len(first.Actions) != len(second.Actions) {
		t.Fatalf("actions %v and %v", first.Actions, second.Actions)
	}
	for i := range first.Actions {
		if first.Actions[i].String() != second.Actions[i].String() {
			t.Errorf("action %d: %s and %s", i, first.Actions[i], second.Actions[i])
		}
	}
	if !equality.Semantic.DeepEqual(before, o.Release) {
		t.Error("Decide changed what it was given")
	}
}

// The engine and the packages in its folder stay pure by an import rule. A decision that
// could ask the clock or the cluster could not be explored, simulated or repeated.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.Lines(string(out)) {
		pkg = strings.TrimSpace(pkg)
		for _, banned := range []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/kustomize", "github.com/go-git"} {
			if strings.HasPrefix(pkg, banned) {
				t.Errorf("rollout/engine depends on %s: a decision that could ask the cluster could not be explored, simulated or repeated", pkg)
			}
		}
	}
	out, err = exec.Command("go", "list", "-f", "{{join .Imports \"\\n\"}}", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.Lines(string(out)) {
		switch strings.TrimSpace(pkg) {
		case "os", "log", "sync", "net", "context":
			t.Errorf("rollout/engine imports %s", strings.TrimSpace(pkg))
		}
	}
}

// A rollback that is asked for while one is under way is that one, and not
// another one further back.
func TestRollbackTwice(t *testing.T) {
	w := at(0, v1alpha1.StepUpgrade, 2, steps("20%", "100%")...)
	w.records = []int{0, 2} // v1 is stable, v3 was before
	w.brought, w.template = 0, 0
	w.status.RollingBack, w.status.UpdateRevision = true, hashes[0]
	w.status.CurrentStepIndex, w.status.CurrentStepReplicas = 1, ptr.To(intstr.FromString("100%"))
	o := w.observe()
	o.Release.Annotations = map[string]string{v1alpha1.AnnotationRollback: "true"}
	d := engine.Decide(o, epoch)
	if d.Status.UpdateRevision != hashes[0] || d.Status.FailedRevision != "" {
		t.Errorf("the way leads to %s, failed %q; want %s", d.Status.UpdateRevision, d.Status.FailedRevision, hashes[0])
	}
	if len(d.Actions) == 0 || d.Actions[0].String() != (engine.ClearRollback{}).String() {
		t.Errorf("actions %v", d.Actions)
	}
}

// N changes at a closed gate: the engine computes the split again at the step's
// proportion, in both directions, and to zero and back.
func TestScaling(t *testing.T) {
	for _, tc := range []struct {
		why      string
		step     int32
		to       []int32 // N, one after the other
		old, new int32
	}{
		{"twice as many", 0, []int32{20}, 16, 4},
		{"half as many: 20% of 5 is 1", 0, []int32{5}, 4, 1},
		{"a percentage below 100 is never all", 1, []int32{2}, 1, 1},
		{"50% of 7, rounded up", 1, []int32{7}, 3, 4},
		{"down and up again", 1, []int32{3, 10}, 5, 5},
		{"one pod: its surge lets both run", 0, []int32{1}, 1, 1},
		{"none: the native controller takes them away, at the stable template", 1, []int32{0}, 0, 0},
		{"to zero and back: not past the gate (H4)", 1, []int32{0, 10}, 5, 5},
		{"to zero and back to more", 0, []int32{0, 1, 30}, 24, 6},
	} {
		plan := steps("20%", "50%", "100%")
		w := at(tc.step, v1alpha1.StepBlocking, []int32{2, 5}[tc.step], plan...)
		for _, n := range tc.to {
			w.write(func() { w.scale(n) })
			for last := ""; w.key() != last; {
				last = w.key()
				w.goWell(t)
			}
		}
		if got := w.status; got.CurrentStepIndex != tc.step || got.CurrentStepState == v1alpha1.StepCompleted || w.sets[0].size != tc.old || w.sets[1].size != tc.new || len(w.fights) > 0 {
			t.Errorf("%s: N=10 to %v at step %d: %d old and %d new, want %d and %d; step %d %s, fights %v",
				tc.why, tc.to, tc.step, w.sets[0].size, w.sets[1].size, tc.old, tc.new, got.CurrentStepIndex, got.CurrentStepState, w.fights)
		}
	}
}

// The round that sees 0 replicas hands back, also if the release is to begin in it. With
// more replicas meanwhile all would come up on the update revision (H4).
func TestScalingToZero_AtOnce(t *testing.T) {
	for _, state := range []v1alpha1.StepState{v1alpha1.StepInitial, v1alpha1.StepUpgrade, v1alpha1.StepBlocking} {
		w := at(0, state, 0, steps("20%", "50%", "100%")...)
		w.write(func() { w.scale(0) })
		w.turnDeployment()
		d := engine.Decide(w.observe(), epoch)
		var template *corev1.PodTemplateSpec
		for _, a := range d.Actions {
			if a, ok := a.(engine.HandBack); ok {
				template = a.Template
			}
		}
		if !plan.EqualTemplate(template, templates[0]) {
			t.Errorf("%s: %v, want a hand-back at the stable template; %s: %s", state, d.Actions, d.Status.Reason, d.Status.Message)
		}
	}
}

// A Deployment is adopted when its native rollout has finished: the template of one
// that is stuck has not proved good. A commit with another template does not wait for
// it.
func TestAdopt(t *testing.T) {
	for _, tc := range []struct {
		why     string
		brought int // what spec.template says; the Deployment has v2, of which one pod never comes
		stuck   bool
		reason  string
		ready   metav1.ConditionStatus
		stable  string // that is put on record
	}{
		{"all pods run it", 1, false, v1alpha1.ReasonTakingHold, metav1.ConditionFalse, hashes[1]},
		{"it is waited for", 1, true, v1alpha1.ReasonNativeRollout, metav1.ConditionFalse, ""},
		{"the next release does not wait for it, and goes back to what is available", 2, true, v1alpha1.ReasonTakingHold, metav1.ConditionFalse, hashes[0]},
	} {
		w := newWorld(4, 1, 1, "1", "100%")
		w.template, w.brought = 1, tc.brought
		w.sets[0] = replicaSet{exists: true, observed: true}
		w.sets[1] = replicaSet{exists: true, size: 4, ready: 4, statusReady: 4, observed: true}
		if tc.stuck {
			w.sets[0] = replicaSet{exists: true, size: 3, ready: 3, statusReady: 3, observed: true}
			w.sets[1] = replicaSet{exists: true, size: 2, stuck: 2, observed: true}
		}
		d := engine.Decide(w.observe(), epoch)
		var recorded string
		for _, a := range d.Actions {
			if r, ok := a.(engine.Remember); ok {
				recorded = r.Record.Revision
			}
		}
		ready := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionReady)
		if d.Status.Reason != tc.reason || ready.Status != tc.ready || recorded != tc.stable {
			t.Errorf("%s: %s, Ready %s, %q on record; want %s, %s, %q", tc.why, d.Status.Reason, ready.Status, recorded, tc.reason, tc.ready, tc.stable)
		}
	}
}

// A plan that brings back what ran before a native rollout does not wait for that once it
// has it on record. The API server is not asked for its template any more.
func TestAdopt_Recorded(t *testing.T) {
	w := newWorld(4, 1, 1, "1", "100%")
	w.template, w.brought, w.records = 1, 0, []int{0}
	w.sets[0] = replicaSet{exists: true, size: 3, ready: 3, statusReady: 3, observed: true}
	w.sets[1] = replicaSet{exists: true, size: 2, stuck: 2, observed: true}
	w.status.Reason = v1alpha1.ReasonTakingHold
	o := w.observe()
	o.Release.Spec.Template, o.Template = templates[0], nil
	for i := range o.Records {
		o.Records[i].Sent = plan.TemplateDigest(templates[0])
	}
	if d := engine.Decide(o, epoch); d.Status.Reason != v1alpha1.ReasonRollingBack {
		t.Errorf("%s: %s, want %s", d.Status.Reason, d.Status.Message, v1alpha1.ReasonRollingBack)
	}
}

// The message of a gate says how many pods run the update revision once it is approved.
// An edit may have made that number smaller than the one that runs it.
func TestGates_Message(t *testing.T) {
	for _, tc := range []struct {
		why    string
		step   int32
		plan   []string
		edited []string
		surge  int32
		says   string
		then   int32 // pods of the update revision, once approved
	}{
		{"the next step", 0, []string{"20%", "50%", "100%"}, nil, 3, "2 of 10 pods run %s; approve step 0 to go on to 5", 5},
		{"the last step", 1, []string{"20%", "50%", "100%"}, nil, 3, "5 of 10 pods run %s; approve step 1 to go on to 10", 10},
		{"the present step was raised", 0, []string{"20%", "100%"}, []string{"80%", "100%"}, 3, "2 of 10 pods run %s; approve step 0 to go on to 8, and then to 10", 10},
		{"it was raised to all, without surge", 0, []string{"20%", "100%"}, []string{"10", "10", "100%"}, 0,
			"2 of 10 pods run %s; approve step 0 to go on to 9", 9},
		{"all steps but the last were lowered", 0, []string{"50%", "100%"}, []string{"1", "2", "100%"}, 3, "5 of 10 pods run %s; approve step 0 to go on to 2, fewer than run it now", 2},
		{"the next step has as many", 0, []string{"50%", "100%"}, []string{"1", "5", "100%"}, 3, "5 of 10 pods run %s; approve step 0 to go on to 5", 5},
		{"without surge one other pod stays before the last step", 0, []string{"20%", "10", "100%"}, nil, 0, "2 of 10 pods run %s; approve step 0 to go on to 9", 9},
	} {
		runs := map[string]int32{"20%": 2, "50%": 5}[tc.plan[tc.step]]
		w := at(tc.step, v1alpha1.StepBlocking, runs, steps(tc.plan...)...)
		w.surge = tc.surge
		if tc.edited != nil {
			w.spec.Strategy.Steps = steps(tc.edited...)
		}
		w.status.OpenedReplicas = []intstr.IntOrString{intstr.Parse(tc.plan[tc.step])}
		w.approved = -1
		w.settle(t)
		if want := fmt.Sprintf(tc.says, hashes[1]); w.status.Message != want {
			t.Errorf("%s: %q, want %q", tc.why, w.status.Message, want)
		}
		w.approved = w.status.CurrentStepIndex
		w.settle(t)
		if w.sets[1].size != tc.then {
			t.Errorf("%s: %d pods run it once it is approved, want %d", tc.why, w.sets[1].size, tc.then)
		}
	}
}

// A Deployment that is being deleted is not said to be missing, and its deletion
// not to be under way for ever.
func TestDeploymentGone(t *testing.T) {
	for _, tc := range []struct {
		why     string
		edit    func(*engine.Observed)
		after   time.Duration
		message string
		wait    time.Duration
		stalled bool
	}{
		{"there is none", func(o *engine.Observed) { o.Deployment = nil }, time.Hour, "there is no Deployment /web", 10 * time.Minute, false},
		{"there is none for longer than the deadline", func(o *engine.Observed) {
			o.Deployment, o.Release.Status.Reason, o.Release.Status.ReasonTime = nil, v1alpha1.ReasonDeploymentNotFound, &metav1.Time{Time: epoch}
		}, time.Hour, "there is no Deployment /web; this has taken longer than 10m0s: create the Deployment, or correct spec.workloadRef", 0, true},
		{"a foreground deletion waits for the pods", nil, 9 * time.Minute, "Deployment shop/web is being deleted", time.Minute, false},
		{"a pod of a foreground deletion stays", nil, 10 * time.Minute,
			"Deployment shop/web is being deleted; this has taken longer than 10m0s: it waits until its ReplicaSets and their pods are gone, see the finalizers of those", 0, true},
		{"a ReplicaSet of a foreground deletion stays", func(o *engine.Observed) {
			rs := o.ReplicaSets[0]
			rs.Name, rs.DeletionTimestamp, rs.Finalizers = "web-old", &metav1.Time{Time: epoch}, []string{"foregroundDeletion"}
		}, 10 * time.Minute,
			"Deployment shop/web is being deleted; ReplicaSet web-old is being deleted and kept by finalizers foregroundDeletion; " +
				"this has taken longer than 10m0s: it waits until its ReplicaSets and their pods are gone, see the finalizers of those", 0, true},
		{"a finalizer stays", func(o *engine.Observed) { o.Deployment.Finalizers = []string{"example.org/a"} }, 10 * time.Minute,
			"Deployment shop/web is being deleted; this has taken longer than 10m0s: see its finalizers, example.org/a", 0, true},
		{"both stay", func(o *engine.Observed) { o.Deployment.Finalizers = []string{"foregroundDeletion", "example.org/a"} }, 10 * time.Minute,
			"Deployment shop/web is being deleted; this has taken longer than 10m0s: see its finalizers, example.org/a; it waits until its ReplicaSets and their pods are gone, see the finalizers of those", 0, true},
	} {
		w := at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...)
		o := w.observe()
		deleted := metav1.NewTime(epoch)
		o.Deployment.DeletionTimestamp, o.Deployment.Finalizers = &deleted, []string{"foregroundDeletion"}
		if tc.edit != nil {
			tc.edit(&o)
		}
		d := engine.Decide(o, epoch.Add(tc.after))
		stalled, ready := meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionStalled), meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionReady)
		if d.Status.Reason != v1alpha1.ReasonDeploymentNotFound || d.Status.Message != tc.message || d.Wait != tc.wait || stalled != tc.stalled || ready || len(d.Actions) > 0 {
			t.Errorf("%s: %s: %q, wait %s, stalled %t, ready %t, %v", tc.why, d.Status.Reason, d.Status.Message, d.Wait, stalled, ready, d.Actions)
		}
	}
}

// The plan has bounds that the API server takes on no Deployment, at any moment of a
// release. It stands still and says so, before the hold and under it. With bounds that
// are rounded to 0 it goes on.
func TestRefusedBounds(t *testing.T) {
	for _, tc := range []struct {
		surge, unavailable string
		why                string // a part of the message; empty: it goes on
	}{
		{"0", "0", "may not both be 0"},
		{"0%", "0", "may not both be 0"},
		{"0", "0%", "may not both be 0"},
		{"-1", "1", "negative"},
		{"1", "-1", "negative"},
		{"0", "150%", "more than 100%"},
		{"0", "1%", ""},
		{"0", "1", ""},
		{"150%", "0", ""},
		{"1", "15", ""},
	} {
		for name, w := range map[string]*world{
			"at a gate":     at(0, v1alpha1.StepBlocking, 2, steps("20%", "100%")...),
			"under way":     at(0, v1alpha1.StepUpgrade, 1, steps("20%", "100%")...),
			"before a hold": newWorld(10, 3, 2, "20%", "100%"),
		} {
			if name == "before a hold" {
				w.status = stored(engine.Decide(w.observe(), epoch).Status)
				w.brought = 1
			}
			o := w.observe()
			surge, unavailable := intstr.Parse(tc.surge), intstr.Parse(tc.unavailable)
			o.Release.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable},
			}
			d := engine.Decide(o, epoch)
			refused := d.Status.Reason == v1alpha1.ReasonUnsupportedStrategy && len(d.Actions) == 0 && strings.Contains(d.Status.Message, tc.why)
			if refused != (tc.why != "") {
				t.Errorf("%s, %s/%s: %s: %s; %v", name, tc.surge, tc.unavailable, d.Status.Reason, d.Status.Message, d.Actions)
			}
		}
	}
}

// The plan gets such bounds when a Deployment is held and no pod of the release is there. The
// hold ends, with bounds that the API server takes.
func TestRefusedBounds_HandBack(t *testing.T) {
	zero := intstr.FromInt32(0)
	for name, n := range map[string]int32{"before the first pod": 10, "without replicas": 0} {
		w := at(0, v1alpha1.StepUpgrade, 0, steps("20%", "100%")...)
		w.n, w.sets[1] = n, replicaSet{}
		w.sets[0] = replicaSet{exists: n > 0, size: n, ready: n, statusReady: n, observed: true, desired: n, maximum: n + 3}
		o := w.observe()
		o.Release.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &zero, MaxUnavailable: &zero},
		}
		ended := false
		for _, a := range engine.Decide(o, epoch).Actions {
			if h, ok := a.(engine.HandBack); ok {
				ended = true
				if r := h.Strategy.RollingUpdate; r.MaxSurge.String() != "25%" || r.MaxUnavailable.String() != "25%" {
					t.Errorf("%s: it hands back maxSurge %s and maxUnavailable %s", name, r.MaxSurge, r.MaxUnavailable)
				}
			}
		}
		if !ended {
			t.Errorf("%s: it hands nothing back", name)
		}
	}
}
