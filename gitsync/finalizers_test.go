package gitsync_test

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A finalizer on a plan keeps its Deployment held after the plan has left the branch. The
// source names the finalizer, and goes on once it is removed.
func TestFinalizerOnAPlan(t *testing.T) {
	t.Parallel()
	s := newShop(t, andRollout)
	s.applied2(s.push(manifests("v1")))
	s.isAt("web", "ReleaseCompleted", 1)
	s.push(manifests("v2"))
	s.isAt("web", "WaitingForApproval", 0)
	finalizers := func(list string) {
		s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":[`+list+`]}}`)
	}
	finalizers(`"example.org/hostage"`)
	gone := s.push(map[string]string{"deploy/plan.yaml": ""})
	want := "BatchRelease " + s.ns + "/web is being deleted and has the finalizers example.org/hostage; remove them"
	if m := s.refused(gone, "WaitingForHandBack"); !strings.Contains(m, want) {
		t.Errorf("it does not say %q: %s", want, m)
	}
	if d := s.deployment("web"); d.Labels[v1alpha1.LabelHeld] == "" {
		t.Error("the Deployment is not held, so the message is not true")
	}
	finalizers("")
	s.applied(gone)
	if d := s.deployment("web"); d.Labels[v1alpha1.LabelHeld] != "" || d.Spec.Paused {
		t.Errorf("not handed back: %+v", d.Spec)
	}
}
