package invariants

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// story gives events to the invariants. Deployment web of 4 (maxSurge 1, maxUnavailable
// 0) has ReplicaSets old and new, and is held at the first of the steps 1, 50%, 100%. Old
// has the stable template, and spec brings new.
type story struct {
	v   *Judge
	now time.Time
	d   *appsv1.Deployment
	br  *v1alpha1.BatchRelease
	rs  map[string]*appsv1.ReplicaSet
	pod map[string][]*corev1.Pod
}

const (
	tranche = v1alpha1.ManagerRollout
	native  = NativeManager
)

func newStory() *story {
	s := &story{v: New(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rs: map[string]*appsv1.ReplicaSet{}, pod: map[string][]*corev1.Pod{}}
	strategy := appsv1.DeploymentStrategy{
		Type:          appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
	}
	s.d = &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "d", Generation: 1},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(int32(4)), Strategy: strategy, Template: kept("old")},
	}
	s.br = &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "br"}}
	s.br.Spec.WorkloadRef.Name = "web"
	for _, step := range []string{"1", "50%", "100%"} {
		s.br.Spec.Strategy.Steps = append(s.br.Spec.Strategy.Steps, v1alpha1.Step{Replicas: intstr.Parse(step)})
	}
	s.deployment("ada", func(*appsv1.Deployment) {})
	s.size("old", 4, native)
	s.ready("old", 4)
	s.bring("old", commitOld)
	s.status(v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseCompleted, StableRevision: "old", UpdateRevision: "old"})
	s.deployment(native, func(*appsv1.Deployment) {})
	s.later(time.Minute)
	s.bring("new", commitNew)
	s.status(v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseRollingUpdate, StableRevision: "old", UpdateRevision: "new", UpdateCommit: commitNew})
	s.hold("new")
	s.later(time.Minute)
	return s
}

const (
	commitOld  = "aaaaaaaa0000000000000000000000000000aaaa"
	commitNew  = "bbbbbbbb0000000000000000000000000000bbbb"
	commitNext = "cccccccc0000000000000000000000000000cccc"
	commitLast = "dddddddd0000000000000000000000000000dddd"
)

// templateOf is the pod template of the ReplicaSet of this name.
func templateOf(name string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web:" + name}}},
	}
}

// mutated ends the names of what an admission policy makes of a template.
const mutated = "-mutated"

// kept is a template as the API server keeps it.
func kept(name string) corev1.PodTemplateSpec {
	name, byAdmission := strings.CutSuffix(name, mutated)
	t := templateOf(name)
	if byAdmission {
		t.Annotations = map[string]string{"example.org/injected": "true"}
	}
	t.Spec.RestartPolicy = corev1.RestartPolicyAlways
	t.Spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
	return t
}

// bring sets spec.template and spec.commit.
func (s *story) bring(name, commit string) {
	s.release(func(br *v1alpha1.BatchRelease) { br.Spec.Template, br.Spec.Commit = ptr.To(templateOf(name)), commit })
}

// approve sets spec.approval.
func (s *story) approve(revision, commit string, step int32, steps ...intstr.IntOrString) {
	s.release(func(br *v1alpha1.BatchRelease) {
		br.Spec.Approval = &v1alpha1.Approval{Revision: revision, Commit: commit, Step: step, Steps: steps}
	})
}

// status writes the status as the controller does.
func (s *story) status(status v1alpha1.BatchReleaseStatus) {
	s.release(func(br *v1alpha1.BatchRelease) {
		status.ObservedGeneration = br.Generation
		br.Status, br.ManagedFields = status, stateBy(tranche)
	})
}

// complete sets the state of the step that the status shows, by a field manager.
func (s *story) complete(by string) {
	s.release(func(br *v1alpha1.BatchRelease) {
		br.Status.CurrentStepState, br.ManagedFields = v1alpha1.StepCompleted, stateBy(by)
	})
}

// stateBy makes a manager the owner of status.currentStepState.
func stateBy(manager string) []metav1.ManagedFieldsEntry {
	e := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", FieldsV1: &metav1.FieldsV1{}}
	e.FieldsV1.SetRawBytes([]byte(`{"f:status":{"f:currentStepState":{}}}`))
	return []metav1.ManagedFieldsEntry{e}
}

// pause gives the plan's steps these pauses.
func (s *story) pause(durations ...time.Duration) {
	s.release(func(br *v1alpha1.BatchRelease) {
		for i, d := range durations {
			br.Spec.Strategy.Steps[i].Pause = &v1alpha1.Pause{Duration: metav1.Duration{Duration: d}}
		}
	})
}

// steps edits the plan.
func (s *story) steps(replicas ...string) {
	s.release(func(br *v1alpha1.BatchRelease) {
		br.Spec.Strategy.Steps = nil
		for _, r := range replicas {
			br.Spec.Strategy.Steps = append(br.Spec.Strategy.Steps, v1alpha1.Step{Replicas: intstr.Parse(r)})
		}
	})
}

// hold holds the Deployment at a template, as Tranche does.
func (s *story) hold(name string) {
	s.deployment(tranche, func(d *appsv1.Deployment) {
		d.Labels, d.Spec.Template = map[string]string{v1alpha1.LabelHeld: "true"}, kept(name)
		d.Spec.Paused, d.Spec.Strategy = true, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	})
}

func (s *story) see(o client.Object, gone bool) {
	s.v.See(Change{At: s.now, Object: o, Gone: gone})
}

func (s *story) later(d time.Duration) { s.now = s.now.Add(d) }

// by makes a manager the owner of fields.
func (s *story) by(o client.Object, manager string, fields ...string) {
	var entries []metav1.ManagedFieldsEntry
	raw := "{"
	for i, f := range fields {
		if i > 0 {
			raw += ","
		}
		raw += fmt.Sprintf(`"f:spec":{"f:%s":{}}`, f)
	}
	e := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: s.now}, FieldsV1: &metav1.FieldsV1{}}
	e.FieldsV1.SetRawBytes([]byte(raw + "}"))
	o.SetManagedFields(append(entries, e))
}

func (s *story) deployment(by string, edit func(*appsv1.Deployment)) {
	s.later(time.Millisecond)
	s.d = s.d.DeepCopy()
	edit(s.d)
	s.d.Generation++
	s.by(s.d, by)
	s.see(s.d, false)
}

func (s *story) release(edit func(*v1alpha1.BatchRelease)) {
	s.later(time.Millisecond)
	old := s.br
	s.br = s.br.DeepCopy()
	edit(s.br)
	if !equality.Semantic.DeepEqual(old.Spec, s.br.Spec) {
		s.br.Generation++
	}
	s.see(s.br, false)
}

// size gives a ReplicaSet a size, as a field manager.
func (s *story) size(name string, n int32, by string, edit ...func(*appsv1.ReplicaSet)) {
	s.later(time.Millisecond)
	rs := s.rs[name]
	if rs == nil {
		rs = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: types.UID(name), Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		}}
	}
	rs = rs.DeepCopy()
	rs.Spec.Template = kept(name)
	metav1.SetMetaDataLabel(&rs.Spec.Template.ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, name)
	rs.Generation++
	rs.Spec.Replicas = &n
	rs.Annotations = map[string]string{
		engine.AnnotationDesiredReplicas: fmt.Sprint(*s.d.Spec.Replicas), engine.AnnotationMaxReplicas: fmt.Sprint(*s.d.Spec.Replicas + 1),
	}
	for _, e := range edit {
		e(rs)
	}
	s.by(rs, by, "replicas")
	s.rs[name] = rs
	s.see(rs, false)
}

// ready makes the ReplicaSet have n ready pods, and no others.
func (s *story) ready(set string, n int) {
	for len(s.pod[set]) < n {
		s.broken(set)
	}
	for i := range s.pod[set] {
		s.turn(set, i, true)
	}
}

// broken gives the ReplicaSet a pod that is not ready.
func (s *story) broken(set string) {
	s.later(time.Millisecond)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%d", set, len(s.pod[set])), Namespace: "shop", UID: types.UID(fmt.Sprintf("%s-%d", set, len(s.pod[set]))),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.rs[set], appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
	}}
	s.pod[set] = append(s.pod[set], p)
	s.see(p, false)
}

// turn makes a pod ready, or not.
func (s *story) turn(set string, i int, ready bool) {
	s.later(time.Millisecond)
	p := s.pod[set][i].DeepCopy()
	p.Status.Conditions = nil
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: s.now}}}
	}
	s.pod[set][i] = p
	s.see(p, false)
}

// kill makes a pod terminate.
func (s *story) kill(set string, i int) {
	s.later(time.Millisecond)
	p := s.pod[set][i].DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: s.now}
	s.pod[set][i] = p
	s.see(p, false)
}

// handBack is right unless an edit makes it wrong.
func (s *story) handBack(by string, edit ...func(*appsv1.Deployment)) {
	s.deployment(by, func(d *appsv1.Deployment) {
		d.Labels, d.Spec.Paused = nil, false
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
		}
		for _, e := range edit {
			e(d)
		}
	})
}

// all brings everything to the new ReplicaSet, as a release would, until the hand-back.
func (s *story) all() {
	s.run()
	s.release(func(br *v1alpha1.BatchRelease) { br.Status.Phase = v1alpha1.PhaseFinalizing })
}

// run brings everything to the new ReplicaSet.
func (s *story) run() {
	s.approve("new", commitNew, 1)
	for i, n := range []int32{1, 2, 3, 4} {
		s.size("new", n, tranche)
		s.ready("new", int(n))
		s.size("old", 4-n, tranche)
		s.kill("old", i)
	}
}

// scale sets N, as a user.
func (s *story) scale(n int32) {
	s.deployment("ada", func(d *appsv1.Deployment) { d.Spec.Replicas = &n })
}

// sequence is a story with what it breaks.
type sequence struct {
	because string
	tell    func(s *story)
	want    []string // how what is broken begins
}

// whole: a release as it should be.
var whole = []sequence{
	{"a whole release breaks nothing", func(s *story) { s.all(); s.handBack(tranche) }, nil},
}

// taken: I1.
var taken = []sequence{
	{"N is 4, U is 0, and an available pod goes before another comes", func(s *story) { s.size("old", 3, tranche) }, []string{"I1"}},
	{"the new pod is there and not ready", func(s *story) { s.size("new", 1, tranche); s.broken("new"); s.size("old", 3, tranche) }, []string{"I1"}},
	{"the new pod is ready", func(s *story) { s.size("new", 1, tranche); s.ready("new", 1); s.size("old", 3, tranche) }, nil},
	{"the new pod is ready, not for minReadySeconds", func(s *story) {
		slow := func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 10 }
		s.size("new", 1, tranche, slow)
		s.ready("new", 1)
		s.later(9 * time.Second)
		s.size("old", 3, tranche)
	}, []string{"I1"}},
	{"the new pod has been ready for minReadySeconds", func(s *story) {
		s.size("new", 1, tranche, func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 10 })
		s.ready("new", 1)
		s.later(11 * time.Second)
		s.size("old", 3, tranche)
	}, nil},
	{"the new pod terminates", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.kill("new", 0)
		s.later(time.Minute)
		s.size("old", 3, tranche)
	}, []string{"I1"}},
	{"what is not ready goes first, and costs nothing", func(s *story) { s.turn("old", 2, false); s.later(time.Minute); s.size("old", 3, tranche) }, nil},
	{"one that is not ready for its status goes first, and has become ready", func(s *story) {
		s.size("old", 3, tranche, func(rs *appsv1.ReplicaSet) { rs.Status.ObservedGeneration, rs.Status.ReadyReplicas = 1, 3 })
	}, nil},
	{"all are ready for its status", func(s *story) {
		s.size("old", 3, tranche, func(rs *appsv1.ReplicaSet) { rs.Status.ObservedGeneration, rs.Status.ReadyReplicas = 1, 4 })
	}, []string{"I1"}},
	{"of two that go only one is not ready", func(s *story) { s.turn("old", 2, false); s.later(time.Minute); s.size("old", 2, tranche) }, []string{"I1"}},
	{"a pod that has just been lost is not Tranche's", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.turn("new", 0, false)
		s.size("old", 3, tranche)
	}, nil},
	{"a pod that others have just deleted is not Tranche's", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.kill("new", 0)
		s.size("old", 3, tranche)
	}, nil},
	{"a pod that was lost long ago is known", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.turn("new", 0, false)
		s.later(time.Minute)
		s.size("old", 3, tranche)
	}, []string{"I1"}},
	{"a pod that goes since its ReplicaSet is smaller is lost by nobody else", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.size("old", 3, tranche)
		s.kill("old", 0)
		s.size("old", 2, tranche)
	}, []string{"I1"}},
	{"two decreases of which the first has not been acted on yet", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.size("old", 3, tranche)
		s.size("old", 2, tranche)
	}, []string{"I1"}},
	{"another hand makes it smaller", func(s *story) { s.size("old", 3, "kubectl") }, nil},
	{"N is smaller now", func(s *story) { s.scale(3); s.later(time.Minute); s.size("old", 3, tranche) }, nil},
	{"N was smaller a moment ago", func(s *story) { s.scale(3); s.scale(4); s.size("old", 3, tranche) }, nil},
	{"N was smaller long ago", func(s *story) { s.scale(3); s.scale(4); s.later(time.Minute); s.size("old", 3, tranche) }, []string{"I1"}},
}

// totals: I2.
var totals = []sequence{
	{"N+S is 5", func(s *story) { s.size("new", 1, tranche); s.size("old", 5, tranche) }, []string{"I2"}},
	{"N+S was 6 a moment ago", func(s *story) { s.scale(5); s.scale(4); s.size("new", 1, tranche); s.size("old", 5, tranche) }, nil},
	{"another manager has deleted the only one with pods, and two controllers answer (H26)", func(s *story) {
		s.size("new", 0, tranche)
		s.see(s.rs["old"], true)
		s.size("new", 4, native)
		delete(s.rs, "old")
		s.size("old", 4, tranche)
	}, nil},
	{"N+S is 6 since the plan says so", func(s *story) {
		s.release(func(br *v1alpha1.BatchRelease) {
			br.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(2))}}
		})
		s.size("new", 1, tranche)
		s.size("old", 5, tranche)
	}, nil},
}

// to makes one ReplicaSet larger and the other one smaller.
func (s *story) to(old, update int32) {
	s.size("old", old, "kubectl")
	s.size("new", update, tranche)
	s.ready("new", int(update))
}

// targets: I3, as the gates are open by what users gave.
var targets = []sequence{
	{"step 0 lets 1 go", func(s *story) { s.size("new", 2, tranche) }, []string{"I3", "I2"}},
	{"step 0 lets 1 go, whoever it is", func(s *story) { s.size("old", 2, "kubectl"); s.size("new", 2, "kubectl") }, []string{"I3"}},
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
	{"step 0 is approved, and step 1 is not", func(s *story) { s.to(3, 1); s.approve("new", commitNew, 0); s.to(2, 2); s.to(1, 3) }, []string{"I3", "I5"}},
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
	{"a pause, and then the next step waits for an approval", func(s *story) { s.pause(0); s.to(3, 1); s.to(2, 2); s.to(0, 4) }, []string{"I3"}},
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
	{"the approval is for another revision", func(s *story) { s.to(3, 1); s.approve("other", commitNew, 2); s.to(2, 2) }, []string{"I3", "I5"}},
	{"the approval is for another commit", func(s *story) { s.to(3, 1); s.approve("new", commitOld, 2); s.to(2, 2) }, []string{"I3", "I5"}},
	{"the approval names too little of the commit", func(s *story) { s.to(3, 1); s.approve("new", commitNew[:6], 2); s.to(2, 2) }, []string{"I3", "I5"}},
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
	{"a user completes one step in the status, and not the next", func(s *story) { s.to(3, 1); s.complete("kubectl-edit"); s.to(2, 2); s.to(1, 3) }, []string{"I3"}},
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

// end brings all pods from one revision to another, and hands it back.
func (s *story) end(from, to string) {
	s.size(from, 0, "kubectl")
	s.size(to, 4, tranche)
	s.ready(to, 4)
	s.handBack(tranche)
	s.later(time.Minute)
}

// rollBack goes from new to old since a user asks for it; Git still brings new.
func (s *story) rollBack(to string) {
	s.release(func(br *v1alpha1.BatchRelease) {
		br.Annotations = map[string]string{v1alpha1.AnnotationRollback: "true"}
	})
	s.hold(to)
	s.release(func(br *v1alpha1.BatchRelease) { br.Annotations = nil })
	s.later(time.Minute)
	s.end("new", to)
}

// grow brings a revision past the first step, from new.
func (s *story) grow(name string) {
	s.hold(name)
	s.later(time.Minute)
	s.size("new", 2, "kubectl")
	s.size(name, 2, tranche)
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

// planAgain deletes the plan, and creates it again.
func (s *story) planAgain() {
	s.v.See(Change{At: s.now, Object: s.br, Gone: true})
	s.br = s.br.DeepCopy()
	s.br.UID, s.br.Status = "br2", v1alpha1.BatchReleaseStatus{}
	s.release(func(*v1alpha1.BatchRelease) {})
	s.status(v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseCompleted, StableRevision: "new", UpdateRevision: "new"})
	s.deployment(native, func(*appsv1.Deployment) {})
	s.later(time.Minute)
}

// through releases a revision past all gates, and hands it back.
func (s *story) through(from, to, commit string) {
	s.bring(to, commit)
	s.hold(to)
	s.approve(to, commit, 1)
	for _, n := range []int32{1, 2} {
		s.size(from, 4-n, "kubectl")
		s.size(to, n, tranche)
		s.ready(to, int(n))
	}
	s.end(from, to)
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

// atZero: at 0 replicas the controller writes the template with no hold.
func (s *story) atZero(name, commit string) {
	s.all()
	s.handBack(tranche)
	s.deployment("ada", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(0)) })
	s.size("new", 0, native)
	s.later(time.Minute)
	s.bring(name, commit)
	s.deployment(tranche, func(d *appsv1.Deployment) { d.Spec.Template = kept(name) })
	s.scale(4)
	s.size(name, 4, native)
	s.ready(name, 4)
	s.later(time.Minute)
}

// amid begins the release of next, and has another one brought in the middle of it.
func (s *story) amid(stable, name string) {
	s.bring("next", commitLast)
	s.hold("next")
	s.later(time.Minute)
	s.size(stable, 3, "kubectl")
	s.size("next", 1, tranche)
	s.later(time.Minute)
	s.bring(name, commitOld)
	s.hold(name)
	s.later(time.Minute)
	s.size(stable, 1, "kubectl")
	s.size(name, 3, tranche)
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

// supersede brings another release before the hand-back of new, and one pod of it.
func (s *story) supersede() {
	s.bring("next", commitNext)
	s.hold("next")
	s.later(time.Minute)
	s.size("new", 3, "kubectl")
	s.size("next", 1, tranche)
	s.ready("next", 1)
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

// handBacks: I7.
var handBacks = []sequence{
	{"handed back by halves (H9)", func(s *story) { s.all(); s.handBack(tranche, func(d *appsv1.Deployment) { d.Spec.Paused = true }) }, []string{"I7"}},
	{"handed back as it was held", func(s *story) {
		s.all()
		s.handBack(tranche, func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		})
	}, []string{"I7"}},
	{"handed back with defaults that are not the manifest's", func(s *story) {
		s.all()
		s.handBack(tranche, func(d *appsv1.Deployment) { d.Spec.Strategy = complete(&appsv1.DeploymentStrategy{}) })
	}, []string{"I7"}},
	{"handed back with what the plan says", func(s *story) {
		s.all()
		s.release(func(br *v1alpha1.BatchRelease) { br.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{} })
		s.handBack(tranche, func(d *appsv1.Deployment) { d.Spec.Strategy = complete(&appsv1.DeploymentStrategy{}) })
	}, nil},
	{"an annotation of ours on the Deployment", func(s *story) {
		s.all()
		s.handBack(tranche, func(d *appsv1.Deployment) { d.Annotations = map[string]string{"tranche.dev/strategy": "{}"} })
	}, []string{"I7"}},
	{"an annotation that people write", func(s *story) {
		s.all()
		s.handBack(tranche, func(d *appsv1.Deployment) { d.Annotations = map[string]string{"tranche.dev/prune": "disabled"} })
	}, nil},
	{"an annotation of ours on a ReplicaSet (H13)", func(s *story) {
		s.size("new", 1, tranche, func(rs *appsv1.ReplicaSet) { rs.Annotations["tranche.dev/strategy"] = "{}" })
	}, []string{"I7"}},
	{"a label of ours in a template", func(s *story) {
		s.size("new", 1, tranche, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels["tranche.dev/step"] = "1" })
	}, []string{"I7"}},
	{"desired-replicas is not N at hand-back (H11)", func(s *story) {
		s.all()
		s.size("new", 4, tranche, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationDesiredReplicas] = "5" })
		s.handBack(tranche)
	}, []string{"I7"}},
	{"max-replicas is not N+S at hand-back (H11)", func(s *story) {
		s.all()
		s.size("new", 4, tranche, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationMaxReplicas] = "4" })
		s.handBack(tranche)
	}, []string{"I7"}},
	{"the native controller has written max-replicas in the last moment, since another hand has taken pods away", func(s *story) {
		s.all()
		s.size("new", 0, "kubectl")
		s.size("new", 4, native, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationMaxReplicas] = "4" })
		s.handBack(tranche)
	}, nil},
	{"it did so long before the hand-back", func(s *story) {
		s.all()
		s.size("new", 0, "kubectl")
		s.size("new", 4, native, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationMaxReplicas] = "4" })
		s.later(time.Minute)
		s.handBack(tranche)
	}, []string{"I7"}},
	{"desired-replicas is not N once the native controller has seen it (H11)", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.size("new", 4, native, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationDesiredReplicas] = "5" })
		s.deployment(native, func(d *appsv1.Deployment) { d.Status.ObservedGeneration = d.Generation + 1 })
	}, []string{"I7"}},
	{"another hand takes the label away: that is no hand-back", func(s *story) {
		s.handBack("kubectl", func(d *appsv1.Deployment) { d.Spec.Paused = true })
	}, nil},
}

// opened: I8.
var opened = []sequence{
	{"resumed (H8)", func(s *story) { s.deployment("kubectl-rollout", func(d *appsv1.Deployment) { d.Spec.Paused = false }) }, []string{"I8"}},
}

// fights: I10.
var fights = []sequence{
	{"a fight (H1)", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.later(time.Minute)
		s.size("old", 4, native)
	}, []string{"I10"}},
	{"another manager makes the one smaller that is active, and the native controller undoes it (H1)", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("old", 4, native)
	}, nil},
	{"another manager scales the stable one to 0, and the native controller brings up the other (H26)", func(s *story) {
		s.to(3, 1)
		s.later(time.Minute)
		s.size("old", 0, "kubectl")
		s.size("new", 4, native)
	}, nil},
	{"another manager makes one smaller while Tranche takes the other one away (H26)", func(s *story) {
		s.to(4, 1)
		s.later(time.Minute)
		s.size("old", 2, "kubectl")
		s.size("new", 0, tranche)
		s.size("old", 4, native)
	}, nil},
	{"another manager made one smaller long before", func(s *story) {
		s.to(4, 1)
		s.size("old", 2, "kubectl")
		s.later(time.Minute)
		s.size("new", 0, tranche)
		s.size("old", 4, native)
	}, []string{"I1", "I10"}},
	{"another manager made the only one smaller just before the hold", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.size("new", 0, "kubectl")
		s.hold("new")
		s.size("new", 4, native)
	}, nil},
	{"another manager made the only one smaller long before the hold", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.size("new", 0, "kubectl")
		s.later(time.Minute)
		s.hold("new")
		s.size("new", 4, native)
	}, []string{"I10"}},
	{"the native controller follows N where there is nothing to split", func(s *story) { s.scale(5); s.size("old", 5, native) }, nil},
	{"it follows N with what another hand has left, and Git has brought for a moment", func(s *story) {
		s.size("old", 0, "kubectl")
		s.size("other", 4, "kubectl")
		s.later(time.Minute)
		s.bring("other", commitNext)
		s.bring("next", commitLast)
		s.scale(5)
		s.size("other", 5, native)
	}, nil},
	{"it follows N with what another hand has left, past the gates of a commit that brings it", func(s *story) {
		s.size("old", 0, "kubectl")
		s.size("other", 4, "kubectl")
		s.later(time.Minute)
		s.bring("other", commitNext)
		s.scale(5)
		s.size("other", 5, native)
	}, []string{"I3", "I10"}},
	{"it follows N down with what a new commit brings again, all pods of which run", func(s *story) {
		s.all()
		s.bring("new", commitNext)
		s.scale(3)
		s.size("new", 3, native)
	}, nil},
	{"it follows N up with that, past the gates of the new commit", func(s *story) {
		s.all()
		s.bring("new", commitNext)
		s.scale(5)
		s.size("new", 5, native)
	}, []string{"I10"}},
	{"one is active, and the native controller undoes what Tranche did (H1)", func(s *story) {
		s.turn("old", 2, false)
		s.size("old", 3, tranche)
		s.size("old", 4, native)
	}, []string{"I10"}},
	{"another hand opens the hold (H7)", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Strategy = appsv1.DeploymentStrategy{} })
		s.size("old", 4, native)
		s.size("new", 2, native)
	}, nil},
	{"another hand has deleted the other ReplicaSet", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.see(s.rs["new"], true)
		s.size("old", 4, native)
	}, nil},
	{"the hold was taken in the middle of a native rollout, whose next write was on its way", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Template = kept("drift") })
		s.size("drift", 1, native)
		s.size("new", 3, native)
		s.hold("new")
		s.size("new", 2, native)
	}, nil},
	{"the hold was taken in the middle of a native rollout, and the native controller has seen it", func(s *story) {
		s.all()
		s.handBack(tranche)
		s.later(time.Minute)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Template = kept("drift") })
		s.size("drift", 1, native)
		s.size("new", 3, native)
		s.hold("new")
		s.deployment(native, func(d *appsv1.Deployment) { d.Status.ObservedGeneration = d.Generation + 1 })
		s.size("new", 2, native)
	}, []string{"I10"}},
	{"another hand had the hold open long ago", func(s *story) {
		s.size("old", 3, "kubectl")
		s.size("new", 1, tranche)
		s.deployment("kubectl", func(d *appsv1.Deployment) { d.Spec.Strategy = appsv1.DeploymentStrategy{} })
		s.deployment(tranche, func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		})
		s.later(time.Minute)
		s.size("old", 4, native)
	}, []string{"I10"}},
	{"not in a Deployment that is not held", func(s *story) { s.all(); s.handBack(tranche); s.size("old", 1, native) }, nil},
	{"the plan is gone: the native controller finishes", func(s *story) {
		s.size("new", 1, tranche)
		s.ready("new", 1)
		s.see(s.br, true)
		s.handBack(tranche)
		s.size("new", 4, native)
		s.size("old", 0, native)
	}, nil},
}

func TestInvariants(t *testing.T) {
	for _, tc := range slices.Concat(whole, taken, totals, targets, waits, approvals, edits, back, returns, again, empty, superseded,
		unknown, handBacks, opened, fights) {
		t.Run(tc.because, func(t *testing.T) {
			s := newStory()
			tc.tell(s)
			var got []string
			for _, b := range s.v.broken {
				rule, _, _ := strings.Cut(strings.TrimPrefix(b.What, "web: "), ":")
				got = append(got, rule)
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("broken (-want +got):\n%s%v", diff, s.v.broken)
			}
		})
	}
}

// Fields say which manager has written if times, which are in seconds, do not.
func TestWriter(t *testing.T) {
	entry := func(manager, fields string, second int) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: time.Unix(int64(second), 0)}, FieldsV1: &metav1.FieldsV1{}}
		e.FieldsV1.SetRawBytes([]byte(fields))
		return e
	}
	const size, none = `{"f:spec":{"f:replicas":{}}}`, `{}`
	for _, tc := range []struct {
		because       string
		before, after []metav1.ManagedFieldsEntry
		writer, owner string
	}{
		{"the only one", nil, []metav1.ManagedFieldsEntry{entry(native, size, 1)}, native, native},
		{"the later one", []metav1.ManagedFieldsEntry{entry(native, size, 1)}, []metav1.ManagedFieldsEntry{entry(native, none, 1), entry(tranche, size, 2)}, tranche, tranche},
		{"in the same second, Tranche from the native one", []metav1.ManagedFieldsEntry{entry(native, size, 1)},
			[]metav1.ManagedFieldsEntry{entry(native, none, 1), entry(tranche, size, 1)}, tranche, tranche},
		{"in the same second, the native one from Tranche", []metav1.ManagedFieldsEntry{entry(native, none, 1), entry(tranche, size, 1)},
			[]metav1.ManagedFieldsEntry{entry(native, size, 1), entry(tranche, none, 1)}, native, native},
	} {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.after}}
		if got := Writer(rs, tc.before); got != tc.writer {
			t.Errorf("%s: written by %s, want %s", tc.because, got, tc.writer)
		}
		if got := resizer(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.before}}, rs); got != tc.owner {
			t.Errorf("%s: resized by %s, want %s", tc.because, got, tc.owner)
		}
	}
}
