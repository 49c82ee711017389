package gitsync_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// An account that may only read lists another's ConfigMap and says that it is to be left
// alone. That claims nothing: the GitSource says what right it lacks, and the one whose
// ConfigMap it is brings it. An account with the right may list it so.
func TestClaimWithoutRights(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	s.admin("owner")
	s.t(s.c.Kubectl(s, "create", "serviceaccount", "reader", "-n", s.ns))
	s.t(s.c.Kubectl(s, "create", "rolebinding", "reader", "-n", s.ns, "--clusterrole=view", "--serviceaccount="+s.ns+":reader"))
	s.t(s.c.KubectlWith(t, configMap("settings", "one"), "apply", "-n", s.ns, "-f", "-"))
	t.Cleanup(s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, NoRemoteBases: true, FileRoots: []string{os.TempDir()}, DefaultServiceAccount: "nobody"})
	}))
	leftAlone := strings.Replace(configMap("settings", "stolen"), "metadata: {", "metadata: {annotations: {tranche.dev/reconcile: disabled}, ", 1)
	s.push(map[string]string{"claim/a.yaml": leftAlone, "deploy/a.yaml": configMap("settings", "two")})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Name, gs.Spec.Path, gs.Spec.ServiceAccountName = "claim", "claim", "reader"
	})
	s.Cleanup(func() { s.end("claim") })
	clustertest.Wait(t, "the refusal", func() error {
		gs := get(s, "claim", &v1alpha1.GitSource{})
		if said := said(gs); !strings.Contains(said, "Ready=False") || !strings.Contains(said, `cannot patch resource "configmaps"`) {
			return fmt.Errorf("conditions: %s", said)
		}
		return nil
	})
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "owner" })
	s.holds("settings", "two")

	s.applied(s.push(map[string]string{"deploy/a.yaml": strings.ReplaceAll(leftAlone, "stolen", "three")}))
	s.holds("settings", "two")
}
