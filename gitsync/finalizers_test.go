package gitsync_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A finalizer on a plan keeps neither its Deployment held nor its source waiting once the
// plan has left the branch.
func TestFinalizerOnAPlan(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(manifests("v1")))
	s.isAt("web", "ReleaseCompleted", 1)
	s.push(manifests("v2"))
	s.isAt("web", "WaitingForApproval", 0)
	finalizers := func(list string) {
		s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":[`+list+`]}}`)
	}
	finalizers(`"example.org/hostage"`)
	s.applied(s.push(map[string]string{"deploy/plan.yaml": ""}))
	if d := s.deployment("web"); d.Labels[v1alpha1.LabelHeld] != "" || d.Spec.Paused {
		t.Errorf("not handed back: %+v", d.Spec)
	}
	if br := s.release("web"); br.DeletionTimestamp == nil {
		t.Error("the finalizer does not keep the plan")
	}
	finalizers("")
}

// A plan of another name takes over from one that has a finalizer. The release goes on
// under the new name, and the status of the old one is copied no second time. The API server
// removes its own finalizers at a deletion, so one of those keeps nothing.
func TestFinalizerOnARenamedPlan(t *testing.T) {
	t.Parallel()
	for finalizer, stays := range map[string]bool{"example.org/hostage": true, "orphan": false} {
		t.Run(finalizer, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, andRollout)
			s.applied2(s.push(map[string]string{"deploy/web.yaml": four("v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")}))
			s.isAt("web", "ReleaseCompleted", 2)
			s.push(map[string]string{"deploy/web.yaml": four("v2")})
			s.isAt("web", "WaitingForApproval", 0)
			s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":["`+finalizer+`"]}}`)
			s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("next", "1", "50%", "100%")}))
			s.isAt("next", "WaitingForApproval", 0)
			next := s.release("next")
			s.push(map[string]string{"deploy/approvals/next.yaml": approvalOf("next", next.Status.UpdateRevision, next.Spec.Commit, "1")})
			s.isAt("next", "ReleaseCompleted", 2)
			s.says("True InSync")
			if !stays {
				s.isGone("web", &v1alpha1.BatchRelease{})
				return
			}
			if br := s.release("web"); br.DeletionTimestamp == nil || br.Status.Reason != "WaitingForApproval" {
				t.Errorf("the old plan is deleted at %v, and says %s", br.DeletionTimestamp, br.Status.Reason)
			}
			s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		})
	}
}

// hostage is the metadata of an object that a finalizer keeps.
func hostage(name, more string) string {
	return "{name: " + name + ", finalizers: [example.org/hostage]" + more + "}"
}

// names waits until the status of the source names a BatchRelease and what keeps it.
func (s *env) names(plan string) {
	s.Helper()
	clustertest.Wait(s, "the status to name BatchRelease "+plan, func() error {
		gs := s.gs()
		kept := slices.ContainsFunc(gs.Status.Kept, func(k v1alpha1.KeptObject) bool {
			return strings.Contains(k.ID, s.ns+"_"+plan+"_") && strings.Contains(k.UsedBy, "example.org/hostage")
		})
		if m := said(gs); !kept && (!strings.Contains(m, "/"+plan) || !strings.Contains(m, "example.org/hostage")) {
			return fmt.Errorf("%s, kept %+v", m, gs.Status.Kept)
		}
		return nil
	})
}

// A BatchRelease made by hand has the name that Git gives to a plan, and a finalizer keeps
// it. The status says so until it is gone; then Git's plan takes over.
func TestFinalizerOnAPlanByHand(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.tenOfGit()
	s.makes(strings.Replace(planOf("web3", gatedSteps...), "{name: web3}", hostage("web3", ""), 1))
	s.stands("web3")
	stillHeld := s.stillHeld()
	s.push(map[string]string{"deploy/release.yaml": planOf("web3", gatedSteps...)})
	s.names("web3")
	s.kubectl("patch", "batchrelease/web3", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.isGone("web", &v1alpha1.BatchRelease{})
	s.isAt("web3", "WaitingForApproval", 0)
	stillHeld()
}

// A BatchRelease with the labels of the source, which the source does not know, is replaced
// by Git's plan of the Deployment. While a finalizer keeps it, the status says so.
func TestFinalizerOnAnUnknownPlan(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(4, "v1")}))
	labels := ", labels: {" + v1alpha1.LabelSource + ": shop, " + v1alpha1.LabelSourceNamespace + ": " + s.ns + "}"
	s.makes(strings.Replace(planOf("restored", gatedSteps...), "{name: restored}", hostage("restored", labels), 1))
	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("web", gatedSteps...)}))
	s.names("restored")
	s.lookNow()
	s.names("restored")
	s.kubectl("patch", "batchrelease/restored", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.isGone("restored", &v1alpha1.BatchRelease{})
	s.lookNow()
	if kept := s.gs().Status.Kept; len(kept) > 0 {
		t.Errorf("kept %+v", kept)
	}
}

// Finalizers keep an object after it has left the branch. It stays in the inventory, with the
// reason, until the API server no longer has it. Then both forget it. The finalizers that the
// API server itself removes keep nothing, neither then nor at the end of the source.
func TestFinalizerKeepsAnObjectInTheInventory(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	files := manifests("v1")
	files["deploy/a.yaml"], files["deploy/b.yaml"], files["deploy/c.yaml"] = configMap("a", "one"), configMap("b", "one"), configMap("c", "one")
	files["deploy/d.yaml"] = configMap("d", "one")
	s.applied2(s.push(files))
	s.isAt("web", "ReleaseCompleted", 1)
	finalizers := func(object, list string) {
		s.kubectl("patch", object, "--type=merge", "-p", `{"metadata":{"finalizers":[`+list+`]}}`)
	}
	kept := map[string]string{"batchrelease/web": s.ns + "_web_tranche.dev_BatchRelease", "configmap/a": s.ns + "_a__ConfigMap"}
	for object := range kept {
		finalizers(object, `"example.org/hostage"`)
	}
	for object, of := range map[string]string{"configmap/b": `"orphan"`, "configmap/c": `"foregroundDeletion"`, "configmap/d": `"orphan"`} {
		finalizers(object, of)
	}
	inventory := func(want bool) {
		t.Helper()
		s.lookNow()
		gs := s.gs()
		for _, id := range kept {
			told := slices.Contains(gs.Status.Kept, v1alpha1.KeptObject{ID: id, UsedBy: "its finalizers example.org/hostage"})
			if s.inventoryHas("shop", id) != want || told != want {
				t.Errorf("%s: inventory %+v, kept %+v, want %t", id, gs.Status.Inventory, gs.Status.Kept, want)
			}
		}
	}
	s.applied(s.push(map[string]string{"deploy/web.yaml": "", "deploy/plan.yaml": "", "deploy/a.yaml": ""}))
	if a := get(s, "a", &corev1.ConfigMap{}); a.DeletionTimestamp == nil || s.release("web").DeletionTimestamp == nil {
		t.Error("they are not deleted")
	}
	inventory(true)
	// They do not count among what another commit would delete.
	s.applied(s.push(map[string]string{"deploy/b.yaml": "", "deploy/c.yaml": ""}))
	s.isGone("b", &corev1.ConfigMap{})
	s.isGone("c", &corev1.ConfigMap{})
	inventory(true)
	for object := range kept {
		finalizers(object, "")
	}
	s.isGone("a", &corev1.ConfigMap{})
	s.isGone("web", &v1alpha1.BatchRelease{})
	inventory(false)
	s.must(s.c.Client.Delete(t.Context(), s.gs()))
	s.isGone("d", &corev1.ConfigMap{})
	s.isGone("shop", &v1alpha1.GitSource{})
}
