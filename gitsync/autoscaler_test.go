package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Only the cluster has an autoscaler, and replicas leaves the manifest. Before the
// next sync gitsync does not know the autoscaler, and still owns the field.
func TestReplicasLeaveForAnAutoscaler(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1", "replicas: 2", "replicas: 4"), "deploy/plan.yaml": webPlan, "deploy/api.yaml": web("v1", "web", "api", "replicas: 2", "replicas: 4")}))
	if out, err := s.c.KubectlWith(t, autoscaler("web", "v2")+"---\n"+autoscaler("api", "v2"), "apply", "-n", s.ns, "-f", "-"); err != nil {
		t.Fatal(out)
	}
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1", "  replicas: 2\n", ""), "deploy/api.yaml": web("v1", "web", "api", "  replicas: 2\n", "")}))
	for _, name := range []string{"web", "api"} {
		if n := *s.deployment(name).Spec.Replicas; n != 4 {
			t.Errorf("%s has %d replicas", name, n)
		}
	}
}

// replicas leaves the manifest, and there is no autoscaler: the API server would make it 1.
// A client that scales the workload from then on finds it as it is.
func TestReplicasLeaveTheManifest(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	api := web("v1", "web", "api", "replicas: 2", "replicas: 4")
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1", "replicas: 2", "replicas: 4"), "deploy/plan.yaml": webPlan, "deploy/api.yaml": api}))
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v2", "  replicas: 2\n", ""), "deploy/api.yaml": web("v2", "web", "api", "replicas: 2", "replicas: null")}))
	for _, name := range []string{"web", "api"} {
		if n := *s.deployment(name).Spec.Replicas; n != 4 {
			t.Errorf("%s has %d replicas", name, n)
		}
	}
	s.scale(5, "web")
	s.lookNow()
	if n := *s.deployment("web").Spec.Replicas; n != 5 {
		t.Errorf("web has %d replicas after kubectl scale", n)
	}
}

// An autoscaler leaves the tree: replicas is Git's again, and no request is needed.
func TestAutoscalerLeavesTheTree(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/hpa.yaml": autoscaler("web", "v2")}))
	s.scale(5, "web")
	editStatus(s, func(status *v1alpha1.GitSourceStatus) { // from a time when the cluster had another version of the kind
		for i, e := range status.Inventory.Entries {
			if strings.HasSuffix(e.ID, "_HorizontalPodAutoscaler") {
				status.Inventory.Entries[i].Version = "v2beta1"
			}
		}
	})
	s.applied(s.push(map[string]string{"deploy/hpa.yaml": ""}))
	s.isGone("web", &autoscalingv2.HorizontalPodAutoscaler{})
	clustertest.Wait(t, "Git's replicas", func() error {
		if n := *s.deployment("web").Spec.Replicas; n != 2 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	s.lookNow()
	if notes := s.events("DriftUndone"); len(notes) > 0 {
		t.Errorf("told of drift: %q", notes)
	}
}

// A governed Deployment that is left alone is not released, nor one whose plan is left
// alone. InSync says so while Git says something else of it.
func TestLeftAloneIsNotReleased(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	inSync := func(reason string) {
		t.Helper()
		if c := s.inSync(); c.Reason != reason || (c.Status == metav1.ConditionTrue) != (reason == "InSync") {
			t.Errorf("InSync is %s, %s: %s; want %s", c.Status, c.Reason, c.Message, reason)
		}
	}
	brings := func(image string) {
		t.Helper()
		if now := s.release("web").Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(now, ":"+image) {
			t.Errorf("the release brings %s, want %s", now, image)
		}
	}
	s.applied(s.push(manifests("v1")))
	images := []string{"v1", "v2", "v3"}
	for i, object := range []string{"deployment/web", "batchrelease/web"} {
		s.kubectl("annotate", object, "tranche.dev/reconcile=disabled")
		s.lookNow()
		inSync("InSync")
		s.applied(s.push(manifests(images[i+1])))
		inSync("LeftAlone")
		brings(images[i])
		s.kubectl("annotate", object, "tranche.dev/reconcile-")
		s.lookNow()
		brings(images[i+1])
		inSync("InSync")
	}
}

// A CRD that is left alone is not waited for.
func TestCRDLeftAlone(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	crd := strings.Replace(strings.ReplaceAll(toyCRD, "GROUP", s.ns+".example.org"), "tranche.dev/prune: enabled", "tranche.dev/reconcile: disabled", 1)
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/crd.yaml": crd}))
}
