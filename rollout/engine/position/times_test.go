package position_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/position"
)

// The history has when each step had its pods, and when its gate opened.
func TestTimeStep(t *testing.T) {
	passed := func(available, opened *metav1.Time) []v1alpha1.StepTimes {
		return []v1alpha1.StepTimes{{Step: 2, AvailableTime: *available, OpenTime: opened}}
	}
	at := func(seconds int64) *metav1.Time { return &metav1.Time{Time: time.Unix(seconds, 0).UTC()} }
	for _, tt := range []struct {
		reason string
		state  v1alpha1.StepState
		since  *metav1.Time
		opens  bool
		want   []v1alpha1.StepTimes
	}{
		{"a gate that opens", v1alpha1.StepBlocking, at(10), true, passed(at(10), at(60))},
		{"one approved in the cluster", v1alpha1.StepCompleted, at(10), true, passed(at(10), at(60))},
		{"one that opens with the pods", v1alpha1.StepUpgrade, at(10), true, passed(at(60), at(60))},
		{"one before the step", v1alpha1.StepBlocking, nil, true, passed(at(60), at(60))},
		{"the end at a gate", v1alpha1.StepBlocking, at(10), false, passed(at(10), nil)},
		{"the end before the pods", v1alpha1.StepUpgrade, at(10), false, nil},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			s := &v1alpha1.BatchReleaseStatus{CurrentStepIndex: 2, CurrentStepState: tt.state, StepStateTime: tt.since}
			position.TimeStep(s, at(60), tt.opens)
			if diff := cmp.Diff(tt.want, s.StepTimes); diff != "" {
				t.Error(diff)
			}
		})
	}
	s := &v1alpha1.BatchReleaseStatus{}
	for i := range int32(60) {
		s.CurrentStepIndex = i
		position.TimeStep(s, at(60), true)
	}
	if n := len(s.StepTimes); n != 30 || s.StepTimes[n-1].Step != 59 { // as many as the API server takes
		t.Errorf("%d steps, to %d", n, s.StepTimes[n-1].Step)
	}
}

// A release that an edit of the plan takes from a gate has been there. One whose pods were under
// way has not.
func TestLeaveGate(t *testing.T) {
	since, now := &metav1.Time{Time: time.Unix(60, 0)}, &metav1.Time{Time: time.Unix(180, 0)}
	for state, want := range map[v1alpha1.StepState][]v1alpha1.StepTimes{
		v1alpha1.StepUpgrade:  nil,
		v1alpha1.StepBlocking: {{Step: 2, AvailableTime: *since, OpenTime: now}},
	} {
		s := &v1alpha1.BatchReleaseStatus{CurrentStepIndex: 2, CurrentStepState: state, StepStateTime: since}
		position.LeaveGate(s, now)
		if diff := cmp.Diff(want, s.StepTimes); diff != "" {
			t.Errorf("%s: %s", state, diff)
		}
	}
}

// An edit that raises the present step adds a gate, and so a release may have more approvals than
// its status takes. The newest one of each step stays.
func TestNoteApproval(t *testing.T) {
	at := func(n int) *metav1.Time { return &metav1.Time{Time: time.Unix(int64(n), 0).UTC()} }
	for _, tt := range []struct {
		reason string
		steps  []int32 // in the order of their approvals, one each second
		want   []int   // the seconds of those that stay
	}{
		{"as many as a status takes", repeat(0, 30), upTo(0, 30)},
		{"a step that was raised again and again", repeat(3, 45), upTo(15, 45)},
		{"an early step is approved once", append([]int32{0, 1}, repeat(2, 40)...), append([]int{0, 1}, upTo(14, 42)...)},
		{"all steps, the first of them often", append(repeat(0, 5), steps(1, 30)...), append([]int{4}, upTo(5, 34)...)},
		{"more steps than a plan has", steps(0, 32), upTo(2, 32)},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			p := &position.Position{}
			p.Spec = &v1alpha1.BatchReleaseSpec{Strategy: v1alpha1.BatchStrategy{Steps: make([]v1alpha1.Step, 30)}}
			for i := range p.Spec.Strategy.Steps {
				p.Spec.Strategy.Steps[i].Replicas = intstr.FromInt(100 + i)
			}
			s := &p.Status
			var got []int
			for n, step := range tt.steps {
				s.CurrentStepIndex = step
				position.NoteApproval(p, &v1alpha1.StepApproval{By: "Ada"}, at(n))
			}
			for _, a := range s.Approvals {
				if got = append(got, int(a.Time.Unix())); a.Step != tt.steps[a.Time.Unix()] || a.By != "Ada" ||
					a.Step < 30 && a.Replicas.IntValue() != 100+int(a.Step) {
					t.Errorf("%+v", a)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func repeat(step int32, times int) []int32 { return slices.Repeat([]int32{step}, times) }

func steps(from, to int32) (all []int32) {
	for ; from < to; from++ {
		all = append(all, from)
	}
	return all
}

func upTo(from, to int) (all []int) {
	for ; from < to; from++ {
		all = append(all, from)
	}
	return all
}
