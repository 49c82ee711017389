package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A LimitRange that fills pods in starts nothing and stops nothing; one that refuses
// them is named as the cause, and the stable pods stay.
func TestLimitRange(t *testing.T) {
	s := newShop(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits", Namespace: s.ns}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type:           corev1.LimitTypeContainer,
		Default:        corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")},
		Max:            corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
	}}}}
	s.must(s.c.Client.Create(t.Context(), limits))
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	s.untouched("web")

	s.replace("deployment.yaml", "web:v2", "web:v3\n        resources: {limits: {memory: 1Gi}}")
	s.push("web: v3, which needs more than it may")
	clustertest.Wait(t, "the message to name the cause", func() error {
		at := s.release("web").Status
		if !strings.Contains(at.Message, "maximum memory usage per Container is 128Mi") {
			return fmt.Errorf("%s: %s", at.Reason, at.Message)
		}
		t.Log(at.Message)
		return nil
	})
	if got := s.pods("web"); got["v2"] < 8 || got["v3"] > 0 {
		t.Errorf("pods %v", got)
	}
	s.run(s.clone, "git", "revert", "--no-edit", "HEAD")
	s.run(s.clone, "git", "push", "--quiet", "origin", "main")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
}

// A controller that is newer than the CRD of BatchReleases: the source says what to do,
// and nothing moves. With the CRD applied, it goes on. The admission policies are no
// condition for a release.
func TestOlderCRDAndNoPolicies(t *testing.T) {
	c := clustertest.Start(t)
	t.Setenv("KUBECONFIG", c.Kubeconfig)
	s := shopIn(t, c, "web")
	s.shell(".", "kubectl delete -k ../../config/policy")
	s.control("--as", c.Controller.Impersonate.UserName)
	s.must(c.Client.Create(t.Context(), &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: "source", Namespace: s.ns},
		Spec:       v1alpha1.GitSourceSpec{URL: "file://" + s.bare, Path: ".", Prune: true},
	}))
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})

	for _, field := range []string{"spec/properties/approvalsSince", "status/properties/endedReleases"} {
		patch, err := json.Marshal([]map[string]string{{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/" + field}})
		s.must(err)
		if out, err := c.Kubectl(t, "patch", "crd", "batchreleases.tranche.dev", "--type=json", "-p", string(patch)); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	clustertest.Wait(t, "the source to say so", func() error {
		ready := s.ready()
		if ready == nil || ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, "apply config/crd") {
			return fmt.Errorf("%+v", ready)
		}
		t.Log(ready.Message)
		return nil
	})
	if got := s.pods("web"); got["v1"] != 10 {
		t.Errorf("pods %v", got)
	}
	s.shell(".", "kubectl apply --server-side --force-conflicts -k ../../config/crd")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	s.untouched("web")
}
