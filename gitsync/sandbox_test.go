package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// bomb is a patch of some hundred bytes that takes all memory there is.
func bomb() map[string]string {
	var patch strings.Builder
	patch.WriteString("    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: a}\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&patch, "    a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	return map[string]string{
		"evil/kustomization.yaml": "resources: [a.yaml]\npatches:\n- patch: |-\n" + patch.String(),
		"evil/a.yaml":             configMap("evil", "one"),
	}
}

// A folder that takes all memory to render is refused by itself. The controller goes
// on, and what another GitSource brings meanwhile is applied. The folder is applied
// once it is repaired.
func TestRenderingIsBounded(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "evil/a.yaml": configMap("evil", "one")})
	s.source()
	s.source(func(gs *v1alpha1.GitSource) { gs.Name, gs.Spec.Path = "evil", "evil" })
	s.Cleanup(func() { s.end("evil") })
	s.holds("evil", "one")

	s.push(bomb())
	clustertest.Wait(t, "the refusal", func() error {
		gs := get(s, "evil", &v1alpha1.GitSource{})
		if said := said(gs); !strings.Contains(said, "Ready=False LimitExceeded: evil: rendering takes more memory than it may") {
			return fmt.Errorf("conditions: %s", said)
		}
		return nil
	})
	s.holds("evil", "one")
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")}))
	s.holds("a", "two")

	s.push(map[string]string{"evil/kustomization.yaml": "resources: [a.yaml]\n", "evil/a.yaml": configMap("evil", "two")})
	s.holds("evil", "two")
}

// holds waits until a ConfigMap has a value.
func (s *env) holds(name, value string) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("ConfigMap %s to hold %q", name, value), func() error {
		var c corev1.ConfigMap
		if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &c); err != nil {
			return err
		}
		if c.Data["value"] != value {
			return fmt.Errorf("it holds %v", c.Data)
		}
		return nil
	})
}
