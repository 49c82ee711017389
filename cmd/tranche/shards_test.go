package main

import (
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Two shards of two controllers each: one of each leads, and each shard looks
// at its own sources while the other does.
func TestALeaderForEachShard(t *testing.T) {
	t.Parallel()
	s := envOf(t, "web")
	for _, shard := range []string{"a", "b"} {
		for range 2 {
			s.process("--leader-elect", "--leader-election-namespace", s.ns, "--watch-label-selector", labelOwn+"="+s.ns+"-"+shard)
		}
		s.follow(shard, ".", func(gs *v1alpha1.GitSource) {
			gs.Labels, gs.Spec.TargetNamespace = map[string]string{labelOwn: s.ns + "-" + shard}, s.c.Namespace(t)
		})
	}
	clustertest.Wait(t, "both sources", func() error {
		var sources v1alpha1.GitSourceList
		s.must(s.c.Client.List(t.Context(), &sources, client.InNamespace(s.ns)))
		for _, gs := range sources.Items {
			if !meta.IsStatusConditionTrue(gs.Status.Conditions, "Ready") {
				return fmt.Errorf("%s: %+v", gs.Name, gs.Status.Conditions)
			}
		}
		return nil
	})
	var leases coordinationv1.LeaseList
	s.must(s.c.Client.List(t.Context(), &leases, client.InNamespace(s.ns)))
	if len(leases.Items) != 2 {
		t.Errorf("there are %d leases: %+v", len(leases.Items), leases.Items)
	}
}
