package engine

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// ten is a Deployment of ten pods that is released in three steps.
func ten(edits ...func(*setup)) setup {
	s := setup{n: 10, surge: intstr.FromInt32(2), unavailable: intstr.FromInt32(1), steps: "1 50% 100%", deadline: 600, onFailure: v1alpha1.FailureHold, history: 10}
	for _, edit := range edits {
		edit(&s)
	}
	return s
}

// of is a Deployment of n pods.
func of(n, surge, unavailable int32, steps string, edits ...func(*setup)) setup {
	s := ten(edits...)
	s.n, s.surge, s.unavailable, s.steps = n, intstr.FromInt32(surge), intstr.FromInt32(unavailable), steps
	return s
}

func stepped(steps string) func(*setup) { return func(s *setup) { s.steps = steps } }
func admits(a admission) func(*setup)   { return func(s *setup) { s.admission = a } }
func altersSets(a admission) func(*setup) {
	return func(s *setup) { s.setAdmission = a }
}
func rollsBack(s *setup)   { s.onFailure = v1alpha1.FailureRollback }
func ownStrategy(s *setup) { s.ownStrategy = true }
func late(deadline, ready int32) func(*setup) {
	return func(s *setup) { s.deadline, s.minReady = deadline, ready }
}

// TestScenarios are move sequences, each of which has broken a rule once, or
// might. A violation names the rule and prints the state before and after.
// After its moves every scenario must end (I14).
func TestScenarios(t *testing.T) {
	const begun = "quiet; bring 2; quiet; " // it waits at the gate of step 0, with one pod of v2
	for _, tc := range []struct {
		name, why string
		setup     setup
		moves     string
	}{
		{"plain", "a release with approvals ends", ten(), begun + "approve 0; quiet; approve 1; quiet"},
		{"pauses", "a release with pauses ends by itself", ten(stepped("1/10m 50%/1h 100%")), begun},
		{"same template by another commit at the last step", "nothing grows before its own gates open",
			ten(), begun + "approve 1; round; turns; round; turns; round; turns; round; turns; round; turns; round; turns; round; recommit"},
		{"same template by another commit at a gate", "an approval of the first commit opens no gate of the second",
			ten(), begun + "approve 0; quiet; recommit; quiet"},
		{"same template by another commit while the first is under way", "the first commit's gate was at 5 of 10",
			ten(), begun + "approve 0; round; turns; round; recommit; quiet"},
		{"an approval that names no steps, and another plan", "it is for the plan that was there",
			ten(func(s *setup) { s.byHand = true }), begun + "approve 0; steps 1 90% 100%; quiet"},
		{"an approval of another plan", "after an edit it is given again", ten(), begun + "steps 1 20% 100%; approve 0; steps 1 90% 100%; quiet"},
		{"an edit inserts a step", "it goes on at the gate that it was at", ten(), begun + "approve 0; quiet; steps 1 50% 70% 100%; quiet"},
		{"an edit removes the steps between", "an edit does not finish a release", ten(), begun + "approve 0; quiet; steps 1 100%; quiet"},
		{"an edit raises the step that is done", "pods that are there may stay, none is added", ten(), begun + "steps 80% 100%; round; turns; approve 0; quiet; steps 90% 100%; quiet"},
		{"an edit lowers the step", "pods that are there may stay, none is added", ten(), begun + "approve 0; quiet; steps 1 20% 100%; quiet"},
		{"an edit lowers the step under way", "pods that are there may stay, none is added", ten(), begun + "approve 0; round; round; steps 1 20% 100%; quiet"},
		{"an edit lowers all steps but the last", "the gate before the last step is asked", ten(), begun + "approve 0; quiet; steps 1 2 3 100%; quiet"},
		{"another plan with a lower step takes over", "it hands over opened gates", ten(), begun + "approve 0; quiet; rename; steps 1 20% 100%; quiet"},
		{"another plan without steps between takes over", "a renaming opens no gate", ten(), begun + "approve 0; quiet; rename; steps 1 100%; quiet; rename; quiet"},
		{"N shrinks and the plan is edited while the controller is down", "what ran is not what was allowed",
			ten(), begun + "approve 0; quiet; scale 5; steps 1 3 100%; down 1h; quiet; scale 10; quiet"},
		{"N shrinks to what runs and grows again while the controller is down", "to one and back without passing the gate",
			ten(), begun + "scale 1; native; sets 1; sets 2; down 1h; steps 1 50% 100%; scale 10; quiet"},
		{"to zero and back at the gate", "without passing it", ten(), begun + "scale 0; quiet; scale 10; quiet"},
		{"pods crash at the gate", "the deadline runs, and it says so", ten(), begun + "break 2; quiet"},
		{"pods crash at the gate during a pause", "a pause is one of available pods", ten(stepped("2/1h 50% 100%")), begun + "break 2; break 2; run 25m; quiet"},
		{"pods crash at the gate, and roll back", "the failure is the pods' own", ten(rollsBack), begun + "break 2; quiet"},
		{"the step is completed in status, and its pods are lost", "the deadline runs, and it says so",
			ten(), "quiet; bring 2; run 1s; complete; turns; evict 2; quiet"},
		{"a deadline of 68 years and minReadySeconds", "the sum is more than 32 bits", ten(late(2147483647, 30)), begun},
		{"a deadline of 68 years rolls back", "the sum is more than 32 bits", ten(late(2147483647, 30), rollsBack), begun},
		{"pods are evicted", "a healthy revision does not roll back", ten(rollsBack), begun + "evict 2; quiet"},
		{"pods cannot be scheduled", "a healthy revision does not roll back", ten(rollsBack), "quiet; fate 2 unschedulable; bring 2; quiet"},
		{"a quota is used up", "a healthy revision does not roll back", ten(rollsBack), "quiet; quota 10; bring 2; quiet"},
		{"N is raised beyond what can be scheduled", "a healthy revision does not roll back",
			ten(rollsBack, stepped("50% 100%")), begun + "fate 1 unschedulable; fate 2 unschedulable; scale 20; quiet"},
		{"pods never come", "it says that the deadline is over", ten(), "quiet; fate 2 never; bring 2; quiet"},
		{"pods never come, and roll back", "the failure is the pods' own", ten(rollsBack), "quiet; fate 2 never; bring 2; quiet"},
		{"admission mutates always", "a mutation starts nothing", ten(admits(mutatesAlways)), begun + "approve 1; quiet; bring 1; quiet"},
		{"admission mutates since the release began", "a mutation starts nothing", ten(admits(mutatesSince)), begun + "admit; scale 8; quiet; approve 1; quiet"},
		{"admission mutates since before the release", "a mutation starts nothing", ten(admits(mutatesSince)), "quiet; admit; bring 2; quiet; approve 1; quiet"},
		{"admission mutates since the hold", "the answer of the dry run is old", ten(admits(mutatesSince)), "quiet; bring 2; round; admit; round; quiet; approve 1; quiet"},
		{"admission mutates since the release ended", "a mutation starts nothing", ten(admits(mutatesSince)), begun + "approve 1; quiet; admit; down 1m; quiet; recommit; quiet"},
		{"admission mutates outside dry runs", "a mutation starts nothing", ten(admits(mutatesNotDry)), begun + "approve 1; quiet; bring 1; quiet"},
		{"a crash between hold and record", "the mutated template is not in the record", ten(admits(mutatesNotDry)), "quiet; bring 2; round; crash 1; quiet"},
		{"the stable ReplicaSet is scaled to 0", "no write of ours leaves one active (H26)", ten(), begun + "approve 0; quiet; resize 1 0; round; turns; quiet"},
		{"the stable ReplicaSet is scaled to 0 before the native controller looks", "no write of ours leaves one active (H26)",
			ten(), begun + "approve 0; quiet; resize 1 0; round; round; native; quiet"},
		{"the stable ReplicaSet is edited", "its pods are of no known revision", ten(), begun + "edit 1; quiet"},
		{"the stable ReplicaSet is edited before the first pod", "the update revision is not the only one then", ten(), "quiet; bring 2; round; round; native; round; edit 1; quiet"},
		{"the stable ReplicaSet is deleted", "no write of ours leaves one active (H26)", ten(), begun + "delete 1; round; turns; quiet"},
		{"the stable ReplicaSet is deleted before the first pod", "the update revision is not the only one then", ten(), "quiet; bring 2; round; round; native; round; delete 1; quiet"},
		{"the stable ReplicaSet is being deleted between releases", "another one takes its place, and the gates hold",
			ten(), "quiet; foreground 1; quiet; bring 2; quiet; approve 0; quiet; approve 1; quiet"},
		{"the same, and its finalizers end under the hold", "two stay active (H26)", ten(), "quiet; foreground 1; quiet; bring 2; quiet; gone; quiet; approve 0; quiet"},
		{"the same without surge", "the sum of sizes stays N", of(10, 0, 1, "1 50% 100%"), "quiet; foreground 1; quiet; bring 2; quiet; approve 0; quiet; gone; quiet"},
		{"the same without pods that may be missing", "the sum of sizes stays within N and the surge", of(10, 1, 0, "1 50% 100%"), "quiet; foreground 1; quiet; bring 2; quiet; approve 0; quiet"},
		{"the same of one pod", "it goes on", of(1, 1, 0, "1 100%"), "quiet; foreground 1; quiet; bring 2; quiet; approve 0; quiet"},
		{"the same of one pod without surge", "the native controller waits for the deletion, too", of(1, 0, 1, "1 100%"), "quiet; foreground 1; quiet; bring 2; quiet; approve 0; quiet"},
		{"the same, and its pods stay", "they count within N and the surge", ten(), "quiet; hostage 1; quiet; bring 2; quiet; approve 0; quiet"},
		{"the same, and a rollback is asked for", "it goes back to another ReplicaSet", ten(), "quiet; foreground 1; quiet; bring 2; quiet; rollback; quiet; gone; quiet"},
		{"the stable ReplicaSet is being deleted after a release, and Git goes back", "the last stable one comes up",
			ten(), begun + "approve 1; quiet; foreground 2; quiet; bring 1; quiet; gone; quiet"},
		{"the stable ReplicaSet is being deleted under the hold", "another one takes its place", ten(), begun + "foreground 1; quiet; approve 0; quiet; gone; quiet; approve 1; quiet"},
		{"the stable ReplicaSet is being deleted under the hold, and its pods stay", "they count within N and the surge", ten(), begun + "hostage 1; quiet; approve 0; quiet"},
		{"the stable ReplicaSet is being deleted under the hold, and Git goes back", "the hand-back waits for the deletion", ten(), begun + "foreground 1; bring 1; quiet; gone; quiet"},
		{"the update ReplicaSet is being deleted", "another one takes its place, within the step", ten(), begun + "foreground 2; quiet; approve 0; quiet; approve 1; quiet"},
		{"the update ReplicaSet is being deleted, and its pods stay", "within the step", ten(), begun + "approve 0; quiet; hostage 2; quiet"},
		{"what is released again is being deleted", "the hand-back waits for the deletion", ten(), begun + "approve 1; quiet; foreground 1; quiet; bring 1; quiet; approve 1; quiet; gone; quiet"},
		{"the stable ReplicaSet is being deleted under the hold before the first pod, its pods stay, and Git goes back", "it is not taken for saturated (H6)",
			of(3, 1, 1, "1/30s 50% 100%"), "quiet; bring 3; round; round; hostage 1; bring 1; quiet; gone; quiet"},
		{"the same, and a second writer scales it to 0", "one pod above what there is makes the safe region (H26)", ten(), "quiet; hostage 1; resize 1 0; bring 3; quiet"},
		{"both ReplicaSets are being deleted", "both are made again", ten(), begun + "foreground 1; foreground 2; quiet; approve 0; quiet"},
		{"the update ReplicaSet is edited", "it is made again, within the step", ten(), begun + "edit 2; quiet"},
		{"the update ReplicaSet is deleted", "it is made again, within the step", ten(), begun + "delete 2; quiet"},
		{"the Deployment is read late after the hand-back", "no second hand-back, no hold",
			ten(stepped("100%")), "quiet; bring 2; round; round; turns; round; lag deployment; round; round; round; deliver; quiet"},
		{"the Deployment is read as before the hand-back at the end", "the release is over",
			ten(stepped("100%")), "quiet; bring 2; run 1s; turns; run 1s; turns; run 1s; turns; run 1s; turns; run 1s; turns; run 1s; turns; lag deployment; run 1m; deliver; quiet"},
		{"the Deployment is read as before its hold", "the strategy of the manifest is not the hold's",
			ten(ownStrategy), "quiet; bring 2; round; lag deployment; round; round; round; deliver; quiet"},
		{"the label is taken off", "the hold is found again", ten(), begun + "label; quiet"},
		{"the label is taken off, and only the Deployment has its strategy", "the hold's strategy is not the manifest's", ten(ownStrategy), begun + "label; quiet"},
		{"the hold is unpaused", "no write of ours leaves one active (H8, H26)", ten(), begun + "running; turns; quiet"},
		{"the strategy of the hold is changed", "it is put back (H7)", ten(), begun + "strategy; turns; quiet"},
		{"the template of the hold is changed", "it is put back", ten(), begun + "template 3; turns; quiet"},
		{"the Deployment is deleted and made again", "the release waits at its gate", ten(), begun + "approve 0; quiet; undeploy; round; deploy; quiet"},
		{"status is lost at the gate", "a lost status is safe", ten(), begun + "approve 0; quiet; losestatus; quiet"},
		{"status is lost in the middle of the first step, and the plan is edited to one step at once", "what is not remembered opens nothing",
			of(12, 6, 1, "10%/0s 50% 100%", rollsBack), "quiet; bring 2; round; round; native; round; round; losestatus; turns; steps 100%"},
		{"status is lost at the gate, and the first step is raised at once", "what is not remembered opens nothing", ten(), begun + "losestatus; steps 80% 100%; quiet; approve 0; quiet"},
		{"status is lost at the gate, N has shrunk to what runs, and the plan is edited to one step", "as many pods as there are replicas are not all that may come",
			ten(), begun + "approve 0; quiet; scale 5; losestatus; steps 100%; down 1h; quiet; scale 10; quiet"},
		{"the plan is deleted before admission comes, the controller ends while it lets go, and the plan is made again", "of two records of what was sent, the stable one that runs counts",
			of(5, 2, 0, "100%", late(600, 10), rollsBack, admits(mutatesSince)), "bring 3; round; round; round; admit; unplan; fail 2; quiet; replan"},
		{"N shrinks to what has been superseded and the release that is brought again, and no stable pod is left", "the goal is not alone below N (H1)",
			ten(stepped("50% 2 100%"), func(s *setup) {
				s.n, s.surge, s.unavailable, s.history, s.byHand = 6, intstr.FromString("25%"), intstr.FromString("50%"), 1, true
			}),
			"scale 3; turns; bring 3; round; round; round; native; round; round; turns; round; turns; break 1; bring 2; run 11m; scale 2; bring 3; run 5m"},
		{"the plan is edited before the first pod as admission makes it, and one as it was is there", "no edit adds to what is there",
			of(2, 1, 2, "1 3 100%", admits(mutatesSince), ownStrategy, func(s *setup) { s.history, s.signed = 0, true }),
			"quiet; bring 2; round; round; native; admit; round; round; recommit; round; label; steps 100%"},
		{"a second writer brings up a ReplicaSet that a rollback left, admission comes, and its commit again", "no controller knows what those pods run",
			of(4, 1, 2, "1 50% 100%", rollsBack, admits(mutatesSince), ownStrategy, func(s *setup) { s.byHand = true }),
			"bring 2; run 11m; turns; run 11m; bring 3; admit; round; round; resize 2 1; forcepush 1"},
		{"the Deployment is deleted before the first pod of a release, and the plan is edited to one step", "it has no pods, and begins by its plan",
			of(4, 2, 2, "1 3 100%", rollsBack, admits(mutatesNotDry), ownStrategy, func(s *setup) { s.byHand = true }),
			"bring 2; round; round; round; steps 10%/0s 50% 100%; round; native; round; round; turns; recommit; round; undeploy; steps 100%"},
		{"a native rollout is stuck, its ReplicaSet is deleted, and N shrinks to what runs", "it says that the native controller is stuck",
			of(4, 2, 1, "20% 20% 60% 100%", ownStrategy, func(s *setup) { s.midway = 1 }), "delete 2; scale 3"},
		{"an edit raises the steps up to the one that it is at, N shrinks below, and that step is completed in status", "it is approved where it waits",
			of(5, 2, 2, "1 2 75%/5m 100%", admits(mutatesAlways), func(s *setup) { s.history, s.byHand = 1, true }),
			"quiet; bring 2; round; round; approve 2; turns; round; round; turns; round; steps 50% 2 100%; round; scale 4; complete"},
		{"status is lost with all pods updated", "a lost status is safe", ten(), begun + "approve 1; round; turns; round; turns; round; turns; losestatus; quiet"},
		{"the plan is deleted and made again", "what runs is not said to be ready before it is", ten(late(600, 10)), begun + "unplan; round; replan; quiet"},
		{"the plan is deleted and made again at once", "the hold is found again", ten(), begun + "unplan; replan; quiet"},
		{"the first commit again after a revert, with its approval", "a pair that has ended opens no gate again",
			ten(), begun + "approve 0; bring 1; quiet; forcepush 1; quiet"},
		{"the first commit again after another, with its approval", "a pair that has ended opens no gate again",
			ten(), begun + "approve 1; bring 3; quiet; forcepush 1; quiet"},
		{"reverted, and brought again by a new commit", "it must be approved again", ten(), begun + "approve 0; quiet; bring 1; quiet; bring 2; quiet"},
		{"paused with all pods updated after a rollback was asked for", "N is followed", ten(), begun + "approve 1; turns; round; turns; round; turns; round; rollback; round; pause; scale 12; quiet"},
		{"pods of the last step are lost, and come back after the deadline", "only the deadline kept the step from going on",
			of(3, 0, 1, "50%/1m 100%", late(2147483647, 10)),
			"bring 2; run 11m; ready 2; time 10s; turns; round; round; turns; run 5m; bring 1; run 1m; bring 2; run 1m; evict 2; round"},
		{"pods of the last step are lost during a change of N, and come back after the deadline", "only the deadline kept the step from going on",
			of(3, 0, 1, "50%/1m 100%", late(2147483647, 10)),
			"bring 2; run 11m; ready 2; time 10s; turns; round; round; turns; scale 4; run 1m; bring 2; run 1m; round; evict 2"},
		{"admission mutates since the pods of a release that comes again", "what was sent is the revision: two ReplicaSets of it stay within the gate",
			of(9, 1, 1, "1 100%", admits(mutatesSince)), "quiet; bring 2; quiet; recommit; run 1s; bring 1; round; round; native; round; admit; forcepush 1"},
		{"admission mutates since the pods of a release whose hold was changed", "what was sent is the revision: two ReplicaSets of it stay within the gate",
			ten(admits(mutatesSince)), begun + "approve 0; quiet; admit; template 3; turns; quiet"},
		{"the same without surge", "the stable ReplicaSet is whole again before the other one leaves",
			of(4, 0, 1, "1 100%", admits(mutatesSince)), begun + "admit; template 3; turns; quiet"},
		{"all pods run it when it begins, and are edited", "it has opened no gate of its own",
			of(2, 1, 1, "50% 100%"), begun + "approve 0; round; turns; round; turns; round; bring 2; round; edit 2"},
		{"one pod runs it when it begins, and N grows", "it begins at its first gate",
			of(1, 1, 0, "1 100%", late(600, 10)), "quiet; bring 2; round; round; turns; round; round; resize 1 0; bring 2; steps 1 50% 100%; round; scale 0"},
		{"a commit that a rollback went to comes again", "what has ended opens no gate again",
			ten(), begun + "bring 1; approve 5; quiet; bring 2; quiet; approve 2; quiet; bring 3; quiet; approve 2; quiet; forcepush 2; approve 2; quiet"},
		{"the plan is deleted and made again while records are read late", "the strategy is on record before the hold",
			of(4, 0, 1, "1 2 75%/5m 100%", ownStrategy), "bring 2; round; round; round; native; bring 1; lag records; round; round; bring 2; unplan; round; replan; turns; round; round"},
		{"the plan is made again in the middle of a native rollout", "what is available is stable",
			of(6, 3, 3, "1 2 75%/5m 100%", ownStrategy, late(600, 30)), "quiet; bring 2; round; round; native; round; round; resize 1 0; unplan; template 1; run 2m; replan; quiet"},
		{"the plan is made again in the middle of a native rollout, and goes back", "it does not wait for the rollout",
			of(6, 3, 1, "1 2 75%/5m 100%", ownStrategy, rollsBack, late(600, 10)), "bring 2; run 1m; unplan; round; replan; bring 1; turns; run 5m; bring 3; run 25m"},
		{"pods that may stay are not available", "the gate waits for those of its step", of(3, 1, 0, "1/30s 50% 100%"),
			"bring 3; round; round; round; native; round; round; turns; quota 4; scale 6; run 5m; steps 1 100%; quiet"},
		{"N shrinks to what a rollback finds", "the size that it is marked with is an old N (H6)",
			of(1, 1, 1, "10%/0s 50% 100%", late(60, 10)), "bring 2; run 5m; scale 3; bring 1; round; turns; round; scale 1; turns"},
		{"all pods run it when it begins, and N is 0 when the steps change", "a plan of one step is not remembered as an opened gate",
			of(3, 2, 0, "100%"), "round; scale 1; bring 3; turns; round; round; turns; round; round; turns; round; recommit; round; scale 0; steps 1 3 100%; round"},
		{"the plan is made again, and the hold is read as before its hand-back", "what the native controller rolls out is no lost record",
			of(2, 2, 0, "20% 20% 60% 100%", late(600, 30)), "round; bring 2; round; round; evict 1; native; round; round; turns; bring 1; round; round; unplan; lag deployment; round; replan; bring 2; run 5m"},
		{"admission makes another template of what a rollback writes", "the ReplicaSet of that template is not taken for saturated (H6)",
			of(1, 1, 0, "1 2 75%/5m 100%", rollsBack, late(60, 0), admits(mutatesSince), func(s *setup) { s.history = 1 }), "round; admit; bring 2; round; round; native; round; round; badplan; round; crash 1; turns; steps 50%/1m 100%; run 11m"},
		{"a rollback is asked for, and Git goes back before it is seen", "it is one rollback, not another one further back",
			ten(), begun + "approve 5; quiet; bring 3; quiet; rollback; bring 2; round; round; quiet"},
		{"a rollback is asked for at 0 replicas, and Git goes back before it is seen", "it is one rollback, not another one further back",
			ten(), begun + "approve 5; quiet; scale 0; quiet; bring 3; round; rollback; forcepush 1; quiet"},
		{"admission mutates, and the controller fails between the hold and its record", "two ReplicaSets of a revision stay within the gate, whatever is on record",
			of(5, 0, 1, "20% 20% 60% 100%", late(600, 10), admits(mutatesSince)), "bring 2; run 1m; admit; rollback; round; round; bring 2; turns; round; fail 1"},
		{"an edit raises the step, and N shrinks to where it is not raised", "no pause of a step runs at a gate before it",
			of(3, 1, 2, "1 2 75%/5m 100%"), "quiet; bring 3; round; round; turns; round; round; steps 50%/1m 100%; turns; run 5m; scale 2"},
		{"the plan is deleted in a rollback, and what it goes back to is deleted", "the native controller makes a ReplicaSet again (H11)",
			of(5, 2, 1, "100%", late(2147483647, 30), rollsBack), "bring 2; run 25m; turns; time 30s; turns; round; round; bring 1; round; round; unplan; round; delete 1"},
		{"N shrinks, and the stable ReplicaSet is scaled to 0", "one write above N+S makes the safe region again (H26)",
			of(5, 1, 2, "50%/1m 100%", late(60, 0)), "bring 2; run 1m; scale 1; native; resize 1 0; round"},
		{"a pod gets its node just before the deadline", "a healthy revision does not roll back",
			ten(rollsBack), "quiet; fate 2 unschedulable; bring 2; run 9m; time 50s; mend 2; run 1m; ready 2; quiet"},
		{"a quota is raised just before the deadline", "a healthy revision does not roll back",
			ten(rollsBack), "quiet; quota 9; bring 2; run 9m; time 50s; quota 0; run 1m; ready 2; quiet"},
		{"a pod gets its node after the deadline, and fails", "no ReplicaSet changes, and it goes back",
			ten(rollsBack), "quiet; fate 2 unschedulable; bring 2; run 11m; mend 2; ready 2; break 2; quiet"},
		{"a rollback is superseded, and what it has gone to is brought again", "what was left without a gate is nothing to go back to",
			of(6, 2, 3, "50%/1m 100%"), "bring 3; run 1m; turns; run 5m; turns; round; round; forcepush 0; run 11m; turns; round; round; turns; round; bring 2; scale 2; round; bring 1; run 5m; bring 3"},
		{"a plan of one step gets steps before the first pod, and is one of one step again after it", "a plan of one step is not remembered as an opened gate",
			of(4, 2, 2, "1/30s 50% 100%"), "quiet; bring 2; round; round; native; steps 100%; round; round; steps 1 2 75%/5m 100%; round; round; round; steps 100%"},
		{"the first step is lowered before the first pod, and raised after it", "pods that are there may stay, none is added",
			of(4, 1, 1, "50%/1m 100%", late(600, 10)), "quiet; bring 2; round; round; turns; round; steps 1 2 75%/5m 100%; round; round; steps 50% 2 100%"},
		{"the stable ReplicaSet is deleted at a step that an edit makes the last one", "it has not begun with all pods, and its last gate is asked",
			of(3, 2, 1, "1 2 75%/5m 100%", late(600, 10)), "quiet; bring 2; round; round; native; round; approve 1; round; turns; run 11m; steps 1 100%; delete 1"},
		{"the last step is completed in status before its pods are there", "the deadline runs, and it goes back",
			of(4, 1, 1, "100%", late(600, 10), rollsBack), "bring 3; round; round; round; turns; round; round; complete; turns; break 3"},
		{"the plan is edited before a round decides on a commit", "a release begins at the first step of its first round",
			of(6, 0, 2, "1/30s 50% 100%", late(600, 30)), "quiet; bring 2; round; round; turns; round; lag records; round; rename; round; bring 2; round; steps 50% 2 100%"},
		{"the hold is opened before a release has taken it over, and the plan is edited", "it has not begun with all pods",
			of(2, 0, 1, "50% 2 100%", ownStrategy), "bring 2; run 1m; recommit; running; round; steps 1/30s 50% 100%"},
		{"all pods run it when it begins, the first step is lowered, and N grows", "it still has no gate to ask, and ends",
			of(2, 0, 1, "50% 2 100%", ownStrategy), "bring 2; run 1m; recommit; running; turns; round; round; steps 1/30s 50% 100%; turns; round; round; scale 9"},
		{"what was adopted in a native rollout is brought after admission has come", "what Git said of it is not known, and its gates are closed",
			of(5, 0, 1, "10%/0s 50% 100%", admits(mutatesSince), late(600, 10), func(s *setup) { s.midway = 3 }),
			"bring 3; round; round; round; turns; round; scale 0; round; admit; bring 1"},
		{"admission makes another template of the update revision, whose pods are all that runs", "the stable one's first pod comes before one of it leaves (H26)",
			of(6, 0, 1, "1 3 100%", admits(mutatesSince)), "quiet; bring 2; round; round; admit; native; round; round; resize 1 0; strategy"},
		{"admission makes another template of what a rollback goes to, which has a ReplicaSet", "the ReplicaSet of that template is not taken for saturated (H6)",
			of(13, 4, 0, "20% 20% 60% 100%", admits(mutatesSince), rollsBack), "quiet; bring 2; admit; undeploy; deploy; quota 13; run 25m; bring 1"},
		{"admission has come in the middle of a native rollout", "no observation says that Git brings what is rolled out, and what is available is stable",
			of(4, 0, 1, "10%/0s 50% 100%", admits(mutatesSince), late(2147483647, 30), func(s *setup) { s.midway = 2 }),
			"mend 2; fate 2 comes; admit; turns; time 30s; turns; down 3h; run 1m; bring 1"},
		{"admission comes before the plan, and the plan is edited before the first pod", "the pods of the native rollout are not known to be of the release",
			of(3, 0, 1, "1 3 100%", admits(mutatesSince), ownStrategy, rollsBack, late(60, 0), func(s *setup) { s.midway = 3 }), "admit; round; round; round; steps 50% 2 100%; scale 9"},
		{"the controller ends in the middle of the hand-back of a rollback", "what was left by going back is nothing to go back to",
			of(3, 2, 1, "50%/1m 100%", late(2147483647, 0)),
			"quiet; bring 2; round; round; native; round; approve 1; round; turns; round; round; round; turns; round; round; round; scale 1; turns; rollback; evict 2; recommit; run 25m; turns; round; round; round; crash 1"},
		{"admission makes the stable template of what is released, and the plan is edited", "no gate has opened: the first one is asked",
			of(3, 2, 1, "50% 2 100%", late(600, 10), admits(mutatesNotDry)), "round; round; round; native; round; steps 20% 20% 60% 100%"},
		{"a release of what was stable before the plan ends by another's hold", "no record is of it, so it is no rollback",
			of(1, 0, 2, "1 50% 100%", late(60, 0), func(s *setup) { s.midway, s.history = 3, 0 }),
			"scale 4; bring 1; native; round; round; round; running; turns; round; recommit; native; round; round; round; round; bring 2"},
		{"what was adopted is released to itself as admission writes it, and comes again", "it has ended, and its approval with it",
			of(2, 1, 0, "20% 20% 60% 100%", late(600, 10), admits(mutatesSince), ownStrategy, func(s *setup) { s.byHand, s.midway = true, 1 }),
			"admit; scale 0; turns; round; round; bring 3; round; forcepush 1"},
		{"what was superseded has no pods, gets all of them by another's write, and comes again as admission writes it", "two ReplicaSets of a revision stay within the gate",
			of(6, 0, 0, "1 2 75%/5m 100%", late(600, 30), rollsBack, admits(mutatesSince)), "bring 3; run 11m; bring 2; admit; round; round; bring 3; resize 1 0"},
		{"N shrinks while two ReplicaSets of a revision go back without surge", "the stable one is whole when there is room (I2)",
			ten(stepped("1 2 75%/5m 100%"), late(60, 30), rollsBack, admits(mutatesSince), func(s *setup) {
				s.n, s.surge, s.unavailable, s.history = 5, intstr.FromInt32(0), intstr.FromString("50%"), 0
			}),
			"bring 2; round; round; round; running; turns; admit; run 11m; scale 3"},
		{"a ReplicaSet is read late, and resized by the controller before", "a controller reads its own writes",
			ten(stepped("50%/1m 100%"), late(2147483647, 0), rollsBack, admits(mutatesNotDry), ownStrategy, func(s *setup) {
				s.n, s.unavailable, s.history, s.byHand = 5, intstr.FromString("25%"), 1, true
			}), "quiet; bring 2; round; round; lag release; native; round; round; turns; steps 100%; round; losestatus; round; round; round; turns; round; steps 1/30s 50% 100%; lag 1; round; round; bring 2; run 25m"},
		{"a step is completed in status during an edit that is taken back", "the status was about the plan that is there again",
			of(12, 3, 2, "1/30s 50% 100%", late(600, 30), admits(mutatesNotDry), ownStrategy), "bring 2; run 5m; steps 20% 20% 60% 100%; complete; steps 1/30s 50% 100%"},
		{"the deadline is made shorter in the moment in which a pod fails", "the failure is the pod's own",
			of(3, 2, 0, "50% 2 100%", late(600, 30), rollsBack), "quiet; bring 2; round; round; steps 1 100%; round; turns; round; round; turns; down 3h; break 2; round; deadline 60"},
		{"the controller ends in the middle of the hand-back of a rollback to what admission has made", "what has failed is on record until another one is stable",
			of(11, 0, 5, "1 50% 100%", late(600, 0), rollsBack, admits(mutatesSince), func(s *setup) { s.history = 1 }),
			"bring 2; admit; run 25m; turns; round; round; turns; round; turns; round; fail 1"},
		{"all pods run it when it begins with one step, it gets several, N is 0 for a while, and the first one is raised", "a plan of one step is not remembered as an opened gate",
			of(3, 2, 0, "100%"), "round; scale 1; bring 3; turns; round; round; turns; round; round; turns; round; recommit; round; round; round; steps 1 3 100%; round; scale 0; quiet; scale 6; quiet; steps 5 100%; quiet"},
		{"the controller ends between a ReplicaSet that admission changes and its size", "no pod is of a template that Git never had",
			ten(altersSets(mutatesNotDry)), "quiet; bring 2; round; round; native; round; half; native; quiet"},
		{"admission changes ReplicaSets since a release, another one comes, and N grows", "what is there follows N",
			of(4, 1, 1, "2 100%", altersSets(mutatesSince)), "bring 2; quiet; alter; bring 3; quiet; scale 3; quiet; scale 8; quiet"},
		{"no dry run shows what admission does to ReplicaSets, another release comes, and N grows", "what is there follows N",
			of(4, 1, 1, "2 100%", altersSets(mutatesNotDry), func(s *setup) { s.midway = 2 }), "mend 2; fate 2 comes; quiet; bring 3; quiet; scale 3; quiet; scale 8; quiet"},
		{"all ReplicaSets are deleted under the hold, and admission changes what is made", "the native controller fills what is there, and it ends",
			of(2, 1, 2, "1 100%", altersSets(mutatesNotDry)), "quiet; bring 2; round; round; delete 1; run 11m"},
		{"an approval that names no steps comes while a release is refused, and the plan is edited then", "it is for the plan that was there",
			of(6, 1, 1, "1 2 75%/5m 100%", altersSets(mutatesSince), func(s *setup) { s.byHand = true }), "alter; round; bring 3; round; approve 1; round; steps 1/30s 50% 100%"},
		{"the Deployment is deleted before a gate that has opened moves a pod, and the plan is edited to one step", "what the last gate allowed is the most",
			of(4, 4, 0, "1 50% 100%"), begun + "approve 0; round; undeploy; round; deploy; steps 100%; quiet"},
		{"the steps are edited at a gate, and two of them want what runs", "it goes on at the first of them, and no pause of the other opens its gate",
			ten(), begun + "approve 0; quiet; steps 5 5/10m 100%; quiet"},
		{"pods are lost twice, and the deadline ends", "each loss costs one second of it",
			of(4, 1, 2, "1 2 75%/5m 100%", rollsBack), "bring 2; run 5m; recommit; round; turns; round; round; evict 2; turns; round; mend 2; turns; evict 2; round"},
		{"the stable ReplicaSet is scaled to 0 while the plan cannot be used, and N grows", "the update revision is not alone below its gate (H26)",
			of(2, 0, 1, "20% 20% 60% 100%", late(600, 10), admits(mutatesAlways), ownStrategy, func(s *setup) { s.history, s.signed = 0, true }),
			"bring 2; run 11m; badplan; resize 1 0; native; round; round; scale 9; native"},
		{"admission makes another template of the stable revision, its ReplicaSet is refused, and N grows", "the one that is there follows N",
			of(5, 1, 1, "20% 20% 60% 100%", admits(mutatesSince), altersSets(mutatesSince)),
			"quiet; bring 2; round; round; native; round; admit; round; alter; bring 1; scale 9"},
		{"several commits come while the plan cannot be used, and the first of them again", "it has ended, as the message says",
			of(4, 2, 2, "10%/0s 50% 100%"), "bring 2; round; bring 2; recommit; round; bring 1; badplan; round; forcepush 3"},
		{"admission comes under a hold, its template is seen, and what was superseded comes again", "pods of what it was before count against the gates (I3)",
			of(4, 2, 2, "1 2 75%/5m 100%", admits(mutatesSince)), "quiet; bring 3; round; round; admit; native; round; round; bring 2; strategy; round; round; bring 3; quiet"},
		{"the edited ReplicaSet leaves", "one active set that has not N is no safe place", of(4, 0, 1, "100%"), "quiet; bring 3; round; round; native; round; round; scale 1; native; edit 3; quiet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			moves := strings.Split(strings.Trim(tc.moves, " ;"), "; ")
			if v := run(tc.setup, moves); v != nil {
				t.Errorf("%s\n%s: %s\nsetup %s\npath %s", tc.why, v.rule, v.text, tc.setup, tc.moves)
			}
		})
	}
}
