package simulation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// Simulation is a plan, and the circumstances in which to try it.
type Simulation struct {
	Plan v1alpha1.BatchStrategy
	// Replicas of the Deployment.
	Replicas int32
	// Strategy of its manifest: maxSurge and maxUnavailable.
	Strategy appsv1.DeploymentStrategy
	// MinReadySeconds of the Deployment.
	MinReadySeconds int32
	// PodReady is how long a new pod takes to become ready.
	PodReady time.Duration
	// ApproveAfter is how long a person takes to approve a step.
	ApproveAfter time.Duration
	// Fails: the pods that are made from step FailAt on never become ready.
	Fails  bool
	FailAt int32
	// Outcomes are of metrics that do not pass.
	Outcomes []Outcome
}

// Moment is one line of a simulation: what stands after something has moved.
type Moment struct {
	// At is the time since the release began.
	At time.Duration
	// Step that the release is at.
	Step int32
	// Updated pods run the update revision, Stable ones the stable one; of
	// each as many are available.
	Updated, UpdatedAvailable, Stable, StableAvailable int32
	// Target is how many pods the step is to have: of the update revision, or
	// of the stable one where the release goes back.
	Target int32
	Back   bool
	// Reason and Message are those of the release's status.
	Reason, Message string
	// Events tell what was decided.
	Events []engine.Event
}

// Bounds are what no moment may pass: available pods from below, pods from above.
func (s *Simulation) Bounds() (least, most int32, err error) {
	strategy := facts.CompleteStrategy(&s.Strategy)
	surge, unavailable, err := plan.Bounds(&strategy, s.Replicas)
	return s.Replicas - unavailable, s.Replicas + surge, err
}

// longest is how many rounds a simulation may take; one of 30 steps and 1,000
// pods that come up one by one takes less.
const longest = 100_000

// Run carries the plan out: [engine.Decide] decides, as it does in a cluster, on pods that do
// what the circumstances say. It returns a moment for each round that moved something.
// The last one is where the release ends, or waits for what the simulation has not got.
func (s *Simulation) Run() ([]Moment, error) {
	if _, _, err := s.Bounds(); err != nil {
		return nil, fmt.Errorf("spec.strategy: %w", err)
	}
	m := newModel(s)
	var moments []Moment
	for range longest {
		d := engine.Decide(m.observe(), m.now)
		moved := m.take(d)
		if moved {
			moments = append(moments, m.moment(d))
			continue
		}
		if !m.wait(d) {
			return moments, nil
		}
	}
	return moments, errors.New("the simulation does not come to an end")
}

// model is a Deployment with two revisions.
type model struct {
	*Simulation
	now      time.Time
	release  v1alpha1.BatchRelease
	d        appsv1.Deployment
	records  []engine.Record
	sets     [2]*appsv1.ReplicaSet // update, stable
	pods     [2][]modelPod
	approves time.Time
	measured []engine.Measured
}

type modelPod struct {
	born  time.Time
	fails bool
}

// began is when every simulation begins, so that the times of day in messages
// read as times since.
var began = time.Unix(0, 0).UTC()

const simulated = "simulated"

func newModel(s *Simulation) *model {
	m := &model{Simulation: s, now: began}
	names := [2]string{"update", "stable"}
	for i, name := range names {
		labels := map[string]string{"app": simulated, appsv1.DefaultDeploymentUniqueLabelKey: name}
		m.sets[i] = &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: simulated + "-" + name, Labels: labels, Annotations: map[string]string{}},
			Spec: appsv1.ReplicaSetSpec{Replicas: new(int32),
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeName: name}}},
		}
	}
	template := func(i int) *corev1.PodTemplateSpec {
		t := m.sets[i].Spec.Template.DeepCopy()
		delete(t.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		return t
	}
	strategy := facts.CompleteStrategy(&s.Strategy)
	m.d = appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: simulated, Generation: 1},
		Spec:       appsv1.DeploymentSpec{Replicas: &s.Replicas, Strategy: strategy, MinReadySeconds: s.MinReadySeconds, Template: *template(1)},
	}
	m.release.Name = simulated
	m.release.Spec = v1alpha1.BatchReleaseSpec{Strategy: s.Plan, Template: template(0), DeploymentStrategy: &strategy,
		WorkloadRef: v1alpha1.WorkloadReference{Name: simulated}}
	m.records = []engine.Record{{Order: 1, Revision: names[1], Template: template(1), Strategy: &strategy}}
	m.resize(1, s.Replicas, s.Replicas)
	for i := range m.pods[1] {
		m.pods[1][i].born = began.Add(-time.Hour - s.PodReady - time.Duration(s.MinReadySeconds)*time.Second)
	}
	return m
}

func (m *model) observe() engine.Observed {
	m.d.Status.ObservedGeneration = m.d.Generation
	for i, rs := range m.sets {
		rs.Status = appsv1.ReplicaSetStatus{ReadyReplicas: m.count(i, m.PodReady), AvailableReplicas: m.count(i, m.available())}
	}
	return engine.Observed{Release: m.release.DeepCopy(), Deployment: m.d.DeepCopy(),
		ReplicaSets: []*appsv1.ReplicaSet{m.sets[1].DeepCopy(), m.sets[0].DeepCopy()},
		Records:     m.records, Template: m.release.Spec.Template.DeepCopy(), Measured: m.measured}
}

// available is how long a new pod takes to become available.
func (m *model) available() time.Duration {
	return m.PodReady + time.Duration(m.MinReadySeconds)*time.Second
}

// count is how many pods have come up that are this old.
func (m *model) count(i int, age time.Duration) int32 {
	var n int32
	for _, p := range m.pods[i] {
		if !p.fails && m.now.Sub(p.born) >= age {
			n++
		}
	}
	return n
}

// take makes the writes, and reports whether anything has moved.
func (m *model) take(d engine.Decision) bool {
	moved := len(d.Actions) > 0 || m.release.Status.Reason != d.Status.Reason ||
		m.release.Status.CurrentStepIndex != d.Status.CurrentStepIndex ||
		m.release.Status.CurrentStepState != d.Status.CurrentStepState || m.release.Status.Phase != d.Status.Phase
	for _, a := range d.Actions {
		m.do(a)
	}
	m.release.Status = d.Status
	return moved
}

func (m *model) do(a engine.Action) {
	switch a := a.(type) {
	case engine.Remember:
		if a.Written && slices.ContainsFunc(m.records, func(r engine.Record) bool { return r.Revision == a.Record.Revision }) {
			return // admission changes nothing here
		}
		m.records = append([]engine.Record{a.Record},
			slices.DeleteFunc(m.records, func(r engine.Record) bool { return r.Revision == a.Record.Revision })...)
	case engine.Forget:
		m.records = slices.DeleteFunc(m.records, func(r engine.Record) bool { return r.Revision == a.Record.Revision })
	case engine.Hold:
		m.d.Labels = map[string]string{v1alpha1.LabelHeld: "true"}
		m.d.Spec.Paused, m.d.Spec.Template = true, *a.Template
		m.d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	case engine.HandBack:
		m.d.Labels, m.d.Spec.Paused, m.d.Spec.Strategy = nil, false, a.Strategy
		if a.Template != nil {
			m.d.Spec.Template = *a.Template
		}
	case engine.Resize:
		i := slices.IndexFunc(m.sets[:], func(rs *appsv1.ReplicaSet) bool { return rs.Name == a.ReplicaSet.Name })
		m.resize(i, a.To, a.Desired)
	}
}

// resize makes pods, and takes the youngest away: those that are not ready are
// the youngest, and go first in a cluster, too.
func (m *model) resize(i int, to, desired int32) {
	rs := m.sets[i]
	*rs.Spec.Replicas = to
	rs.Annotations[engine.AnnotationDesiredReplicas] = strconv.Itoa(int(desired))
	_, most, _ := m.Bounds()
	rs.Annotations[engine.AnnotationMaxReplicas] = strconv.Itoa(int(most))
	for int32(len(m.pods[i])) < to {
		m.pods[i] = append(m.pods[i], modelPod{born: m.now, fails: i == 0 && m.Fails && m.release.Status.CurrentStepIndex >= m.FailAt})
	}
	m.pods[i] = m.pods[i][:to]
}

// wait lets time pass until something happens, and reports whether anything will.
func (m *model) wait(d engine.Decision) bool {
	var next time.Time
	at := func(t time.Time) {
		if t.After(m.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if d.Wait > 0 {
		at(m.now.Add(d.Wait))
	}
	m.comeUp(at)
	if d.Status.Reason == v1alpha1.ReasonWaitingForApproval {
		if m.approves.IsZero() {
			m.approves = m.now.Add(max(m.ApproveAfter, time.Nanosecond))
		}
		at(m.approves)
	}
	for _, q := range d.Measure {
		at(q.At)
	}
	if next.IsZero() || d.Status.Phase == v1alpha1.PhaseCompleted || stoppedByVerdict(&d.Status) {
		return false
	}
	m.now = next
	m.answer(d)
	if !m.approves.IsZero() && !m.now.Before(m.approves) {
		m.release.Spec.Approval = &v1alpha1.Approval{Revision: d.Status.UpdateRevision, Step: d.Status.CurrentStepIndex, ApprovedBy: "you"}
		m.approves = time.Time{}
	}
	return true
}

// comeUp names the times at which pods come up.
func (m *model) comeUp(at func(time.Time)) {
	for i := range m.pods {
		for _, p := range m.pods[i] {
			if !p.fails {
				at(p.born.Add(m.PodReady))
				at(p.born.Add(m.available()))
			}
		}
	}
}

// stoppedByVerdict reports whether a release waits for a person since a metric does not pass.
func stoppedByVerdict(s *v1alpha1.BatchReleaseStatus) bool {
	return s.Reason == v1alpha1.ReasonAnalysisFailed || s.Reason == v1alpha1.ReasonAnalysisUnknown
}

func (m *model) moment(d engine.Decision) Moment {
	s := m.release.Status
	at := position.New(&engine.Observed{Release: &m.release, Deployment: &m.d}, m.now)
	return Moment{
		At: m.now.Sub(began).Round(time.Millisecond), Step: s.CurrentStepIndex, Target: at.Planned(int(s.CurrentStepIndex)), Back: s.RollingBack,
		Updated: *m.sets[0].Spec.Replicas, UpdatedAvailable: m.count(0, m.available()),
		Stable: *m.sets[1].Spec.Replicas, StableAvailable: m.count(1, m.available()),
		Reason: s.Reason, Message: s.Message, Events: d.Events,
	}
}

// NewStrategy is a Deployment's strategy with these bounds; empty ones have the
// API server's defaults.
func NewStrategy(maxSurge, maxUnavailable string) appsv1.DeploymentStrategy {
	s := appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{}}
	for text, to := range map[string]**intstr.IntOrString{maxSurge: &s.RollingUpdate.MaxSurge,
		maxUnavailable: &s.RollingUpdate.MaxUnavailable} {
		if text != "" {
			v := intstr.Parse(text)
			*to = &v
		}
	}
	return facts.CompleteStrategy(&s)
}
