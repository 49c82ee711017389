package rollout_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A mutating policy takes a part of the hold away, in dry runs or outside them only.
// Nothing is written, no pod moves, and the message says why. The release goes its way
// once the policy is gone.
func TestHoldUnderAMutatingPolicy(t *testing.T) {
	t.Parallel()
	for name, expression := range map[string]string{
		"not paused":  `Object{spec: Object.spec{paused: false}}`,
		"no Recreate": `Object{spec: Object.spec{strategy: Object.spec.strategy{type: "RollingUpdate"}}}`,
		"no label":    `[JSONPatch{op: "replace", path: "/metadata/labels", value: {"app": "web"}}]`,
	} {
		for _, condition := range []string{"true", outsideDryRuns} {
			t.Run(name+" where "+condition, func(t *testing.T) {
				t.Parallel()
				s, _ := newEnvWithController(t)
				s.install(4)
				s.plan("1", "100%")
				s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
				remove := s.mutateDeployments(expression, condition)
				before := s.running()
				s.bring("v2")
				s.waitFor(v1alpha1.ReasonWriteRefused, 0, map[string]int32{"v1": 4})
				for pod, uid := range before {
					if now := s.running(); now[pod] != uid {
						t.Errorf("%s is gone: %v", pod, now)
					}
				}
				if d := s.deployment("web"); d.Spec.Paused || d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || d.Labels["tranche.dev/held"] != "" {
					t.Errorf("written: %v, paused=%t, %s", d.Labels, d.Spec.Paused, d.Spec.Strategy.Type)
				}
				remove()
				s.kubectl("-n", s.ns, "annotate", "batchrelease/web", "look=again")
				s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
				s.finish(4)
			})
		}
	}
}

// A mutating policy changes a template each time it is written. As long as the Deployment has what
// Git says nothing is written, and nothing is refused. A release is refused before it begins. It
// goes its way once the policy is gone.
func TestTemplateThatAdmissionChangesEachTime(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	m := clustertest.Mutation{
		Operations: "CREATE, UPDATE", Resources: "deployments",
		// Each write of the native controller would begin a rollout, too.
		Condition: `!request.userInfo.username.startsWith("system:serviceaccount:kube-system:")`,
		Expression: `[JSONPatch{op: "add", path: "/spec/template/metadata/labels/writes",` +
			` value: object.spec.template.metadata.?labels["writes"].orValue("") + "x"}]`,
	}
	manifest := m.Manifest(s.c, s.ns)
	if out, err := s.c.KubectlWith(s, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		s.Fatalf("installing the policy: %v: %s", err, out)
	}
	remove := s.without(manifest)
	acts := func(wanted bool) error {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: s.ns}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "probe"}}, Template: template("probe", "v1"),
		}}
		if err := s.c.Client.Create(s.Context(), d, client.DryRunAll); err != nil {
			return err
		}
		if acts := d.Spec.Template.Labels["writes"] == "x"; acts != wanted {
			return fmt.Errorf("it acts: %t", acts)
		}
		return nil
	}
	clustertest.Wait(s, "the policy to act", func() error { return acts(true) })
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	before := s.running()
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonTemplateRefused, 0, map[string]int32{"v1": 4})
	if now := s.running(); !maps.Equal(now, before) {
		t.Errorf("pods %v, before %v", now, before)
	}
	if d := s.deployment("web"); d.Generation != 1 || d.Labels["tranche.dev/held"] != "" {
		t.Errorf("it was written: generation %d, %v", d.Generation, d.Labels)
	}
	remove()
	clustertest.Wait(s, "the policy to be gone", func() error { return acts(false) })
	s.kubectl("-n", s.ns, "annotate", "batchrelease/web", "look=again")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v2": 1})
	s.finish(4)
}

// A policy that changes templates comes after a release, and changes each but once. The rollback to
// the first revision, whose template was never tried twice, goes its way.
func TestRollbackUnderAPolicyThatCameLater(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(4)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, nil)
	s.finish(4)
	s.mutateDeployments(`[JSONPatch{op: "add", path: "/spec/template/metadata/labels/injected", value: "policy"},`+
		` JSONPatch{op: "add", path: "/spec/paused", value: object.metadata.name != "probe" && object.spec.?paused.orValue(false)}]`,
		`!request.userInfo.username.startsWith("system:serviceaccount:kube-system:")`)
	s.bring("v1")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 4})
}

// mutateDeployments installs a mutating policy for the Deployments of the namespace, and
// waits until the API server acts by it. remove takes the policy away.
func (s *env) mutateDeployments(expression, condition string) (remove func()) {
	s.Helper()
	m := clustertest.Mutation{Operations: "UPDATE", Resources: "deployments", Condition: condition, Expression: expression}
	manifest := m.Manifest(s.c, s.ns)
	s.create("probe", 0, func(d *appsv1.Deployment) {
		d.Labels = map[string]string{"probe": "yes"}
		d.Spec.Paused, d.Spec.Strategy = true, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	})
	if out, err := s.c.KubectlWith(s, manifest, "apply", "--server-side", "-f", "-"); err != nil {
		s.Fatalf("installing the policy: %v: %s", err, out)
	}
	clustertest.Wait(s, "the policy to act", func() error {
		d := s.deployment("probe")
		d.Annotations = map[string]string{"tried": d.ResourceVersion}
		if err := s.c.Client.Update(s.Context(), d); err != nil {
			return fmt.Errorf("writing the probe: %w", err)
		}
		if d.Spec.Paused && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && d.Labels["probe"] != "" {
			return errors.New("a write passes as it is")
		}
		return nil
	})
	return s.without(manifest)
}
