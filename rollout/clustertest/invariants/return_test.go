package invariants

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// back: no gate is closed before what was stable.
var back = []sequence{
	{"the stable template comes back", func(s *story) {
		s.approve("new", commitNew, 0)
		s.to(3, 1)
		s.to(2, 2)
		s.bring("old", commitNext)
		s.hold("old")
		s.later(time.Minute)
		s.size("old", 3, tranche)
		s.size("new", 1, "kubectl")
		s.size("old", 4, tranche)
	}, nil},
	{"a user asks for it", func(s *story) {
		s.to(3, 1)
		s.release(func(br *v1alpha1.BatchRelease) {
			br.Annotations = map[string]string{v1alpha1.AnnotationRollback: "true"}
		})
		s.hold("old")
		s.size("new", 0, tranche)
		s.kill("new", 0)
		s.later(time.Minute)
		s.size("old", 4, tranche)
	}, nil},
	{"what was stable before comes back after the release", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.bring("old", commitNext)
		s.hold("old")
		s.later(time.Minute)
		s.size("new", 3, "kubectl")
		s.size("old", 2, tranche)
	}, nil},
	{"what was stable before comes back in the middle of another release", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.bring("next", commitNext)
		s.hold("next")
		s.later(time.Minute)
		s.size("new", 3, "kubectl")
		s.size("next", 1, tranche)
		s.later(time.Minute)
		s.bring("old", commitLast)
		s.hold("old")
		s.later(time.Minute)
		s.size("new", 2, "kubectl")
		s.size("old", 2, tranche)
	}, []string{"I3", "I5"}},
	{"what was stable comes back as a release at the hand-back of the one before, which then comes back", func(s *story) {
		s.all()
		s.bring("old", commitNext) // the controller hands back, and gates it then
		s.handBack(tranche)
		s.through("new", "old", commitNext)
		s.bring("new", commitLast)
		s.hold("new")
		s.later(time.Minute)
		s.size("old", 2, "kubectl")
		s.size("new", 2, tranche)
	}, nil},
	{"a plan adopts at once what ran before it, and a user goes back to that", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Template = kept("drift") })
		s.size("drift", 4, native)
		s.size("new", 0, native)
		s.ready("drift", 4)
		s.later(time.Minute)
		s.see(s.br, true)
		s.br = s.br.DeepCopy()
		s.br.UID, s.br.Status = "br2", v1alpha1.BatchReleaseStatus{}
		s.bring("next", commitNext)
		s.status(v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseInitial, StableRevision: "drift", UpdateRevision: "next"})
		s.through("drift", "next", commitNext)
		s.scale(0)
		s.size("next", 0, native)
		s.later(time.Minute)
		s.release(func(br *v1alpha1.BatchRelease) {
			br.Annotations = map[string]string{v1alpha1.AnnotationRollback: "true"}
		})
		s.deployment(tranche, func(d *appsv1.Deployment) { d.Spec.Template = kept("drift") })
	}, nil},
	{"what ran two releases ago is none", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.bring("next", commitNext)
		s.hold("next")
		s.approve("next", commitNext, 1)
		for _, n := range []int32{1, 2, 4} {
			s.size("new", 4-n, "kubectl")
			s.size("next", n, tranche)
			s.ready("next", int(n))
		}
		s.handBack(tranche)
		s.later(time.Minute)
		s.bring("old", commitLast)
		s.hold("old")
		s.later(time.Minute)
		s.size("next", 3, "kubectl")
		s.size("old", 2, tranche)
	}, []string{"I3", "I5"}},
	{"what a rollback left behind is none", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.bring("old", commitNext)
		s.hold("old")
		s.later(time.Minute)
		s.size("new", 0, "kubectl")
		s.size("old", 4, tranche)
		s.ready("old", 4)
		s.handBack(tranche)
		s.later(time.Minute)
		s.bring("new", commitLast)
		s.hold("new")
		s.later(time.Minute)
		s.size("old", 2, "kubectl")
		s.size("new", 2, tranche)
	}, []string{"I3", "I5"}},
	{"a new plan has looked at what runs, and a Deployment created by hand does not make its template stable", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.v.See(Change{At: s.now, Object: s.br, Gone: true})
		s.br = s.br.DeepCopy()
		s.br.UID, s.br.Status = "br2", v1alpha1.BatchReleaseStatus{}
		s.release(func(*v1alpha1.BatchRelease) {})
		s.status(v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseCompleted, StableRevision: "new", UpdateRevision: "new"})
		s.later(time.Minute)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Template = kept("drift") })
		s.size("drift", 4, native)
		s.size("new", 0, native)
		s.hold("new")
		s.later(time.Minute)
		s.size("drift", 0, "kubectl")
		s.size("new", 4, tranche)
		s.ready("new", 4)
		s.handBack(tranche)
		s.later(time.Minute)
		s.bring("old", commitLast)
		s.hold("old")
		s.later(time.Minute)
		s.size("new", 2, "kubectl")
		s.size("old", 2, tranche)
	}, nil},
	{"drift does not make a template stable", func(s *story) {
		s.handBack(tranche, func(d *appsv1.Deployment) { d.Spec.Template = kept("old") })
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Template = kept("new") })
		s.size("old", 0, native)
		s.size("new", 4, native)
		s.later(time.Minute)
		s.hold("new")
		s.size("new", 1, "kubectl")
		s.later(time.Minute)
		s.size("new", 2, tranche)
	}, []string{"I3"}},
}

// returns: admission makes another template of the last stable one than before.
var returns = []sequence{
	{"what was stable comes back", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.bring("old", commitNext)
		s.grow("old" + mutated)
	}, nil},
	{"it was rolled back to before, while Git brought another one", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.rollBack("old")
		s.through("old", "new", commitNext)
		s.bring("old", commitLast)
		s.grow("old" + mutated)
	}, nil},
	{"it was rolled back to as admission made it then, and comes back as it was before", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.rollBack("old" + mutated)
		s.through("old"+mutated, "new", commitNext)
		s.bring("old", commitLast)
		s.grow("old")
	}, nil},
	{"admission made it of another one that Git brings", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.rollBack("old")
		s.through("old", "new", commitNext)
		s.bring("next", commitLast)
		s.grow("next" + mutated)
	}, []string{"I3", "I5"}},
	{"Git, and no admission, added to the last stable one", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.rollBack("old")
		s.through("old", "new", commitNext)
		s.release(func(br *v1alpha1.BatchRelease) {
			br.Spec.Template, br.Spec.Commit = ptr.To(templateOf("old")), commitLast
			br.Spec.Template.Annotations = kept("old" + mutated).Annotations
		})
		s.grow("old" + mutated)
	}, []string{"I3", "I5"}},
	{"it was rolled back to before, and comes back in the middle of another release", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.rollBack("old")
		s.through("old", "new", commitNext)
		s.bring("next", commitOld)
		s.hold("next")
		s.later(time.Minute)
		s.size("new", 3, "kubectl")
		s.size("next", 1, tranche)
		s.later(time.Minute)
		s.bring("old", commitLast)
		s.grow("old" + mutated)
	}, []string{"I3", "I5"}},
	{"it comes back while what is stable is replaced, since admission made another one of it", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.hold("new" + mutated)
		s.size("new", 2, "kubectl")
		s.size("new"+mutated, 2, tranche)
		s.ready("new"+mutated, 2)
		s.later(time.Minute)
		s.bring("old", commitNext)
		s.hold("old")
		s.later(time.Minute)
		s.size("new"+mutated, 1, "kubectl")
		s.size("old", 2, tranche)
	}, nil},
	{"what a rollback left behind is none, if admission changed what it went back to", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.rollBack("old" + mutated)
		s.bring("new", commitLast)
		s.hold("new")
		s.later(time.Minute)
		s.size("old"+mutated, 2, "kubectl")
		s.size("new", 2, tranche)
	}, []string{"I3", "I5"}},
	{"what a return left behind is none, if admission changed what came back", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.bring("old", commitNext)
		s.hold("old" + mutated)
		s.later(time.Minute)
		s.end("new", "old"+mutated)
		s.bring("new", commitLast)
		s.hold("new")
		s.later(time.Minute)
		s.size("old"+mutated, 2, "kubectl")
		s.size("new", 2, tranche)
	}, []string{"I3", "I5"}},
}

// again: the plan was deleted and created again, and may have forgotten what was stable.
var again = []sequence{
	{"what was last stable before passes all gates, and what was stable comes back", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.planAgain()
		s.through("new", "old", commitNext)
		s.bring("new", commitLast)
		s.hold("new")
		s.later(time.Minute)
		s.size("old", 2, "kubectl")
		s.size("new", 2, tranche)
	}, nil},
	{"what was last stable before comes back after another release", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.planAgain()
		s.through("new", "next", commitNext)
		s.bring("old", commitLast)
		s.hold("old")
		s.later(time.Minute)
		s.size("next", 2, "kubectl")
		s.size("old", 2, tranche)
	}, []string{"I3", "I5"}},
}

// empty: what happens at 0 replicas.
var empty = []sequence{
	{"what was last stable comes back, and is stable", func(s *story) { s.atZero("old", commitNext); s.amid("old", "old") }, nil},
	{"what it left behind is nothing to go back to", func(s *story) {
		s.atZero("old", commitNext)
		s.amid("old", "new")
	}, []string{"I3", "I5"}},
	{"the template of a release whose first gate is closed is written", func(s *story) { s.atZero("next", commitNext) }, []string{"I3"}},
}
