package gitsync_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// failed releases a tag whose pods never become available, which is rolled back.
func (s *env) failed() {
	s.Helper()
	failing := strings.Replace(webPlan, "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 1\n    onFailure: Rollback\n", 1)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/plan.yaml": failing, "deploy/a.yaml": configMap("a", "one")}))
	s.isAt("web", "ReleaseCompleted", 1)
	s.push(map[string]string{"deploy/web.yaml": web("broken")})
	s.lookNow()
	s.isAt("web", "RolledBack", 1)
	s.push(map[string]string{"README.md": "more\n"}) // the commit that failed is not the newest one
	s.lookNow()
}

// setOf returns the ReplicaSet of a tag.
func (s *env) setOf(tag string) *appsv1.ReplicaSet {
	s.Helper()
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
	for i := range sets.Items {
		if strings.HasSuffix(sets.Items[i].Spec.Template.Spec.Containers[0].Image, ":"+tag) {
			return &sets.Items[i]
		}
	}
	s.Fatalf("there is no ReplicaSet of %s", tag)
	return nil
}

// notTriedAgain waits until another BatchRelease stands where the one before did, and
// fails where the tag that failed had a pod meanwhile.
func (s *env) notTriedAgain(before types.UID, set *appsv1.ReplicaSet) {
	s.Helper()
	clustertest.Wait(s, "another BatchRelease", func() error {
		var br v1alpha1.BatchRelease
		if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: "web"}, &br); err != nil {
			return err
		}
		if br.UID == before || br.Status.Reason != "RolledBack" || br.Status.ObservedGeneration != br.Generation {
			return withSource(s, fmt.Errorf("%s: %s; commit %s", br.Status.Reason, br.Status.Message, br.Spec.Commit))
		}
		return nil
	})
	for range 3 {
		s.lookNow()
	}
	if now := s.setOf("broken"); now.UID != set.UID || now.Generation != set.Generation { // each size is a generation
		s.Errorf("the ReplicaSet of what failed was resized: generation %d, and %d before; commit %s of %s", now.Generation, set.Generation, s.release("web").Spec.Commit, s.inBare("log", "--format=%h %s", "main"))
	}
	if d := s.deployment("web"); !strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":v1") || d.Status.AvailableReplicas != 2 {
		s.Errorf("the Deployment has %s, and %d pods available", d.Spec.Template.Spec.Containers[0].Image, d.Status.AvailableReplicas)
	}
}

// A commit that failed is not released again though its BatchRelease is deleted. Git
// saying something else ends that.
func TestFailed_PlanDeleted(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.failed()
	before, set := s.release("web"), s.setOf("broken")
	s.must(s.c.Client.Delete(t.Context(), before))
	s.isGoneOrNew("web", before.UID)
	s.lookNow()
	s.notTriedAgain(before.UID, set)
	s.push(map[string]string{"deploy/web.yaml": web("v1")})
	s.lookNow()
	s.isAt("web", "ReleaseCompleted", 1)
	clustertest.Wait(t, "the failure to be forgotten", func() error {
		var list appsv1.ControllerRevisionList
		s.must(s.c.Client.List(t.Context(), &list, client.InNamespace(s.ns)))
		for i := range list.Items {
			if plan.IsFailure(&list.Items[i]) {
				return fmt.Errorf("ControllerRevision %s", list.Items[i].Name)
			}
		}
		return nil
	})
	s.push(map[string]string{"deploy/web.yaml": web("broken")})
	s.lookNow()
	clustertest.Wait(t, "another try, by another commit", func() error {
		if now := s.setOf("broken"); now.Generation == set.Generation {
			return fmt.Errorf("its generation is %d", now.Generation)
		}
		return nil
	})
}

// isGoneOrNew waits until a BatchRelease is not that one any more.
func (s *env) isGoneOrNew(name string, uid types.UID) {
	s.Helper()
	clustertest.Wait(s, "the end of BatchRelease "+name, func() error {
		var br v1alpha1.BatchRelease
		err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &br)
		if err == nil && br.UID == uid {
			return fmt.Errorf("it is there, with finalizers %v", br.Finalizers)
		}
		return client.IgnoreNotFound(err)
	})
}

// A user deletes the CRDs of Tranche. A revision that failed is not released again
// when they are back, and the objects that a GitSource with prune has applied stay.
func TestCRDsDeleted(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	s := &env{T: t, c: c, ns: c.Namespace(t), repo: gittest.NewRepo(t)}
	stop := s.startController(andRollout)
	s.failed()
	before, set := s.release("web"), s.setOf("broken")
	s.kubectl("delete", "crd", "batchreleases.tranche.dev")
	stop()
	root, err := clustertest.Root()
	s.must(err)
	s.kubectl("apply", "--server-side", "-k", filepath.Join(root, "config", "crd"))
	s.kubectl("wait", "--for=condition=Established", "--timeout=4m", "crd/batchreleases.tranche.dev")
	t.Cleanup(s.startController(andRollout))
	s.notTriedAgain(before.UID, set)

	web, a := s.deployment("web").UID, get(s, "a", &corev1.ConfigMap{}).UID
	s.kubectl("delete", "crd", "gitsources.tranche.dev", "--timeout=4m")
	if now := s.deployment("web"); now.UID != web || now.DeletionTimestamp != nil {
		t.Error("the Deployment was deleted")
	}
	if now := get(s, "a", &corev1.ConfigMap{}); now.UID != a || now.DeletionTimestamp != nil {
		t.Error("the ConfigMap was deleted")
	}
	if now := s.release("web"); now.DeletionTimestamp != nil {
		t.Error("the BatchRelease was deleted")
	}
}
