package view_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// waiting is the release of clitest with its workload.
func waiting() *view.Facts {
	set := func(hash, image string, age time.Duration) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web-" + hash, Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}, CreationTimestamp: *clitest.Before(age),
			},
			Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](5), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web:" + image}},
			}}},
			Status: appsv1.ReplicaSetStatus{Replicas: 5, ReadyReplicas: 5, AvailableReplicas: 5},
		}
	}
	return &view.Facts{
		Now: clitest.Noon, Release: clitest.Release(), Source: clitest.Source(),
		Deployment: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{v1alpha1.LabelHeld: "web"}},
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](10)},
		},
		Sets: []*appsv1.ReplicaSet{set("5584f4c7df", "v2", 7*time.Minute), set("58d874c89d", "v1", 26*time.Hour)},
	}
}

// fixtures are the documents of releases in several states, which the unit tests of the page
// read.
func fixtures() map[string]func(*view.Facts) {
	return map[string]func(*view.Facts){
		"waiting": func(*view.Facts) {},
		"upgrading": func(f *view.Facts) {
			at := &f.Release.Status
			at.CurrentStepState, at.UpdatedAvailableReplicas, at.Reason = v1alpha1.StepUpgrade, 3, "Upgrading"
			at.Message = "3 of 5 pods of 5584f4c7df are available"
			f.Sets[0].Status.AvailableReplicas = 3
		},
		"pause": func(f *view.Facts) {
			at := &f.Release.Status
			at.CurrentStepIndex, at.UpdatedReplicas, at.UpdatedAvailableReplicas, at.Reason = 2, 8, 8, "WaitingForPause"
		},
		"rolledback": func(f *view.Facts) {
			at := &f.Release.Status
			at.Phase, at.FailedRevision, at.FailedCommit, at.Reason = v1alpha1.PhaseCompleted, "5584f4c7df", f.Release.Spec.Commit, "RolledBack"
			at.UpdateRevision = at.StableRevision
		},
		"measured": func(f *view.Facts) { clitest.Measure(f.Release) },
		"new":      func(f *view.Facts) { f.Release.Status = v1alpha1.BatchReleaseStatus{}; f.Deployment, f.Sets = nil, nil },
		"refused":  func(f *view.Facts) { f.Source = &clitest.Sources()[1] },
		"alone":    func(f *view.Facts) { f.Source, f.Release.Spec.Commit, f.Release.Labels = nil, "", nil },
	}
}

func TestRelease_Documents(t *testing.T) {
	for name, edit := range fixtures() {
		t.Run(name, func(t *testing.T) {
			f := waiting()
			edit(f)
			text, err := json.MarshalIndent(view.NewRelease(f), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, filepath.Join("..", "dashboard", "web", "fixtures", name+".json"), string(text)+"\n")
		})
	}
}

// The rest of a release is what the simulation says, from now on: at a gate it stands still
// until the approval.
// An approval of a step that an edit of the plan took away is not one of the step that has its
// number now.
func TestSteps_ApprovalOfAnEarlierPlan(t *testing.T) {
	for _, tt := range []struct {
		reason string
		was    *intstr.IntOrString
		by     string
	}{
		{"the step as it is", ptr.To(intstr.FromString("20%")), "Bob"},
		{"another step", ptr.To(intstr.FromString("10%")), ""},
		{"by an earlier version", nil, "Bob"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			f := &view.Facts{Release: clitest.Release()}
			f.Release.Status.Approvals = []v1alpha1.StepApproval{{Step: 0, Replicas: tt.was, By: "Bob"}}
			by := ""
			if a := f.Steps()[0].Approval; a != nil {
				by = a.By
			}
			if by != tt.by {
				t.Errorf("the step %s was approved by %q", f.Steps()[0].Replicas, by)
			}
		})
	}
}

func TestAhead_TellsTheRest(t *testing.T) {
	of := func(edit func(*view.Facts)) []view.Moment {
		f := waiting()
		edit(f)
		return f.Ahead().Moments
	}
	at := of(fixtures()["waiting"])
	if len(at) != 2 || at[0].Step != 2 || at[0].Updated != 8 || at[0].Approvals != 1 || !at[1].Complete || at[1].Updated != 10 {
		t.Errorf("at a gate: %+v", at)
	}
	if pause := at[1].Seconds - at[0].Seconds; pause < 600 {
		t.Errorf("the pause of ten minutes takes %d s", pause)
	}
	if at := of(fixtures()["upgrading"]); len(at) != 3 || at[0].Step != 1 || at[0].Approvals != 0 || at[1].Approvals != 1 {
		t.Errorf("under way: %+v", at)
	}
	if at := of(fixtures()["pause"]); len(at) != 1 || at[0].Approvals != 0 || at[0].Seconds < 8*60 {
		t.Errorf("in a pause: %+v", at)
	}
}

func TestSourceRow_ProblemsHaveTheirPlace(t *testing.T) {
	gs := clitest.Source()
	const message = "apps/web/release.yaml: BatchRelease shop/web: spec.strategy.steps[2].replicas: 20% of 10 is 2 | " +
		"kustomization.yaml: no such file: a.yaml | and 4 more"
	gs.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "InvalidManifest", Message: message}}
	want := []view.Problem{
		{"InvalidManifest", "apps/web/release.yaml", "BatchRelease shop/web", "spec.strategy.steps[2].replicas", "20% of 10 is 2"},
		{"InvalidManifest", "kustomization.yaml", "", "", "no such file: a.yaml"},
		{"InvalidManifest", "", "", "", "and 4 more"},
	}
	got := view.NewSourceRow(gs).Problems
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}
