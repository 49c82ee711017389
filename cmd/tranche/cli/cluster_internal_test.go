package cli

import (
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A Deployment's name finds the plan that governs it, and not the first by name.
func TestGoverning(t *testing.T) {
	list := make([]v1alpha1.BatchRelease, 3)
	for i, name := range []string{"a-web", "api", "web-plan"} {
		list[i].Name, list[i].Spec.WorkloadRef.Name = name, "web"
	}
	list[1].Spec.WorkloadRef.Name = "api"
	list[2].Labels = map[string]string{v1alpha1.LabelSource: "shop"}
	if br := governing(list, "web"); br == nil || br.Name != "web-plan" {
		t.Errorf("it is %v", br)
	}
	if br := governing(list, "other"); br != nil {
		t.Errorf("it is %s", br.Name)
	}
}
