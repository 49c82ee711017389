package gitsync_test

import (
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A ReplicaSet that a tenant's source has applied, and that a Deployment has adopted
// since, is not deleted when it leaves the tenant's branch. It may be the stable one of a
// Deployment that is held.
func TestAdoptedReplicaSetIsNotPruned(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": web("v1")}))
	theirs := gittest.NewRepo(t)
	first := theirs.CommitAndPush(map[string]string{"deploy/early.yaml": replicaSet("early", "early"), "deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one")})
	s.another("mallory", "deploy", func(gs *v1alpha1.GitSource) { gs.Spec.URL, gs.Spec.Prune = theirs.URL(), true })
	s.isAppliedBy("mallory", first)

	early := get(s, "early", &appsv1.ReplicaSet{})
	uid := early.UID
	patch := client.MergeFrom(early.DeepCopy())
	early.Labels["app"] = "web"
	s.must(s.c.Client.Patch(t.Context(), early, patch))
	clustertest.Wait(s, "web to adopt it", func() error {
		if metav1.GetControllerOf(get(s, "early", &appsv1.ReplicaSet{})) == nil {
			return errors.New("it has no controller")
		}
		return nil
	})
	theirs.CommitAndPush(map[string]string{"deploy/early.yaml": ""})
	s.told("Orphaned", "ReplicaSet "+s.ns+"/early left the branch and stays in the cluster: it is controlled by Deployment web")
	if now := get(s, "early", &appsv1.ReplicaSet{}); now.UID != uid || now.DeletionTimestamp != nil {
		t.Errorf("it was deleted: %s, was %s", now.UID, uid)
	}
	if s.inventoryHas("mallory", s.ns+"_early_apps_ReplicaSet") {
		t.Error("the source still has it")
	}
}
