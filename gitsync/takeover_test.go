package gitsync_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// gatedSteps are the steps of a plan whose releases wait at their first gate.
var gatedSteps = []string{"1", "50%", "100%"}

// tenOfGit brings ten pods and a plan, and a release that waits at its first gate.
func (s *env) tenOfGit() *v1alpha1.BatchRelease {
	s.Helper()
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v1"), "deploy/release.yaml": planOf("web", gatedSteps...)}))
	s.isAt("web", "ReleaseCompleted", 2)
	s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v2")})
	s.isAt("web", "WaitingForApproval", 0)
	return s.release("web")
}

// makes makes a plan with kubectl: without the labels of a source, no policy guards it.
func (s *env) makes(manifest string) {
	s.Helper()
	if out, err := s.c.KubectlWith(s, manifest, "create", "-n", s.ns, "-f", "-"); err != nil {
		s.Fatal(out)
	}
}

// stands waits until rollout has looked at a plan that does not govern.
func (s *env) stands(name string) {
	s.Helper()
	s.isAt(name, "AnotherPlan", 0)
}

func forgedApproval(br *v1alpha1.BatchRelease) string {
	return fmt.Sprintf("  approval: {revision: %q, commit: %q, step: 1, steps: [1, 50%%, 100%%], approvedBy: bob, approvedIn: %q}\n", br.Status.UpdateRevision, br.Spec.Commit, br.Spec.Commit)
}

// stillHeld records the versions of Deployment web from now on. The function that it
// returns fails the test if one of them was not held.
func (s *env) stillHeld() func() {
	s.Helper()
	r, before := s.recordDeployments(), s.deployment("web")
	return func() {
		s.Helper()
		versions, now := []appsv1.Deployment{*before}, s.deployment("web")
		if now.ResourceVersion != before.ResourceVersion {
			versions = append(versions, r.all(s, now)...)
		}
		for _, d := range versions {
			if d.Labels[v1alpha1.LabelHeld] == "" || !d.Spec.Paused {
				s.Errorf("version %s of Deployment web is not held", d.ResourceVersion)
			}
		}
	}
}

// ofWeb is a pod template of Deployment web, in JSON.
func ofWeb(image string) string {
	return `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"web","image":"registry.example.org/web:` + image + `","env":[{"name":"COLOUR","value":"blue"}]}]}}`
}

// anchored is the metadata of an object that goes with ConfigMap anchor.
func (s *env) anchored(name string) string {
	s.Helper()
	anchor := get(s, "anchor", &corev1.ConfigMap{})
	return fmt.Sprintf("{name: %s, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: anchor, uid: %s}]}", name, anchor.UID)
}

// dropAnchor deletes ConfigMap anchor, and waits until the garbage collector has deleted
// what had no other owner.
func (s *env) dropAnchor() {
	s.Helper()
	s.makes("apiVersion: v1\nkind: ConfigMap\nmetadata: " + s.anchored("witness") + "\n")
	s.kubectl("delete", "configmap/anchor")
	s.isGone("witness", &corev1.ConfigMap{})
}

// A BatchRelease that was made with kubectl under the name that Git gives to a plan later
// hands nothing on. It hands on neither its approval, nor the owner with which it would
// be deleted.
func TestPlanRenamedToOneByHand(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	br := s.tenOfGit()
	s.makes(configMap("anchor", "x"))
	s.makes(strings.Replace(planOf("web3", gatedSteps...), "{name: web3}", s.anchored("web3"), 1) + forgedApproval(br) + "  serviceAccountName: other\n")
	s.stands("web3")
	s.kubectl("patch", "batchrelease/web3", "--type=merge", "-p", `{"metadata":{"finalizers":["orphan"]}}`)
	sizes, stillHeld := s.recordSizes("v2"), s.stillHeld()
	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("web3", gatedSteps...)}))
	s.isGone("web", &v1alpha1.BatchRelease{})
	s.isAt("web3", "WaitingForApproval", 0)
	after := s.release("web3")
	if after.Spec.Approval != nil || after.Spec.ServiceAccountName != "" || len(after.OwnerReferences) > 0 {
		t.Errorf("it has %+v and the owners %v", after.Spec, after.OwnerReferences)
	}
	s.dropAnchor()
	s.lookNow()
	if uid := s.release("web3").UID; uid != after.UID {
		t.Error("the garbage collector has deleted the plan")
	}
	s.isAt("web3", "WaitingForApproval", 0)
	stillHeld()
	sizes.atMost(1)
	s.push(map[string]string{"deploy/approvals/web3.yaml": approvalOf("web3", after.Status.UpdateRevision, after.Spec.Commit, "1")})
	s.isAt("web3", "ReleaseCompleted", 2)
}

// A plan that was made by hand, and that Git has later under the same name, is taken over
// with its hold. Fields that only Git or the controller may set do not stay.
func TestPlanByHandBecomesGits(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v1")}))
	s.makes(configMap("anchor", "x"))
	s.makes(strings.Replace(planOf("web", gatedSteps...), "{name: web}", s.anchored("web"), 1) + "    rollback: {steps: [{replicas: 100%}]}\n  template: " + ofWeb("v1") + "\n")
	s.isAt("web", "ReleaseCompleted", 2)
	s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"spec":{"template":`+ofWeb("v2")+`}}`)
	s.isAt("web", "WaitingForApproval", 0)
	s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":["example.org/hostage"]},"spec":{"approval":{"revision":"abc","commit":"abc","step":1},"serviceAccountName":null,"commit":"abcdef0"}}`)
	before := s.release("web")
	sizes, stillHeld := s.recordSizes("v2"), s.stillHeld()
	commit := s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v2"), "deploy/release.yaml": planOf("web", gatedSteps...)})
	s.applied(commit)
	s.isAt("web", "WaitingForApproval", 0)
	after := s.release("web")
	if after.UID != before.UID || after.Spec.Approval != nil || after.Spec.Strategy.Rollback != nil || after.Spec.Commit != commit || len(after.OwnerReferences)+len(after.Finalizers) > 0 {
		t.Errorf("it has %+v, the owners %v and the finalizers %v", after.Spec, after.OwnerReferences, after.Finalizers)
	}
	s.dropAnchor()
	s.lookNow()
	if uid := s.release("web").UID; uid != before.UID {
		t.Error("the garbage collector has deleted the plan")
	}
	stillHeld()
	sizes.atMost(1)
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", after.Status.UpdateRevision, commit, "1")})
	s.isAt("web", "ReleaseCompleted", 2)
	// An owner that comes later goes with the next sync.
	s.makes(configMap("anchor", "x"))
	anchor := get(s, "anchor", &corev1.ConfigMap{})
	s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"anchor","uid":%q}]}}`, anchor.UID))
	s.lookNow()
	if owners := s.release("web").OwnerReferences; len(owners) > 0 {
		t.Errorf("it has the owners %v", owners)
	}
}

// A plan of a GitSource governs its Deployment, whatever older plan was made by hand.
func TestOlderPlanByHand(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.makes(planOf("a-web", "100%"))
	evil := s.recordSizes("evil")
	br := s.tenOfGit()
	sizes := s.recordSizes("v2")
	s.kubectl("patch", "batchrelease/a-web", "--type=merge", "-p", `{"spec":{"template":`+ofWeb("evil")+`}}`)
	s.stands("a-web")
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	sizes.atMost(1)
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", br.Status.UpdateRevision, br.Spec.Commit, "1")})
	s.isAt("web", "ReleaseCompleted", 2)
	if n, _ := sizes.now(); n != 10 {
		t.Errorf("%d pods run v2", n)
	}
	evil.atMost(0)
}

// A plan by hand that is made during a hold does not come to govern when Git gives the
// plan another name.
func TestPlanByHandBetweenTwoOfGit(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	br := s.tenOfGit()
	sizes, evil, stillHeld := s.recordSizes("v2"), s.recordSizes("evil"), s.stillHeld()
	s.makes(planOf("a-web", "100%") + "  template: " + ofWeb("evil") + "\n")
	s.stands("a-web")
	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("web4", gatedSteps...)}))
	s.isGone("web", &v1alpha1.BatchRelease{})
	s.isAt("web4", "WaitingForApproval", 0)
	s.stands("a-web")
	s.lookNow()
	stillHeld()
	sizes.atMost(1)
	evil.atMost(0)
	s.push(map[string]string{"deploy/approvals/web4.yaml": approvalOf("web4", br.Status.UpdateRevision, br.Spec.Commit, "1")})
	s.isAt("web4", "ReleaseCompleted", 2)
}

// A hold by a plan that was made by hand goes on behind the gate of Git's plan.
func TestHoldByHandUnderGitsPlan(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v1")}))
	s.makes(planOf("a-web", gatedSteps...) + "  template: " + ofWeb("v1") + "\n")
	s.isAt("a-web", "ReleaseCompleted", 2)
	s.kubectl("patch", "batchrelease/a-web", "--type=merge", "-p", `{"spec":{"template":`+ofWeb("v2")+`}}`)
	s.isAt("a-web", "WaitingForApproval", 0)
	sizes, stillHeld := s.recordSizes("v2"), s.stillHeld()
	commit := s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v2"), "deploy/release.yaml": planOf("web", gatedSteps...)})
	s.applied(commit)
	s.isAt("web", "WaitingForApproval", 0)
	s.stands("a-web")
	s.kubectl("delete", "batchrelease/a-web")
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
	stillHeld()
	sizes.atMost(1)
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", s.release("web").Status.UpdateRevision, commit, "1")})
	s.isAt("web", "ReleaseCompleted", 2)
}

// If the older plan of another source governs the Deployment, the GitSource says so.
func TestPlanOfAnotherSourceGoverns(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.makes(strings.Replace(planOf("a-web", "100%"), "{name: a-web}", "{name: a-web, labels: {tranche.dev/source: gone, tranche.dev/source-namespace: "+s.ns+"}}", 1))
	s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v1"), "deploy/release.yaml": planOf("web", gatedSteps...)}))
	s.stands("web")
	s.lookNow()
	s.says("False AnotherPlan: deploy/release.yaml: BatchRelease " + s.ns + "/web: it does not govern Deployment web: BatchRelease a-web of GitSource " + s.ns + "/gone is older and does; remove one of the two plans")
	s.kubectl("delete", "batchrelease/a-web")
	s.isAt("web", "ReleaseCompleted", 2)
	s.lookNow()
	s.says("True InSync")
}

// forestall runs f once, before the first write to BatchReleases of a path that tries nothing.
type forestall struct {
	next http.RoundTripper
	once *sync.Once
	path string
	f    func()
}

func (c forestall) RoundTrip(r *http.Request) (*http.Response, error) {
	of := strings.HasSuffix(r.URL.Path, "/batchreleases/"+c.path) || r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/batchreleases")
	if of && r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == "" {
		c.once.Do(c.f)
	}
	return c.next.RoundTrip(r)
}

// A BatchRelease that is made between gitsync's look and its write hands nothing on either.
func TestPlanByHandWhileGitsIsMade(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() }) // after the end of the GitSource
	br := s.tenOfGit()
	stop()
	s.makes(configMap("anchor", "x"))
	once := &sync.Once{}
	c := rest.CopyConfig(s.c.Controller)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return forestall{next, once, "web3", func() {
			s.makes(strings.Replace(planOf("web3", gatedSteps...), "{name: web3}", s.anchored("web3"), 1) + forgedApproval(br))
		}}
	})
	sizes, stillHeld := s.recordSizes("v2"), s.stillHeld()
	stop = s.startControllerWith(c, andRollout)
	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("web3", gatedSteps...)}))
	s.isGone("web", &v1alpha1.BatchRelease{})
	s.isAt("web3", "WaitingForApproval", 0)
	if after := s.release("web3"); after.Spec.Approval != nil || len(after.OwnerReferences) > 0 {
		t.Errorf("it has %+v and the owners %v", after.Spec, after.OwnerReferences)
	}
	s.lookNow()
	stillHeld()
	sizes.atMost(1)
	// A field that Git no longer has goes, though the plan was not applied but created.
	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("web3", gatedSteps...) + "    progressDeadlineSeconds: 900\n"}))
	s.applied(s.push(map[string]string{"deploy/release.yaml": planOf("web3", gatedSteps...)}))
	if got := owners(s.release("web3"), "strategy"); got != "tranche-gitsync/Apply" {
		t.Errorf("the strategy is %s's", got)
	}
}

// If only signed approvals count, a gate that was opened in a plan made by hand is
// closed again once Git has the plan. The hold stays, and no pod is added. That holds also
// if the plan has the commit that Git brings: it is known before it is pushed.
func TestPlanByHandBecomesGits_Signed(t *testing.T) {
	t.Parallel()
	for name, isKnown := range map[string]bool{"without a commit": false, "with the commit that Git brings": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, andRollout)
			signer := gittest.NewSSHKey(t, "ed25519", "")
			s.applied2(s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v1")}), func(gs *v1alpha1.GitSource) {
				gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: s.lists("approvers", "k2@example.org "+signer.Public)}
			})
			s.makes(planOf("web", gatedSteps...) + "  template: " + ofWeb("v1") + "\n")
			s.isAt("web", "ReleaseCompleted", 2)
			brings := s.repo.Commit(map[string]string{"deploy/web.yaml": sizedWeb(10, "v2"), "deploy/release.yaml": planOf("web", gatedSteps...)})
			patch := `{"spec":{"template":` + ofWeb("v2") + `}}`
			if isKnown {
				patch = fmt.Sprintf(`{"spec":{"commit":%q,"template":%s}}`, brings, ofWeb("v2"))
			}
			s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", patch)
			s.isAt("web", "WaitingForApproval", 0)
			s.approve("web")
			s.isAt("web", "WaitingForApproval", 1)
			sizes, stillHeld := s.recordSizes("v2"), s.stillHeld()
			s.repo.Push()
			s.applied(brings)
			s.isAt("web", "WaitingForApproval", 0)
			s.lookNow()
			stillHeld()
			sizes.atMost(5)
		})
	}
}

// After a restore with `kubectl create`, kubectl owns the approval, too. A later approval of
// Git replaces it, and the next release leaves none of it.
func TestApprovalOfTwoManagers(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	br := s.tenOfGit()
	approve := func(step string) {
		approval := approvalOf("web", br.Status.UpdateRevision, br.Spec.Commit, step)
		s.push(map[string]string{"deploy/approvals/web.yaml": approval})
	}
	approve("0")
	s.isAt("web", "WaitingForApproval", 1)
	alsoApplied(s, "kubectl-create")
	approve("1")
	s.isAt("web", "ReleaseCompleted", 2)
	commit := s.push(map[string]string{"deploy/web.yaml": sizedWeb(10, "v3")})
	s.applied(commit)
	s.isAt("web", "WaitingForApproval", 0)
	if after := s.release("web"); after.Spec.Approval != nil || after.Spec.Commit != commit {
		t.Errorf("the next release is of %s, and has approval %+v", after.Spec.Commit, after.Spec.Approval)
	}
}

// alsoApplied makes a manager an owner of the approval of plan web, with the values that
// are there.
func alsoApplied(s *env, manager string) {
	s.Helper()
	br := s.release("web")
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "BatchRelease", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"workloadRef": br.Spec.WorkloadRef, "strategy": br.Spec.Strategy, "approval": br.Spec.Approval},
	})
	s.must(err)
	out, err := s.c.KubectlWith(s, string(manifest), "apply", "--server-side", "--field-manager="+manager, "-n", s.ns, "-f", "-")
	if err != nil {
		s.Fatal(out)
	}
}
