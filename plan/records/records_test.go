package records_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/plan/records"
)

// A record has the label of Tranche, and none that a native controller gives what it makes.
func TestSelector(t *testing.T) {
	for of, is := range map[string]bool{
		"": false, "app.kubernetes.io/managed-by=tranche": true, "app.kubernetes.io/managed-by=helm": false,
		"app.kubernetes.io/managed-by=tranche,controller.kubernetes.io/hash=5b": false, // of a StatefulSet
		"app.kubernetes.io/managed-by=tranche,controller-revision-hash=5b":      false, // of a DaemonSet
	} {
		set, err := labels.ConvertSelectorToLabelsMap(of)
		if err != nil {
			t.Fatal(err)
		}
		if records.Selector.Matches(set) != is {
			t.Errorf("%q: selected is %t", of, !is)
		}
	}
}

func TestDeploymentOf(t *testing.T) {
	c := &appsv1.ControllerRevision{}
	for _, owner := range []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web"}, {APIVersion: "example.org/v1", Kind: "Deployment", Name: "web"},
	} {
		c.OwnerReferences = append(c.OwnerReferences, owner)
		if name := records.DeploymentOf(c); name != "" {
			t.Errorf("%s of %s is taken for a Deployment", owner.Kind, owner.APIVersion)
		}
	}
	c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "api"})
	if name := records.DeploymentOf(c); name != "api" {
		t.Errorf("its Deployment is %q", name)
	}
}
