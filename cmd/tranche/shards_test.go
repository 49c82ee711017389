package main

import (
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Two shards of two controllers each: one of each leads, and each shard looks
// at its own sources while the other does.
func TestALeaderForEachShard(t *testing.T) {
	s := shopOf(t, "web")
	t.Setenv("KUBECONFIG", s.c.Kubeconfig)
	for _, shard := range []string{"a", "b"} {
		for range 2 {
			s.control("--as", s.c.Controller.Impersonate.UserName, "--leader-elect", "--leader-election-namespace", s.ns, "--watch-label-selector", "shard="+s.ns+"-"+shard)
		}
		s.must(s.c.Client.Create(t.Context(), &v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Name: shard, Namespace: s.ns, Labels: map[string]string{"shard": s.ns + "-" + shard}},
			Spec:       v1alpha1.GitSourceSpec{URL: "file://" + s.bare, Path: ".", TargetNamespace: s.c.Namespace(t)},
		}))
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
