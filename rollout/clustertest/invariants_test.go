package clustertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
)

// story tells events to the invariants: Deployment web of 4 (maxSurge 1,
// maxUnavailable 0) with ReplicaSets old and new, held, at the first of the
// steps 1, 50%, 100%.
type story struct {
	v   *invariants
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
	s := &story{v: newInvariants(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), rs: map[string]*appsv1.ReplicaSet{}, pod: map[string][]*corev1.Pod{}}
	strategy := appsv1.DeploymentStrategy{
		Type:          appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))},
	}
	s.d = &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "d", Generation: 1},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(int32(4)), Strategy: strategy},
	}
	s.br = &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "br"}}
	s.br.Spec.WorkloadRef.Name = "web"
	for _, step := range []string{"1", "50%", "100%"} {
		s.br.Spec.Strategy.Steps = append(s.br.Spec.Strategy.Steps, v1alpha1.Step{Replicas: intstr.Parse(step)})
	}
	s.br.Status = v1alpha1.BatchReleaseStatus{Phase: v1alpha1.PhaseRollingUpdate, StableRevision: "old", UpdateRevision: "new"}
	s.deployment("ada", func(*appsv1.Deployment) {})
	s.size("old", 4, native)
	s.ready("old", 4)
	s.release(func(*v1alpha1.BatchRelease) {})
	s.deployment(tranche, func(d *appsv1.Deployment) {
		d.Labels = map[string]string{v1alpha1.LabelHeld: "true"}
		d.Spec.Paused, d.Spec.Strategy = true, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	})
	s.later(time.Minute)
	return s
}

func (s *story) see(o client.Object, gone bool) {
	s.v.see(change{at: s.now, object: o, gone: gone})
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
	s.br = s.br.DeepCopy()
	edit(s.br)
	s.see(s.br, false)
}

// size gives a ReplicaSet a size, by somebody.
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

// all brings everything to the new ReplicaSet, as a release would.
func (s *story) all() {
	for i, n := range []int32{1, 2, 3, 4} {
		s.release(func(br *v1alpha1.BatchRelease) { br.Status.CurrentStepIndex = min(2, int32(i)) })
		s.size("new", n, tranche)
		s.ready("new", int(n))
		s.size("old", 4-n, tranche)
		s.kill("old", i)
	}
	s.release(func(br *v1alpha1.BatchRelease) { br.Status.Phase = v1alpha1.PhaseFinalizing })
}

// scale sets N, by other hands.
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
	{"N+S is 6 since the plan says so", func(s *story) {
		s.release(func(br *v1alpha1.BatchRelease) {
			br.Spec.DeploymentStrategy = &appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(2))}}
		})
		s.size("new", 1, tranche)
		s.size("old", 5, tranche)
	}, nil},
}

// targets: I3.
var targets = []sequence{
	{"step 0 lets 1 go", func(s *story) { s.size("new", 2, tranche) }, []string{"I3", "I2"}},
	{"step 0 lets 1 go, whoever it is", func(s *story) { s.size("old", 2, "kubectl"); s.size("new", 2, "kubectl") }, []string{"I3"}},
	{"step 1 lets 2 go", func(s *story) {
		s.release(func(br *v1alpha1.BatchRelease) { br.Status.CurrentStepIndex = 1 })
		s.size("old", 2, "kubectl")
		s.size("new", 2, tranche)
	}, nil},
	{"step 1 of N = 2 lets 1 go", func(s *story) {
		s.release(func(br *v1alpha1.BatchRelease) { br.Status.CurrentStepIndex = 1 })
		s.scale(2)
		s.later(time.Minute)
		s.size("new", 2, tranche)
	}, []string{"I3", "I2"}},
	{"to zero and back, and the native controller brings all up past the gate (H4)", func(s *story) {
		s.size("old", 0, "kubectl")
		s.size("new", 4, native)
	}, []string{"I3", "I10"}},
	{"a rollback has no gate", func(s *story) {
		s.release(func(br *v1alpha1.BatchRelease) { br.Status.RollingBack = true })
		s.size("old", 0, "kubectl")
		s.size("new", 4, tranche)
	}, nil},
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
		s.size("new", 1, tranche, func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = map[string]string{"tranche.dev/step": "1"} })
	}, []string{"I7"}},
	{"desired-replicas is not N at hand-back (H11)", func(s *story) {
		s.all()
		s.size("new", 4, tranche, func(rs *appsv1.ReplicaSet) { rs.Annotations[engine.AnnotationDesiredReplicas] = "5" })
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
	{"a fight (H1)", func(s *story) { s.size("old", 3, "kubectl"); s.size("new", 1, tranche); s.size("old", 4, native) }, []string{"I10"}},
	{"the native controller follows N where there is nothing to split", func(s *story) { s.scale(5); s.size("old", 5, native) }, nil},
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
	for _, tc := range slices.Concat(whole, taken, totals, targets, handBacks, opened, fights) {
		t.Run(tc.because, func(t *testing.T) {
			s := newStory()
			tc.tell(s)
			var got []string
			for _, b := range s.v.broken {
				rule, _, _ := strings.Cut(strings.TrimPrefix(b.what, "web: "), ":")
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

// Who has written is told by fields where times, in seconds, do not.
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
		if got := writer(rs, tc.before); got != tc.writer {
			t.Errorf("%s: written by %s, want %s", tc.because, got, tc.writer)
		}
		if got := resizer(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.before}}, rs); got != tc.owner {
			t.Errorf("%s: resized by %s, want %s", tc.because, got, tc.owner)
		}
	}
}
