package rollout_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A label by hand is no hold. The controller takes it off where admission lets it, and
// changes nothing else of a Deployment that it has nothing to do with.
func TestLabelByHand(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	s := &env{T: t, c: c, ns: c.Namespace(t)} // the watcher would take the label for a hold
	startControllerIn(t, c, s.ns)
	one := intstr.FromInt32(1)
	for name, edit := range map[string]func(*appsv1.Deployment){
		"paused":   func(d *appsv1.Deployment) { d.Spec.Paused = true },
		"recreate": func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType },
		"rolling": func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: &one, MaxUnavailable: &one}
		},
	} {
		s.create(name, 1, edit)
		before := s.deployment(name)
		s.kubectl("-n", s.ns, "label", "deployment/"+name, v1alpha1.LabelHeld+"=me")
		var events string
		clustertest.Wait(t, "an event of "+name, func() (err error) {
			events, err = s.c.Kubectl(t, "get", "events", "-n", s.ns, "-o", `jsonpath={range .items[*]}{.involvedObject.name} {.reason}{"\n"}{end}`)
			if err == nil && !strings.Contains(events, name+" "+v1alpha1.ReasonNotHeld) {
				err = errors.New(events)
			}
			return err
		})
		if strings.Contains(events, v1alpha1.ReasonHandedBack) {
			t.Errorf("events:\n%s", events)
		}
		d := s.deployment(name)
		if diff := cmp.Diff(before.Spec, d.Spec); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
		if labelled := v1alpha1.HasHeld(d.Labels); labelled != (name != "rolling") {
			t.Errorf("%s: has the label: %t", name, labelled)
		}
	}
	// The advice of the event works.
	s.kubectl("label", "namespace", s.ns, v1alpha1.LabelDrift+"=correct")
	for _, name := range []string{"paused", "recreate"} {
		s.kubectl("-n", s.ns, "patch", "deployment/"+name, "--type=merge", "-p",
			`{"metadata":{"labels":{"tranche.dev/held":null}},"spec":{"paused":null,"strategy":{"type":"RollingUpdate"}}}`)
	}
}
