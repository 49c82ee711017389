package gitsync_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// startShard runs the controller of what bears a label.
func (s *env) startShard(c *rest.Config, shard string) (stop func()) {
	s.Helper()
	selector := labels.SelectorFromSet(labels.Set{"shard": shard})
	return s.startManager(c, func(mgr ctrl.Manager) error {
		s.must(rollout.Add(mgr, rollout.Options{Concurrent: 2, Selector: selector}))
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: s.TempDir(), Concurrent: 2, NoCrossNamespaceRefs: true, NoRemoteBases: true, FileRoots: []string{os.TempDir()}, Selector: selector})
	})
}

// Two controllers share sources and releases by a label. A source that gets another
// label goes over to the other controller with its release, which stands where it
// stood. Its former controller may be gone by then.
func TestShards(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	requests := &ledger{}
	stopA := s.startShard(s.c.Controller, "a")
	t.Cleanup(s.startShard(requests.config(s.c.Controller), "b"))
	s.applied2(s.push(manifests("v1")), func(gs *v1alpha1.GitSource) { gs.Labels = map[string]string{"shard": "a"} })
	s.isAt("web", "ReleaseCompleted", 1)
	s.push(manifests("v2"))
	s.isAt("web", "WaitingForApproval", 0)
	if shard := s.release("web").Labels["shard"]; shard != "a" {
		t.Errorf("the release is of shard %q", shard)
	}
	stopA()
	s.approve("web") // which no controller acts on
	before := s.release("web").Status.UpdatedReplicas
	all, _ := requests.since(0)
	for _, r := range all {
		if !strings.HasPrefix(r, "GET ") && (strings.Contains(r, "/gitsources/shop") || strings.Contains(r, "/web")) {
			t.Errorf("the other shard has written: %s", r)
		}
	}
	s.must(s.c.Client.Patch(t.Context(), s.gs(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"shard":"b"}}}`))))
	clustertest.Wait(s, "the release to be of the other shard", func() error {
		if shard := s.release("web").Labels["shard"]; shard != "b" {
			return fmt.Errorf("it is of %q", shard)
		}
		return nil
	})
	s.isAt("web", "ReleaseCompleted", 1)
	if h := s.release("web").Status.History; len(h) != 1 || len(h[0].Approvals) != 1 || before == 0 {
		t.Errorf("history %+v", h)
	}
}

// A source goes over to another controller and cannot apply what its branch has. Its release goes
// over all the same.
func TestShards_SourceThatAppliesNothing(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(s *env){
		"suspended":          edited(func(gs *v1alpha1.GitSource) { gs.Spec.Suspend = true }),
		"without repository": func(s *env) { s.must(os.Rename(s.repo.Bare, s.repo.Bare+".away")) },
		"does not render":    func(s *env) { s.push(map[string]string{"deploy/more.yaml": "a: [\n"}) },
		"refused":            func(s *env) { s.push(map[string]string{"deploy/more.yaml": configMap("Not_Valid", "one")}) },
		"plan left alone": func(s *env) {
			plan := strings.Replace(webPlan, "metadata: {", "metadata: {annotations: {tranche.dev/reconcile: disabled}, ", 1)
			s.push(map[string]string{"deploy/plan.yaml": plan})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newIdleEnv(t)
			t.Cleanup(s.startShard(s.c.Controller, "b"))
			stopA := s.startShard(s.c.Controller, "a")
			ofA := func(gs *v1alpha1.GitSource) { gs.Labels = map[string]string{"shard": "a"} }
			s.applied2(s.push(manifests("v1")), ofA)
			s.isAt("web", "ReleaseCompleted", 1)
			s.push(manifests("v2"))
			s.isAt("web", "WaitingForApproval", 0)
			stopA()
			stop(s)
			s.kubectl("-n", s.ns, "label", "gitsource/shop", "shard=b", "--overwrite")
			s.approve("web")
			s.isAt("web", "ReleaseCompleted", 1)
			if shard := s.release("web").Labels["shard"]; shard != "b" {
				t.Errorf("the release is of shard %q", shard)
			}
		})
	}
}
