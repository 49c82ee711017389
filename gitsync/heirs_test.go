package gitsync_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// inventoryHas reports whether an object is in the inventory of a source.
func (s *env) inventoryHas(source, id string) bool {
	s.Helper()
	i := get(s, source, &v1alpha1.GitSource{}).Status.Inventory
	return i != nil && slices.ContainsFunc(i.Entries, func(e v1alpha1.InventoryEntry) bool { return e.ID == id })
}

// goesOver waits until an object has left the inventory of one source and is in that of
// another.
func (s *env) goesOver(id, from, to string) {
	s.Helper()
	clustertest.Wait(s, id+" to go over", func() error {
		if before, after := s.inventoryHas(from, id), s.inventoryHas(to, id); before || !after {
			return fmt.Errorf("%s has it: %t, %s has it: %t", from, before, to, after)
		}
		return nil
	})
}

// orders are those in which two sources may look at a commit; what is said is of the
// source that the object comes to.
var orders = map[string]func(s *env, move func()){
	"the one that it leaves looks first": func(s *env, move func()) {
		s.suspend("other")
		move()
		s.lookNow()
		s.applied(s.repo.Head())
		s.resume("other")
	},
	"the one that it comes to looks first": func(s *env, move func()) {
		s.suspend("shop")
		move()
		s.lookNow("other")
		s.ready("other", metav1.ConditionFalse, "OwnedByOther")
		s.resume("shop")
	},
}

// An object that a commit moves to another source of the branch is never deleted.
func TestMoveToAnotherSource(t *testing.T) {
	t.Parallel()
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, gitsyncOnly)
			s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one"), "more/c.yaml": configMap("c", "one")})
			s.source()
			s.another("other", "more")
			s.applied(s.repo.Head())
			s.ready("other", metav1.ConditionTrue, "Applied")
			uid := get(s, "b", &corev1.ConfigMap{}).UID
			order(s, func() {
				s.push(map[string]string{"deploy/b.yaml": "", "more/b.yaml": configMap("b", "two")})
			})
			s.goesOver(s.ns+"_b__ConfigMap", "shop", "other")
			s.ready("other", metav1.ConditionTrue, "Applied")
			s.applied(s.repo.Head())
			b := get(s, "b", &corev1.ConfigMap{})
			if b.UID != uid || b.DeletionTimestamp != nil {
				t.Error("the object was deleted on its way")
			}
			if l := b.Labels[v1alpha1.LabelSource]; l != "other" || b.Data["value"] != "two" {
				t.Errorf("it is %s's, with %v", l, b.Data)
			}
			s.told("HandedOver", "ConfigMap "+s.ns+"/b left the part of the branch that this GitSource applies, and stays in the cluster: GitSource "+s.ns+"/other has it ")
			// It is pruned where it leaves the branch for good.
			s.push(map[string]string{"more/b.yaml": ""})
			s.isGone("b", &corev1.ConfigMap{})
		})
	}
}

// besideAnother has v1 in the cluster, and another source with a path of its own.
func besideAnother(t *testing.T) *env {
	t.Helper()
	s := newEnv(t, andRollout)
	files := manifests("v1")
	files["more/c.yaml"], files["deploy/a.yaml"] = configMap("c", "one"), configMap("a", "one")
	s.applied2(s.push(files))
	s.another("other", "more")
	s.ready("other", metav1.ConditionTrue, "Applied")
	s.isAt("web", "ReleaseCompleted", 1)
	return s
}

// A release under way goes over with its Deployment and plan: no pod moves, no gate opens
// or closes.
func TestMoveInTheMiddleOfARelease(t *testing.T) {
	t.Parallel()
	for name, order := range orders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := besideAnother(t)
			s.push(manifests("v2"))
			s.lookNow()
			s.isAt("web", "WaitingForApproval", 0)
			web, release, sizes := s.deployment("web"), s.release("web"), s.sizes()
			order(s, func() {
				moved := map[string]string{}
				for file, text := range manifests("v2") {
					moved[file], moved[strings.Replace(file, "deploy/", "more/", 1)] = "", text
				}
				s.push(moved)
			})
			s.goesOver(s.ns+"_web_apps_Deployment", "shop", "other")
			s.goesOver(s.ns+"_web_tranche.dev_BatchRelease", "shop", "other")
			s.ready("other", metav1.ConditionTrue, "Applied")
			s.isAt("web", "WaitingForApproval", 0)
			now, is := s.deployment("web"), s.release("web")
			if now.UID != web.UID || is.UID != release.UID || now.DeletionTimestamp != nil || is.DeletionTimestamp != nil {
				t.Error("the Deployment or its plan was deleted on the way")
			}
			if is.Labels[v1alpha1.LabelSource] != "other" || is.Spec.Commit != release.Spec.Commit {
				t.Errorf("the plan is %s's, of commit %s; before %s", is.Labels[v1alpha1.LabelSource], is.Spec.Commit, release.Spec.Commit)
			}
			if got := s.sizes(); got != sizes {
				t.Errorf("sizes are %s, before %s", got, sizes)
			}
			s.approve("web")
			s.isAt("web", "ReleaseCompleted", 1)
			if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; image != "registry.example.org/web:v2" {
				t.Errorf("the Deployment has %s", image)
			}
		})
	}
}

// A release that moves to a suspended source has no source until that one is resumed. The
// event says so, and so does InSync of the source that it leaves, in each of its syncs.
func TestMoveToASuspendedSource(t *testing.T) {
	t.Parallel()
	s := besideAnother(t)
	s.push(manifests("v2"))
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	s.suspend("other")
	moved := map[string]string{}
	for file := range manifests("v2") {
		moved[file] = ""
	}
	for file, text := range manifests("v3") {
		moved[strings.Replace(file, "deploy/", "more/", 1)] = text
	}
	s.applied(s.push(moved))
	const says = "/other has it once it is resumed: it is suspended, and nothing of it is applied until then"
	for _, object := range []string{"Deployment ", "BatchRelease "} {
		s.told("HandedOver", object+s.ns+"/web left the part of the branch that this GitSource applies, and stays in the cluster: "+
			"GitSource "+s.ns+says)
	}
	for _, look := range []string{"the sync that lets go", "a later sync"} {
		if m := s.differs("HandedOver"); !strings.Contains(m, "BatchRelease "+s.ns+"/web: GitSource "+s.ns+says) {
			t.Errorf("%s: InSync says %q", look, m)
		}
		s.lookNow()
	}
	if s.inventoryHas("shop", s.ns+"_web_tranche.dev_BatchRelease") {
		t.Error("the plan is still in the inventory of the source that it left")
	}
	s.resume("other")
	s.goesOver(s.ns+"_web_tranche.dev_BatchRelease", "shop", "other")
	s.ready("other", metav1.ConditionTrue, "Applied")
	s.lookNow()
	if c := s.inSync(); c.Status != metav1.ConditionTrue {
		t.Errorf("InSync is %s after the move: %s", c.Status, c.Message)
	}
}

// A plan that moves to another source without its Deployment is of no use there. The Deployment is
// not handed back for it, but if a person confirms that.
func TestMoveOfThePlanAlone(t *testing.T) {
	t.Parallel()
	s := besideAnother(t)
	says := fmt.Sprintf("since Deployment %[1]s/web would stay without a plan; GitSource %[1]s/other, "+
		"which may have it now and does not render", s.ns)
	moved := map[string]string{"deploy/plan.yaml": "", "more/plan.yaml": webPlan, "deploy/web.yaml": web("v2")}
	s.refused(s.push(moved), "PruneRefused")
	s.unresolved("PruneRefused", says)
	if image := s.deployment("web").Spec.Template.Spec.Containers[0].Image; image != "registry.example.org/web:v1" {
		t.Errorf("the Deployment has %s", image)
	}
	s.applied(s.push(map[string]string{"deploy/plan.yaml": webPlan, "more/plan.yaml": ""}))
	s.isAt("web", "WaitingForApproval", 0)
	uid := s.deployment("web").UID
	delete(moved, "deploy/web.yaml")
	s.refused(s.push(moved), "PruneRefused")
	isHeldAs(s, uid)
	// A plan under another name takes over, though the other source does not render.
	s.applied(s.push(map[string]string{"deploy/next.yaml": strings.Replace(webPlan, "metadata: {name: web}", "metadata: {name: next}", 1)}))
	s.isAt("next", "WaitingForApproval", 0)
	s.isGone("web", &v1alpha1.BatchRelease{})
	s.applied(s.push(map[string]string{"deploy/next.yaml": "", "deploy/plan.yaml": webPlan, "more/plan.yaml": ""}))
	isHeldAs(s, uid)
	s.push(moved)
	// Both have moved to a source that does not render, and the Deployment comes back alone.
	s.kubectl("annotate", "batchrelease/web", "tranche.dev/prune=disabled")
	both := s.push(map[string]string{"deploy/web.yaml": "", "more/web.yaml": web("v2"), "more/broken.yaml": "{"})
	s.applied(both)
	isHeldAs(s, uid)
	tip := s.push(map[string]string{"deploy/web.yaml": web("v2"), "more/web.yaml": ""})
	s.refused(tip, "PruneRefused")
	s.unresolved("PruneRefused", says)
	isHeldAs(s, uid)
	s.confirm(tip)
	s.applied(tip)
	s.isGone("web", &v1alpha1.BatchRelease{})
	if kept := s.gs().Status.Kept; len(kept) > 0 || s.inventoryHas("shop", s.ns+"_web_tranche.dev_BatchRelease") {
		t.Errorf("the plan is gone, and kept is %+v", kept)
	}
}

// sizes are those of all ReplicaSets of the namespace.
func (s *env) sizes() string {
	s.Helper()
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
	var list []string
	for _, rs := range sets.Items {
		list = append(list, fmt.Sprintf("%s %d", rs.Name, *rs.Spec.Replicas))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// A source whose account may not write an object keeps no other source from pruning it.
func TestNoHeirWithoutTheRight(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.kubectl("create", "serviceaccount", "poor")
	s.kubectl("create", "role", "poor", "--verb=get,create", "--resource=configmaps")
	s.kubectl("create", "rolebinding", "poor", "--role=poor", "--serviceaccount="+s.ns+":poor")
	s.may("poor", "create", "configmaps")
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one"), "more/b.yaml": configMap("b", "mine")})
	s.source()
	s.applied(s.repo.Head())
	s.another("other", "more", func(gs *v1alpha1.GitSource) { gs.Spec.ServiceAccountName = "poor" })
	s.ready("other", metav1.ConditionFalse, "OwnedByOther")
	s.suspend("other") // or it makes the object again, which it may
	s.applied(s.push(map[string]string{"deploy/b.yaml": ""}))
	s.isGone("b", &corev1.ConfigMap{})
	if notes := s.events("HandedOver"); len(notes) > 0 {
		t.Errorf("handed over: %q", notes)
	}
}

// An object that may have moved to a source that does not render stays until that
// source renders.
func TestMoveToASourceThatDoesNotRender(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one"), "more/c.yaml": configMap("c", "one")})
	s.source()
	s.another("other", "more")
	s.applied(s.repo.Head())
	s.ready("other", metav1.ConditionTrue, "Applied")
	uid := get(s, "b", &corev1.ConfigMap{}).UID
	s.applied(s.push(map[string]string{"deploy/b.yaml": "", "more/b.yaml": configMap("b", "one"), "more/broken.yaml": "{"}))
	if kept := s.gs().Status.Kept; len(kept) != 1 || !strings.Contains(kept[0].UsedBy, "GitSource "+s.ns+"/other") {
		t.Errorf("kept is %+v", kept)
	}
	s.push(map[string]string{"more/broken.yaml": ""})
	s.goesOver(s.ns+"_b__ConfigMap", "shop", "other")
	if b := get(s, "b", &corev1.ConfigMap{}); b.UID != uid {
		t.Error("the object was deleted on its way")
	}
}

// An object that moves to a source that refuses the commit stays with the source that
// it leaves, which says why. It goes over once the commit is signed.
func TestMoveToASourceThatRefuses(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	ada := gittest.NewSSHKey(t, "ed25519", "")
	s.lists("keys", "ada@example.org "+ada.Public)
	s.repo.Sign(&ada)
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": configMap("b", "one"), "more/c.yaml": configMap("c", "one")})
	s.source()
	s.another("other", "more", func(gs *v1alpha1.GitSource) {
		gs.Spec.Verify = committers(&v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "keys"}})
	})
	s.applied(s.repo.Head())
	s.ready("other", metav1.ConditionTrue, "Applied")
	uid := get(s, "b", &corev1.ConfigMap{}).UID
	s.repo.Sign(nil)
	s.applied(s.push(map[string]string{"deploy/b.yaml": "", "more/b.yaml": configMap("b", "two")}))
	s.ready("other", metav1.ConditionFalse, "CommitNotVerified")
	if kept := s.gs().Status.Kept; len(kept) != 1 || !strings.Contains(kept[0].UsedBy, "GitSource "+s.ns+"/other, which has it now and refuses the commit (CommitNotVerified)") {
		t.Errorf("kept is %+v", kept)
	}
	b := get(s, "b", &corev1.ConfigMap{})
	if b.UID != uid || b.DeletionTimestamp != nil || b.Labels[v1alpha1.LabelSource] != "shop" || !s.inventoryHas("shop", s.ns+"_b__ConfigMap") {
		t.Errorf("b is %s's, in the inventory: %t", b.Labels[v1alpha1.LabelSource], s.inventoryHas("shop", s.ns+"_b__ConfigMap"))
	}
	if notes := s.events("HandedOver"); len(notes) > 0 {
		t.Errorf("handed over: %q", notes)
	}
	s.repo.Sign(&ada)
	s.push(map[string]string{"README.md": "signed"})
	s.goesOver(s.ns+"_b__ConfigMap", "shop", "other")
	s.ready("other", metav1.ConditionTrue, "Applied")
	if b := get(s, "b", &corev1.ConfigMap{}); b.UID != uid || b.DeletionTimestamp != nil || b.Data["value"] != "two" {
		t.Errorf("the object was deleted on its way, or is %v", b.Data)
	}
}

// An object that moves to a source that cannot apply it stays with the source that it
// leaves, which says why. It goes over once the other one can.
func TestMoveToASourceThatCannotApply(t *testing.T) {
	t.Parallel()
	immutable := func(value string) string { return configMap("b", value) + "immutable: true\n" }
	type move struct{ broken, repaired map[string]string }
	for what, m := range map[string]move{
		"the object": {
			broken:   map[string]string{"deploy/b.yaml": "", "more/b.yaml": immutable("two")},
			repaired: map[string]string{"more/b.yaml": immutable("one")},
		},
		"another object": {
			broken:   map[string]string{"deploy/b.yaml": "", "more/b.yaml": immutable("one"), "more/d.yaml": configMap("d", "one") + "unknown: field\n"},
			repaired: map[string]string{"more/d.yaml": configMap("d", "one")},
		},
	} {
		for name, order := range orders {
			t.Run(what+", "+name, func(t *testing.T) {
				t.Parallel()
				s := newEnv(t, gitsyncOnly)
				id := s.ns + "_b__ConfigMap"
				s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/b.yaml": immutable("one"), "more/c.yaml": configMap("c", "one")})
				s.source()
				s.another("other", "more")
				s.applied(s.repo.Head())
				s.ready("other", metav1.ConditionTrue, "Applied")
				uid := get(s, "b", &corev1.ConfigMap{}).UID
				order(s, func() { s.push(m.broken) })
				s.applied(s.repo.Head())
				s.lookNow("other")
				s.lookNow()
				if kept := s.gs().Status.Kept; len(kept) != 1 || !strings.Contains(kept[0].UsedBy, "GitSource "+s.ns+"/other, which has it now and cannot apply the commit (more/") {
					t.Errorf("kept is %+v", kept)
				}
				if b := get(s, "b", &corev1.ConfigMap{}); b.UID != uid || b.DeletionTimestamp != nil || b.Labels[v1alpha1.LabelSource] != "shop" || !s.inventoryHas("shop", id) {
					t.Errorf("b is %s's, in the inventory: %t", b.Labels[v1alpha1.LabelSource], s.inventoryHas("shop", id))
				}
				if notes := s.events("HandedOver"); len(notes) > 0 {
					t.Errorf("handed over: %q", notes)
				}
				s.push(m.repaired)
				s.goesOver(id, "shop", "other")
				s.ready("other", metav1.ConditionTrue, "Applied")
				if b := get(s, "b", &corev1.ConfigMap{}); b.UID != uid || b.DeletionTimestamp != nil || b.Labels[v1alpha1.LabelSource] != "other" {
					t.Errorf("the object was deleted on its way, or is %s's", b.Labels[v1alpha1.LabelSource])
				}
			})
		}
	}
}
