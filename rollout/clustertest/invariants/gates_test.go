package invariants

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// targets: I3, as the gates are open by what users gave.
var targets = []sequence{
	{"step 0 lets 1 go", func(s *story) { s.size("new", 2, tranche) }, []string{"I3", "I2"}},
	{"step 0 lets 1 go, by any manager", func(s *story) { s.size("old", 2, "kubectl"); s.size("new", 2, "kubectl") }, []string{"I3"}},
	{"the status claims another step, and that its gate is open", func(s *story) {
		s.to(3, 1)
		s.status(v1alpha1.BatchReleaseStatus{
			Phase: v1alpha1.PhaseRollingUpdate, StableRevision: "old", UpdateRevision: "new", UpdateCommit: commitNew,
			CurrentStepIndex: 2, CurrentStepState: v1alpha1.StepCompleted, OpenedReplicas: []intstr.IntOrString{intstr.FromString("100%")},
			Approvals: []v1alpha1.StepApproval{{Step: 0, By: "Ada"}, {Step: 1, By: "Ada"}},
		})
		s.to(1, 3)
	}, []string{"I3"}},
	{"the status claims another revision", func(s *story) {
		s.to(3, 1)
		s.status(v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseCompleted, StableRevision: "new", UpdateRevision: "new"})
		s.to(2, 2)
	}, []string{"I3"}},
	{"the status claims a rollback", func(s *story) {
		s.to(3, 1)
		s.status(v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseRollingUpdate, StableRevision: "new", UpdateRevision: "new", RollingBack: true})
		s.to(2, 2)
	}, []string{"I3"}},
	{"step 0 is approved, and its pod is available", func(s *story) { s.to(3, 1); s.approve("new", commitNew, 0); s.to(2, 2) }, nil},
	{"it is approved by the start of the commit", func(s *story) { s.to(3, 1); s.approve("new", commitNew[:7], 0); s.to(2, 2) }, nil},
	{"step 0 is approved, and its pod is not available", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.broken("new")
		s.approve("new", commitNew, 0)
		s.size("old", 2, "kubectl")
		s.size("new", 2, tranche)
	}, []string{"I3"}},
	{
		"step 0 is approved, and step 1 is not",
		func(s *story) { s.to(3, 1); s.approve("new", commitNew, 0); s.to(2, 2); s.to(1, 3) }, []string{"I3", "I5"},
	},
	{"step 1 is approved, given ahead", func(s *story) { s.approve("new", commitNew, 1); s.to(3, 1); s.to(2, 2); s.to(0, 4) }, nil},
	{"step 1 of N = 2 lets 1 go", func(s *story) {
		s.to(3, 1)
		s.approve("new", commitNew, 0)
		s.to(2, 2)
		s.size("new", 1, tranche)
		s.scale(2)
		s.later(time.Minute)
		s.size("new", 2, tranche)
	}, []string{"I3", "I2", "I5"}},
	{"the approval is withdrawn before its pod is available", func(s *story) {
		s.approve("new", commitNew, 0)
		s.size("new", 1, tranche)
		s.release(func(br *v1alpha1.BatchRelease) { br.Spec.Approval = nil })
		s.later(time.Minute)
		s.ready("new", 1)
		s.size("old", 2, "kubectl")
		s.size("new", 2, tranche)
	}, []string{"I3"}},
	{"to zero and back, and the native controller brings all up past the gate (H4)", func(s *story) {
		s.to(3, 1)
		s.scale(0)
		s.size("new", 0, tranche)
		s.size("old", 0, tranche)
		s.scale(4)
		s.later(time.Minute)
		s.size("new", 4, native)
	}, []string{"I3", "I10"}},
	{"to zero and back at once, with one active, which the native controller empties and the other fills (H4)", func(s *story) {
		s.scale(0)
		s.size("old", 0, native)
		s.scale(4)
		s.size("new", 4, native)
	}, nil},
	{"to zero and back at once, and Tranche adds to it", func(s *story) {
		s.scale(0)
		s.size("old", 0, native)
		s.scale(4)
		s.size("new", 4, native)
		s.size("new", 2, tranche)
		s.size("new", 3, tranche)
	}, []string{"I3"}},
	{"to zero and back at once, and the native controller fills it again after it was corrected", func(s *story) {
		s.scale(0)
		s.size("old", 0, native)
		s.scale(4)
		s.size("new", 4, native)
		s.size("new", 1, tranche)
		s.size("new", 4, native)
	}, []string{"I3", "I10"}},
	{"to zero, a minute there and not handed back, and back (H4)", func(s *story) {
		s.scale(0)
		s.size("old", 0, native)
		s.later(time.Minute)
		s.scale(4)
		s.size("new", 4, native)
	}, []string{"I3", "I10"}},
	{"to zero and back, and for a minute nothing stable grows (H4)", func(s *story) {
		s.scale(0)
		s.size("old", 0, native)
		s.scale(4)
		s.later(time.Minute)
		s.size("new", 4, native)
	}, []string{"I3", "I10"}},
	{"handed back past a gate", func(s *story) { s.to(3, 1); s.handBack(tranche) }, []string{"I3"}},
	{"handed back since the plan was deleted, and another one is there by then", func(s *story) {
		s.to(3, 1)
		s.v.See(Change{At: s.now, Object: s.br, Gone: true})
		s.br = s.br.DeepCopy()
		s.br.UID, s.br.Status = "br2", v1alpha1.BatchReleaseStatus{}
		s.release(func(*v1alpha1.BatchRelease) {})
		s.handBack(tranche)
	}, nil},
	{"handed back since the plan is being deleted, and a finalizer keeps it", func(s *story) {
		s.to(3, 1)
		s.release(func(br *v1alpha1.BatchRelease) {
			br.DeletionTimestamp, br.Finalizers = &metav1.Time{Time: s.now}, []string{"example.org/hostage"}
		})
		s.handBack(tranche)
	}, nil},
	{"handed back at 0 replicas past a gate", func(s *story) {
		s.to(3, 1)
		s.scale(0)
		s.size("new", 0, native)
		s.size("old", 0, native)
		s.handBack(tranche)
	}, []string{"I3"}},
	{"a revision grows that spec does not bring any more", func(s *story) {
		s.to(3, 1)
		s.bring("next", commitNext)
		s.later(time.Minute)
		s.size("old", 2, "kubectl")
		s.size("new", 2, tranche)
	}, []string{"I3"}},
	{"what spec brought a moment ago may not have been seen", func(s *story) {
		s.size("old", 3, "kubectl")
		s.bring("next", commitNext)
		s.size("new", 1, tranche)
	}, nil},
	{"the next release begins at its own step 0", func(s *story) {
		s.to(3, 1)
		s.approve("new", commitNew, 1)
		s.to(2, 2)
		s.bring("next", commitNext)
		s.hold("next")
		s.later(time.Minute)
		s.size("new", 0, "kubectl")
		s.size("next", 2, tranche)
	}, []string{"I3", "I5"}},
}

// waits: the gates that open by themselves.
var waits = []sequence{
	{"a pause is over", func(s *story) { s.pause(time.Minute); s.to(3, 1); s.later(time.Minute); s.to(2, 2) }, nil},
	{"a pause is not over", func(s *story) { s.pause(time.Minute); s.to(3, 1); s.later(50 * time.Second); s.to(2, 2) }, []string{"I3"}},
	{"a pause runs from when the pods are available", func(s *story) {
		s.pause(time.Minute)
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.later(time.Hour)
		s.ready("new", 1)
		s.later(50 * time.Second)
		s.size("old", 2, "kubectl")
		s.size("new", 2, tranche)
	}, []string{"I3"}},
	{"a pause runs from minReadySeconds on", func(s *story) {
		s.pause(time.Minute)
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche, func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 60 })
		s.ready("new", 1)
		s.later(100 * time.Second)
		s.size("old", 2, "kubectl")
		s.size("new", 2, tranche)
	}, []string{"I3"}},
	{"a pause begins again with pods that were lost", func(s *story) {
		s.pause(time.Minute)
		s.to(3, 1)
		s.later(30 * time.Second)
		s.turn("new", 0, false)
		s.later(10 * time.Second)
		s.turn("new", 0, true)
		s.later(30 * time.Second)
		s.to(2, 2)
	}, []string{"I3"}},
	{"a pod that is back at once may not have been seen", func(s *story) {
		s.pause(time.Minute)
		s.to(3, 1)
		s.later(30 * time.Second)
		s.turn("new", 0, false)
		s.later(time.Second)
		s.turn("new", 0, true)
		s.later(30 * time.Second)
		s.to(2, 2)
	}, nil},
	{
		"a pause, and then the next step waits for an approval", func(s *story) { s.pause(0); s.to(3, 1); s.to(2, 2); s.to(0, 4) },
		[]string{"I3"},
	},
	{"an analysis is over", func(s *story) { s.analysis("Act", false); s.to(3, 1); s.later(time.Minute); s.to(2, 2) }, nil},
	{"an analysis is not over", func(s *story) {
		s.analysis("Act", false)
		s.to(3, 1)
		s.later(50 * time.Second)
		s.to(2, 2)
	}, []string{"I3"}},
	{"an analysis is not over, and an approval is no override", func(s *story) {
		s.analysis("Act", false)
		s.to(3, 1)
		s.approve("new", commitNew, 0)
		s.to(2, 2)
	}, []string{"I3"}},
	{"an analysis that is over lacks its approval", func(s *story) {
		s.analysis("Act", true)
		s.to(3, 1)
		s.later(time.Minute)
		s.to(2, 2)
	}, []string{"I3"}},
	{"an analysis that is over has its approval", func(s *story) {
		s.analysis("Act", true)
		s.to(3, 1)
		s.later(time.Minute)
		s.approve("new", commitNew, 0)
		s.to(2, 2)
	}, nil},
	{"an override", func(s *story) { s.analysis("Act", true); s.to(3, 1); s.override(0); s.to(2, 2) }, nil},
	{"an override of another step", func(s *story) { s.analysis("Act", false); s.to(3, 1); s.override(1); s.to(2, 2) }, []string{"I3"}},
	{"an analysis that only observes", func(s *story) {
		s.analysis("Observe", false)
		s.to(3, 1)
		s.approve("new", commitNew, 0)
		s.to(2, 2)
	}, nil},
	{"an analysis that only observes opens no gate", func(s *story) {
		s.analysis("Observe", false)
		s.to(3, 1)
		s.later(time.Minute)
		s.to(2, 2)
	}, []string{"I3"}},
	{"one pause after the other", func(s *story) {
		s.pause(time.Minute, time.Minute)
		s.to(3, 1)
		s.later(time.Minute)
		s.to(2, 2)
		s.later(30 * time.Second)
		s.to(0, 4)
	}, []string{"I3"}},
	{"no gate opens while the plan is paused", func(s *story) {
		s.release(func(br *v1alpha1.BatchRelease) { br.Spec.Paused = true })
		s.pause(0)
		s.later(time.Minute)
		s.to(3, 1)
		s.to(2, 2)
	}, []string{"I3"}},
}

// approvals: I5.
var approvals = []sequence{
	{
		"the approval is for another revision", func(s *story) { s.to(3, 1); s.approve("other", commitNew, 2); s.to(2, 2) },
		[]string{"I3", "I5"},
	},
	{"the approval is for another commit", func(s *story) { s.to(3, 1); s.approve("new", commitOld, 2); s.to(2, 2) }, []string{"I3", "I5"}},
	{
		"the approval names too little of the commit",
		func(s *story) { s.to(3, 1); s.approve("new", commitNew[:6], 2); s.to(2, 2) }, []string{"I3", "I5"},
	},
	{"the approval was given for other steps", func(s *story) {
		s.to(3, 1)
		s.approve("new", commitNew, 0, intstr.FromInt32(1), intstr.FromString("25%"), intstr.FromString("100%"))
		s.to(2, 2)
	}, []string{"I3", "I5"}},
	{"the same template by another commit is another release", func(s *story) {
		s.to(3, 1)
		s.approve("new", commitNew, 1)
		s.size("new", 2, tranche)
		s.later(time.Minute)
		s.bring("new", commitNext)
		s.later(time.Minute)
		s.ready("new", 2)
		s.size("old", 1, "kubectl")
		s.size("new", 3, tranche)
	}, []string{"I3", "I5"}},
	{"a release that has ended and comes again is not approved again", func(s *story) {
		s.to(3, 1)
		s.release(func(br *v1alpha1.BatchRelease) { br.Spec.Approval = nil })
		s.bring("next", commitNext)
		s.hold("next")
		s.later(time.Minute)
		s.bring("new", commitNew)
		s.hold("new")
		s.approve("new", commitNew, 2)
		s.later(time.Minute)
		s.to(2, 2)
	}, []string{"I3", "I5"}},
	{"a release that comes again before another began goes on", func(s *story) {
		s.to(3, 1)
		s.bring("next", commitNext)
		s.later(time.Minute)
		s.bring("new", commitNew)
		s.approve("new", commitNew, 0)
		s.to(2, 2)
	}, nil},
	{"a user completes the step in the status", func(s *story) { s.to(3, 1); s.complete("kubectl-edit"); s.to(2, 2) }, nil},
	{
		"a user completes one step in the status, and not the next",
		func(s *story) { s.to(3, 1); s.complete("kubectl-edit"); s.to(2, 2); s.to(1, 3) }, []string{"I3"},
	},
	{"a user completes a step that the status claims beyond the gate", func(s *story) {
		s.to(3, 1)
		s.release(func(br *v1alpha1.BatchRelease) { br.Status.CurrentStepIndex = 1 })
		s.complete("kubectl-edit")
		s.to(2, 2)
		s.to(1, 3)
	}, []string{"I3"}},
	{"the controller completes the step itself", func(s *story) { s.to(3, 1); s.complete(tranche); s.to(2, 2) }, []string{"I3"}},
	{"only signed approvals count", func(s *story) {
		s.release(func(br *v1alpha1.BatchRelease) { br.Spec.RequireSignedApprovals = true })
		s.later(time.Minute)
		s.to(3, 1)
		s.complete("kubectl-edit")
		s.to(2, 2)
	}, []string{"I3"}},
	{"an approval in the cluster is to be reviewed", func(s *story) {
		s.release(func(br *v1alpha1.BatchRelease) { br.Spec.ReviewApprovals = true })
		s.later(time.Minute)
		s.to(3, 1)
		s.complete("kubectl-edit")
		s.to(2, 2)
	}, []string{"I3"}},
	{"an approval in the cluster was about the release before", func(s *story) {
		s.to(3, 1)
		s.bring("new", commitNext)
		s.complete("kubectl-edit")
		s.later(time.Minute)
		s.to(2, 2)
	}, []string{"I3"}},
}

// edits: the plan is edited on the way.
var edits = []sequence{
	{"the first step is raised before any gate", func(s *story) { s.to(3, 1); s.steps("50%", "100%"); s.to(1, 3) }, []string{"I3"}},
	{"a gate opened 1 to 2, and the plan has one step of 75% now", func(s *story) {
		s.to(3, 1)
		s.approve("new", commitNew, 0)
		s.to(2, 2)
		s.status(v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseRollingUpdate, UpdateRevision: "new", UpdateCommit: commitNew})
		s.later(time.Minute)
		s.steps("75%", "100%")
		s.later(time.Minute)
		s.to(1, 3)
	}, []string{"I3", "I5"}},
	{"the edited plan is approved", func(s *story) {
		s.to(3, 1)
		s.approve("new", commitNew, 0)
		s.to(2, 2)
		s.later(time.Minute)
		s.steps("75%", "100%")
		s.approve("new", commitNew, 0, intstr.FromString("75%"), intstr.FromString("100%"))
		s.to(1, 3)
	}, nil},
	{"an approval before the edit does not count after it", func(s *story) {
		s.approve("new", commitNew, 1)
		s.status(v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseRollingUpdate, UpdateRevision: "new", UpdateCommit: commitNew})
		s.steps("1", "75%", "100%")
		s.later(time.Minute)
		s.to(3, 1)
		s.to(2, 2)
	}, []string{"I3", "I5"}},
	{"what the last gate opened stays", func(s *story) {
		s.to(3, 1)
		s.approve("new", commitNew, 0)
		s.to(2, 2)
		s.later(time.Minute)
		s.steps("1", "25%", "100%")
		s.later(time.Minute)
		s.size("new", 1, "kubectl")
		s.size("new", 2, tranche)
	}, nil},
}

// superseded: a release that is through may be stable with no hand-back.
var superseded = []sequence{
	{"all pods ran it, past all gates", func(s *story) {
		s.all()
		s.supersede()
		s.size("new", 2, "kubectl")
		s.size("new", 3, tranche)
	}, nil},
	{"all pods ran it, and not past its gates", func(s *story) {
		s.size("old", 0, "kubectl")
		s.size("new", 4, "kubectl")
		s.ready("new", 4)
		s.supersede()
		s.size("new", 2, "kubectl")
		s.size("new", 3, tranche)
	}, []string{"I3", "I3"}},
	{"all pods ran it, past all gates, and the controller has not seen that", func(s *story) {
		s.run()
		s.supersede()
		s.size("new", 2, "kubectl")
		s.size("new", 3, tranche)
	}, []string{"I3"}},
	{"it is past its gates, and another one had pods still", func(s *story) {
		s.approve("new", commitNew, 1)
		s.to(3, 1)
		s.to(2, 2)
		s.to(1, 3)
		s.bring("next", commitNext)
		s.hold("next")
		s.later(time.Minute)
		s.size("new", 2, "kubectl")
		s.size("new", 3, tranche)
	}, []string{"I3"}},
	{"it is past its gates, and one of all pods was not available", func(s *story) {
		s.approve("new", commitNew, 1)
		s.to(3, 1)
		s.to(2, 2)
		s.size("old", 0, "kubectl")
		s.size("new", 4, tranche)
		s.supersede()
		s.size("new", 2, "kubectl")
		s.size("new", 3, tranche)
	}, []string{"I3"}},
	{"the other one is handed back, and it comes back", func(s *story) {
		s.all()
		s.supersede()
		s.approve("next", commitNext, 1)
		s.size("next", 2, tranche)
		s.ready("next", 2)
		s.end("new", "next")
		s.bring("new", commitLast)
		s.hold("new")
		s.later(time.Minute)
		s.size("next", 2, "kubectl")
		s.size("new", 2, tranche)
	}, nil},
	{"the other one is handed back, and what was stable before comes back: the controller may not have come to it", func(s *story) {
		s.all()
		s.supersede()
		s.approve("next", commitNext, 1)
		s.size("next", 2, tranche)
		s.ready("next", 2)
		s.end("new", "next")
		s.bring("old", commitLast)
		s.hold("old")
		s.later(time.Minute)
		s.size("next", 2, "kubectl")
		s.size("old", 2, tranche)
	}, nil},
	{"what was stable before comes back in the middle of the other one: the same", func(s *story) {
		s.all()
		s.supersede()
		s.bring("old", commitLast)
		s.hold("old")
		s.later(time.Minute)
		s.size("new", 2, "kubectl")
		s.size("old", 2, tranche)
	}, nil},
	{"two others are handed back, and what ran before them is none", func(s *story) {
		s.all()
		s.supersede()
		s.approve("next", commitNext, 1)
		s.size("next", 2, tranche)
		s.ready("next", 2)
		s.end("new", "next")
		s.through("next", "other", commitLast)
		s.bring("new", commitOld)
		s.hold("new")
		s.later(time.Minute)
		s.size("other", 2, "kubectl")
		s.size("new", 2, tranche)
		s.later(time.Minute)
		s.bring("old", commitNew)
		s.hold("old")
		s.later(time.Minute)
		s.size("new", 0, "kubectl")
		s.size("old", 2, tranche)
	}, []string{"I3", "I3", "I5", "I5"}},
}

// unknown: a time in which a watch was down.
var unknown = []sequence{
	{"the plan was not seen for a while", func(s *story) {
		s.to(3, 1)
		s.later(time.Minute)
		s.br = s.br.DeepCopy()
		s.br.Generation, s.br.Status.CurrentStepIndex = s.br.Generation+1, 1
		s.v.See(Change{At: s.now, Object: s.br, Found: true})
		s.to(2, 2)
	}, nil},
	{"the plan was not seen for a while, and then it was", func(s *story) {
		s.to(3, 1)
		s.later(time.Minute)
		s.br = s.br.DeepCopy()
		s.br.Generation, s.br.Status.CurrentStepIndex = s.br.Generation+1, 1
		s.v.See(Change{At: s.now, Object: s.br, Found: true})
		s.to(2, 2)
		s.to(1, 3)
	}, []string{"I3"}},
}
