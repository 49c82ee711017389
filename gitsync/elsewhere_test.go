package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// An edit of the spec, after which a source looks elsewhere, deletes nothing by itself. In the
// middle of a release a Deployment and its plan stay as they are. So they do if a commit gives
// both another namespace, or the Deployment another name.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	s := newRelease(t)
	target := s.c.Namespace(t)
	tip := s.push(map[string]string{"cfg/a.yaml": configMap("a", "one")})
	other := gittest.NewRepo(t)
	other.CommitAndPush(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.repo.Git("checkout", "-q", "--orphan", "unrelated")
	s.repo.Git("rm", "-q", "-r", "-f", ".")
	s.repo.Commit(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.repo.Git("push", "-q", "origin", "unrelated")
	s.repo.Git("checkout", "-q", "main")
	uid, first := s.deployment("web").UID, s.gs().Spec
	back := func() {
		t.Helper()
		edited(func(gs *v1alpha1.GitSource) { gs.Spec = first })(s)
		s.unresolved("Applied", "")
		isHeldAs(s, uid)
	}
	for name, tt := range otherPlaces(target, other.URL(), first.URL) {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			edited(tt.edit)(s)
			s.unresolved("PruneRefused", tt.says)
			s.at(target).absent("web", &appsv1.Deployment{})
			isHeldAs(s, uid)
			back()
		})
	}
	t.Run("the commit was confirmed before", func(t *testing.T) {
		s := s.in(t)
		s.confirm(tip)
		edited(func(gs *v1alpha1.GitSource) { gs.Spec.Path = "cfg" })(s)
		s.unresolved("PruneRefused", "tranche.dev/confirm-prune="+tip[:12]+".")
		isHeldAs(s, uid)
		back()
	})
	t.Run("metadata.namespace in a commit", func(t *testing.T) {
		s := s.in(t)
		in := "namespace: " + target
		moved := s.push(map[string]string{
			"deploy/web.yaml":  web("v2", "metadata:\n  name: web\n", "metadata:\n  name: web\n  "+in+"\n"),
			"deploy/plan.yaml": strings.Replace(webPlan, "{name: web}", "{name: web, "+in+"}", 1),
		})
		s.refused(moved, "PruneRefused")
		s.unresolved("PruneRefused", "in namespace "+target)
		s.at(target).absent("web", &appsv1.Deployment{})
		isHeldAs(s, uid)
		s.applied(s.push(manifests("v2")))
		isHeldAs(s, uid)
	})
	t.Run("another folder for approvals", func(t *testing.T) { anotherFolder(s.in(t), uid, back) })
	t.Run("another name in a commit", func(t *testing.T) { anotherName(s.in(t), uid) })
	t.Run("a branch that follows, and has deleted it", func(t *testing.T) {
		s := s.in(t)
		s.repo.Git("checkout", "-q", "-b", "next")
		s.repo.Commit(map[string]string{"deploy/web.yaml": "", "deploy/plan.yaml": "", "deploy/a.yaml": configMap("a", "one")})
		s.repo.Git("push", "-q", "origin", "next")
		edited(func(gs *v1alpha1.GitSource) { gs.Spec.Ref.Branch = "next" })(s)
		s.isGone("web", &appsv1.Deployment{})
		s.isGone("web", &v1alpha1.BatchRelease{})
	})
}

// anotherName gives the Deployment another name, with and without its plan, and brings one beside it.
func anotherName(s *env, uid types.UID) {
	s.Helper()
	for _, named := range []string{"web", "next"} {
		plan := strings.NewReplacer("Ref: {name: web}", "Ref: {name: next}", "metadata: {name: web}", "metadata: {name: "+named+"}")
		renamed := s.push(map[string]string{
			"deploy/web.yaml":  web("v2", "metadata:\n  name: web\n", "metadata:\n  name: next\n"),
			"deploy/plan.yaml": plan.Replace(webPlan),
		})
		s.refused(renamed, "PruneRefused")
		s.unresolved("PruneRefused", "the commit has Deployment "+s.ns+"/next in place of Deployment "+s.ns+"/web: all pods of the new one")
		s.absent("next", &appsv1.Deployment{})
		isHeldAs(s, uid)
		s.applied(s.push(manifests("v2")))
		isHeldAs(s, uid)
	}
	s.applied(s.push(map[string]string{"deploy/next.yaml": strings.ReplaceAll(web("v1"), "web", "next")}))
	isHeldAs(s, uid)
	s.applied(s.push(map[string]string{"deploy/next.yaml": ""}))
	s.isGone("next", &appsv1.Deployment{})
	isHeldAs(s, uid)
}

// anotherFolder makes the folder of the plan that of the approvals, whose files are no manifests.
func anotherFolder(s *env, uid types.UID, back func()) {
	s.Helper()
	s.applied(s.push(map[string]string{"deploy/plan.yaml": "", "deploy/app/plan.yaml": webPlan}))
	for _, prune := range []bool{true, false} {
		s.kubectl("annotate", "--overwrite", "batchrelease/web", fmt.Sprintf("tranche.dev/prune=%s", map[bool]string{true: "disabled"}[prune]))
		edited(func(gs *v1alpha1.GitSource) {
			gs.Spec.Prune, gs.Spec.Approvals = prune, &v1alpha1.ApprovalPolicy{Path: "deploy/app"}
		})(s)
		s.unresolved("PruneRefused",
			"1 of the 2 objects that were applied would be deleted, since spec.approvals.path was deploy/approvals: BatchRelease ")
		isHeldAs(s, uid)
		back()
	}
	s.applied(s.push(map[string]string{"deploy/plan.yaml": webPlan, "deploy/app/plan.yaml": ""}))
	isHeldAs(s, uid)
}

// isHeldAs fails if the Deployment is not the one that it was, at its gate.
func isHeldAs(s *env, uid types.UID) {
	s.Helper()
	if d := s.deployment("web"); d.UID != uid || d.DeletionTimestamp != nil || !d.Spec.Paused {
		s.Errorf("the Deployment is %s, deleted at %v, paused: %t; want %s, held", d.UID, d.DeletionTimestamp, d.Spec.Paused, uid)
	}
	s.isAt("web", "WaitingForApproval", 0)
}

// placeEdit makes a source look elsewhere.
type placeEdit struct {
	edit func(*v1alpha1.GitSource)
	says string
}

func otherPlaces(target, other, url string) map[string]placeEdit {
	const two = "2 of the 2 objects that were applied would be deleted, since "
	return map[string]placeEdit{
		"path": {func(gs *v1alpha1.GitSource) { gs.Spec.Path = "cfg" }, two + "spec.path was deploy: "},
		"path, without prune": {
			func(gs *v1alpha1.GitSource) { gs.Spec.Path, gs.Spec.Prune = "cfg", false },
			"1 of the 2 objects that were applied would be deleted, since spec.path was deploy: BatchRelease ",
		},
		"targetNamespace": {func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace = target }, two + "spec.targetNamespace was empty: "},
		"ref":             {func(gs *v1alpha1.GitSource) { gs.Spec.Ref.Branch = "unrelated" }, two + "spec.ref was main: "},
		"url":             {func(gs *v1alpha1.GitSource) { gs.Spec.URL = other }, two + "spec.url was " + url + ": "},
	}
}
