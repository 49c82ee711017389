package invariants

import (
	"fmt"
	"strings"
	"time"

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

// cluster gives events of its objects to a judge.
type cluster struct {
	v   *Judge
	now time.Time
	d   *appsv1.Deployment
	br  *v1alpha1.BatchRelease
	rs  map[string]*appsv1.ReplicaSet
	pod map[string][]*corev1.Pod
}

// story is what happens in a cluster. Deployment web of 4 (maxSurge 1, maxUnavailable
// 0) has ReplicaSets old and new, and is held at the first of the steps 1, 50%, 100%. Old
// has the stable template, and spec brings new.
type story struct{ cluster }

const (
	tranche = v1alpha1.ManagerRollout
	native  = NativeManager
)

func newStory() *story {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &story{cluster{v: New(), now: start, rs: map[string]*appsv1.ReplicaSet{}, pod: map[string][]*corev1.Pod{}}}
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
	s.status(v1alpha1.BatchReleaseStatus{
		Phase: v1alpha1.PhaseRollingUpdate, StableRevision: "old", UpdateRevision: "new", UpdateCommit: commitNew,
	})
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
	e := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", FieldsV1: &metav1.FieldsV1{},
	}
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

// analysis has the first step measured for a minute.
func (s *story) analysis(mode v1alpha1.AnalysisMode, approval bool) {
	s.release(func(br *v1alpha1.BatchRelease) {
		br.Spec.Strategy.Analysis = &v1alpha1.Analysis{Mode: mode}
		br.Spec.Strategy.Steps[0].Analysis = &v1alpha1.StepAnalysis{Duration: metav1.Duration{Duration: time.Minute}, Approval: approval}
	})
	s.later(time.Minute) // the plan without it does not count any more
}

// override approves a step, and has metrics not count.
func (s *story) override(step int32) {
	s.approve("new", commitNew, step)
	s.release(func(br *v1alpha1.BatchRelease) {
		br.Spec.Approval.Override = &v1alpha1.Override{Metrics: []string{"errors"}}
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

func (c *cluster) see(o client.Object, gone bool) {
	c.v.See(Change{At: c.now, Object: o, Gone: gone})
}

func (c *cluster) later(d time.Duration) { c.now = c.now.Add(d) }

// by makes a manager the owner of fields.
func (c *cluster) by(o client.Object, manager string, fields ...string) {
	var entries []metav1.ManagedFieldsEntry
	raw := "{"
	for i, f := range fields {
		if i > 0 {
			raw += ","
		}
		raw += fmt.Sprintf(`"f:spec":{"f:%s":{}}`, f)
	}
	e := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: c.now},
		FieldsV1: &metav1.FieldsV1{},
	}
	e.FieldsV1.SetRawBytes([]byte(raw + "}"))
	o.SetManagedFields(append(entries, e))
}

func (c *cluster) deployment(by string, edit func(*appsv1.Deployment)) {
	c.later(time.Millisecond)
	c.d = c.d.DeepCopy()
	edit(c.d)
	c.d.Generation++
	c.by(c.d, by)
	c.see(c.d, false)
}

func (c *cluster) release(edit func(*v1alpha1.BatchRelease)) {
	c.later(time.Millisecond)
	old := c.br
	c.br = c.br.DeepCopy()
	edit(c.br)
	if !equality.Semantic.DeepEqual(old.Spec, c.br.Spec) {
		c.br.Generation++
	}
	c.see(c.br, false)
}

// size gives a ReplicaSet a size, as a field manager.
func (c *cluster) size(name string, n int32, by string, edit ...func(*appsv1.ReplicaSet)) {
	c.later(time.Millisecond)
	rs := c.rs[name]
	if rs == nil {
		rs = &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: types.UID(name), Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c.d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		}}
	}
	rs = rs.DeepCopy()
	rs.Spec.Template = kept(name)
	metav1.SetMetaDataLabel(&rs.Spec.Template.ObjectMeta, appsv1.DefaultDeploymentUniqueLabelKey, name)
	rs.Generation++
	rs.Spec.Replicas = &n
	rs.Annotations = map[string]string{
		engine.AnnotationDesiredReplicas: fmt.Sprint(*c.d.Spec.Replicas), engine.AnnotationMaxReplicas: fmt.Sprint(*c.d.Spec.Replicas + 1),
	}
	for _, e := range edit {
		e(rs)
	}
	c.by(rs, by, "replicas")
	c.rs[name] = rs
	c.see(rs, false)
}

// ready makes the ReplicaSet have n ready pods, and no others.
func (c *cluster) ready(set string, n int) {
	for len(c.pod[set]) < n {
		c.broken(set)
	}
	for i := range c.pod[set] {
		c.turn(set, i, true)
	}
}

// broken gives the ReplicaSet a pod that is not ready.
func (c *cluster) broken(set string) {
	c.later(time.Millisecond)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("%s-%d", set, len(c.pod[set])), Namespace: "shop", UID: types.UID(fmt.Sprintf("%s-%d", set, len(c.pod[set]))),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(c.rs[set], appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
	}}
	c.pod[set] = append(c.pod[set], p)
	c.see(p, false)
}

// turn makes a pod ready, or not.
func (c *cluster) turn(set string, i int, ready bool) {
	c.later(time.Millisecond)
	p := c.pod[set][i].DeepCopy()
	p.Status.Conditions = nil
	if ready {
		p.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Time{Time: c.now}},
		}
	}
	c.pod[set][i] = p
	c.see(p, false)
}

// kill makes a pod terminate.
func (c *cluster) kill(set string, i int) {
	c.later(time.Millisecond)
	p := c.pod[set][i].DeepCopy()
	p.DeletionTimestamp = &metav1.Time{Time: c.now}
	c.pod[set][i] = p
	c.see(p, false)
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

// to makes one ReplicaSet larger and the other one smaller.
func (s *story) to(old, update int32) {
	s.size("old", old, "kubectl")
	s.size("new", update, tranche)
	s.ready("new", int(update))
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

// planAgain deletes the plan, and creates it again.
func (s *story) planAgain() {
	s.see(s.br, true)
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

// supersede brings another release before the hand-back of new, and one pod of it.
func (s *story) supersede() {
	s.bring("next", commitNext)
	s.hold("next")
	s.later(time.Minute)
	s.size("new", 3, "kubectl")
	s.size("next", 1, tranche)
	s.ready("next", 1)
}
