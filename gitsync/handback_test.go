package gitsync_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// freeze installs a policy by which Deployment web and its probe may only be written
// paused. Holds pass then, and the hand-back does not. The function that it returns
// ends the freeze.
func (s *env) freeze() (thaw func()) {
	s.Helper()
	manifest := strings.ReplaceAll(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: freeze.NS}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NS}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}]
  matchConditions: [{name: some, expression: "object.metadata.name in ['web', 'probe']"}]
  validations: [{expression: "has(object.spec.paused) && object.spec.paused", message: change freeze}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: freeze.NS}
spec: {policyName: freeze.NS, validationActions: [Deny]}
`, "NS", s.ns)
	s.with(strings.Replace(web("v1", "name: web", "name: probe", "app: web", "app: probe"), "replicas: 2", "replicas: 0", 1), "create", "-f", "-")
	s.with(manifest, "create", "-f", "-")
	clustertest.Wait(s, "the freeze", func() error {
		out, err := s.c.Kubectl(s, "-n", s.ns, "annotate", "deployment/probe", "tried=yes", "--dry-run=server", "--overwrite")
		if err == nil {
			return errors.New("a write passes")
		}
		if !strings.Contains(out, "change freeze") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	thaw = sync.OnceFunc(func() { s.with(manifest, "delete", "-f", "-") })
	s.Cleanup(thaw)
	return thaw
}

func (s *env) with(manifest string, args ...string) {
	s.Helper()
	if out, err := s.c.KubectlWith(s, manifest, append([]string{"-n", s.ns}, args...)...); err != nil {
		s.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// about returns the events for a reason that are about a Deployment.
func (s *env) about(deployment, reason string) []eventsv1.Event {
	s.Helper()
	var list eventsv1.EventList
	s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
	var found []eventsv1.Event
	for _, e := range list.Items {
		if e.Regarding.Kind == "Deployment" && e.Regarding.Name == deployment && e.Reason == reason {
			found = append(found, e)
		}
	}
	return found
}

// The API server refuses a hand-back of a plan that has left the branch. One event on
// the Deployment says why. After a while the source is Stalled and says where to read
// it. Another Deployment is handed back all the same, and once the policy is gone all of
// it passes by itself.
func TestHandBackRefused(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	t.Cleanup(s.startManager(s.c.Controller, func(mgr ctrl.Manager) error {
		s.must(rollout.Add(mgr, rollout.Options{Concurrent: 2}))
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, NoRemoteBases: true, FileRoots: []string{os.TempDir()}, HandBackWithin: 2 * time.Second})
	}))
	zoo := func(image string) string { return web(image, "name: web", "name: zoo", "app: web", "app: zoo") }
	zooPlan := strings.ReplaceAll(webPlan, "name: web", "name: zoo")
	s.applied2(s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/zoo.yaml": zoo("v1"), "deploy/plan.yaml": webPlan + "---\n" + zooPlan}))
	s.isAt("web", "ReleaseCompleted", 1)
	s.isAt("zoo", "ReleaseCompleted", 1)
	s.push(map[string]string{"deploy/web.yaml": web("v2"), "deploy/zoo.yaml": zoo("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	s.isAt("zoo", "WaitingForApproval", 0)
	thaw := s.freeze()
	gone := s.push(map[string]string{"deploy/plan.yaml": ""})
	message := s.refused(gone, v1alpha1.ReasonHandBackOverdue)
	if want := "kubectl events -n " + s.ns + " --for deployment/web"; !strings.Contains(message, want) {
		t.Errorf("it does not name the command %q: %s", want, message)
	}
	conditions := s.gs().Status.Conditions
	if stalled := meta.FindStatusCondition(conditions, "Stalled"); stalled.Status != "True" || stalled.Reason != v1alpha1.ReasonHandBackOverdue || !meta.IsStatusConditionFalse(conditions, "Reconciling") {
		t.Errorf("conditions: %s", said(s.gs()))
	}
	clustertest.Wait(t, "the hand-back of the other Deployment", func() error {
		if d := s.deployment("zoo"); d.Labels[v1alpha1.LabelHeld] != "" || d.Spec.Paused {
			return fmt.Errorf("%v, paused=%t", d.Labels, d.Spec.Paused)
		}
		return nil
	})
	s.handBackIsRefused() // the time may be over before the first attempt
	if out := s.kubectl("events", "--for", "deployment/web"); !strings.Contains(out, "HandBackRefused") || !strings.Contains(out, "change freeze") {
		t.Errorf("kubectl events does not say why: %s", out)
	}
	if list := s.about("web", "HandBackRefused"); len(list) != 1 || list[0].Series != nil || list[0].Type != "Warning" {
		t.Errorf("events: %+v", list)
	}
	if d := s.deployment("web"); d.Labels[v1alpha1.LabelHeld] == "" || !d.Spec.Paused {
		t.Error("the Deployment is not held, so the message is not true")
	}
	thaw()
	s.applied(gone)
	if d := s.deployment("web"); d.Labels[v1alpha1.LabelHeld] != "" || d.Spec.Paused {
		t.Errorf("not handed back: %+v", d.Spec)
	}
	if c := s.gs().Status.Conditions; !meta.IsStatusConditionFalse(c, "Stalled") {
		t.Errorf("conditions: %s", said(s.gs()))
	}
}

// staysHeld fails unless a Deployment was held in every version since the recording began.
// It must have one pod of each image, the ones before and behind the gate.
func (s *env) staysHeld(held *deployments) {
	s.Helper()
	s.kubectl("label", "deployment/web", "example.org/end=true")
	for _, d := range held.all(s, s.deployment("web")) {
		if d.Labels[v1alpha1.LabelHeld] == "" || !d.Spec.Paused {
			s.Errorf("at version %s it was not held: %v, paused=%t", d.ResourceVersion, d.Labels, d.Spec.Paused)
		}
	}
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns), client.MatchingLabels{"app": "web"}))
	sizes := map[string]int32{}
	for _, rs := range sets.Items {
		_, image, _ := strings.Cut(rs.Spec.Template.Spec.Containers[0].Image, ":")
		sizes[image] += *rs.Spec.Replicas
	}
	if diff := cmp.Diff(map[string]int32{"v1": 1, "v2": 1}, sizes); diff != "" {
		s.Errorf("sizes (-want +got):\n%s", diff)
	}
}

// handBackIsRefused waits for the event that says that the API server refuses the hand-back.
func (s *env) handBackIsRefused() {
	s.Helper()
	clustertest.Wait(s, "the refusal", func() error {
		if len(s.about("web", "HandBackRefused")) == 0 {
			return errors.New("no event")
		}
		return nil
	})
}

// A plan leaves the branch and is back before its Deployment was handed back: the
// Deployment stays held, and no gate opens.
func TestPlanBackBeforeTheHandBack(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (s *env, restart func(components, func())) {
		t.Parallel()
		s = newIdleEnv(t)
		stop := s.startController(andRollout)
		t.Cleanup(func() { stop() })
		s.beginRelease()
		return s, func(w components, meanwhile func()) {
			stop()
			meanwhile()
			stop = s.startController(w)
		}
	}
	t.Run("the controller never sees that it was gone", func(t *testing.T) {
		s, _ := begin(t)
		s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":["example.org/hostage"]}}`)
		before, held := s.release("web"), s.recordDeployments()
		s.repo.Commit(map[string]string{"deploy/plan.yaml": ""})
		back := s.push(map[string]string{"deploy/plan.yaml": webPlan})
		s.applied(back)
		s.lookNow()
		if br := s.release("web"); br.UID != before.UID || br.DeletionTimestamp != nil {
			t.Errorf("the plan was deleted: %+v", br.ObjectMeta)
		}
		s.staysHeld(held)
		s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", before.Status.UpdateRevision, before.Spec.Commit, "0")})
		s.isAt("web", "ReleaseCompleted", 1)
	})
	t.Run("a policy refuses the hand-back", func(t *testing.T) {
		s, _ := begin(t)
		held, thaw := s.recordDeployments(), s.freeze()
		s.push(map[string]string{"deploy/plan.yaml": ""})
		s.handBackIsRefused()
		s.absent("web", &v1alpha1.BatchRelease{})
		s.applied(s.push(map[string]string{"deploy/plan.yaml": webPlan}))
		thaw()
		s.isAt("web", "WaitingForApproval", 0)
		s.staysHeld(held)
	})
	t.Run("the controller dies before the hand-back", func(t *testing.T) {
		s, restart := begin(t)
		restart(gitsyncOnly, func() {})
		s.refused(s.push(map[string]string{"deploy/plan.yaml": ""}), v1alpha1.ReasonWaitingForHandBack)
		s.isGone("web", &v1alpha1.BatchRelease{})
		held := s.recordDeployments()
		back := ""
		restart(andRollout, func() { back = s.push(map[string]string{"deploy/plan.yaml": webPlan}) })
		s.applied(back)
		s.isAt("web", "WaitingForApproval", 0)
		s.staysHeld(held)
	})
}

// keptPlan begins a release. It returns once a finalizer keeps its deleted plan, the API
// server refuses the hand-back, and the branch has the plan again.
func keptPlan(t *testing.T) (s *env, held *deployments, thaw func()) {
	t.Helper()
	s = newEnv(t, andRollout)
	s.beginRelease()
	held, thaw = keepPlan(s)
	return s, held, thaw
}

// keepPlan is what keptPlan does with the release.
func keepPlan(s *env) (held *deployments, thaw func()) {
	s.Helper()
	s.finalizers(`"example.org/hostage"`)
	held, thaw = s.recordDeployments(), s.freeze()
	s.push(map[string]string{"deploy/plan.yaml": ""})
	s.handBackIsRefused()
	message := s.refused(s.push(map[string]string{"deploy/plan.yaml": webPlan}), v1alpha1.ReasonApplyFailed)
	for _, want := range []string{"it has the finalizers example.org/hostage", "Deployment web stays held until then"} {
		if !strings.Contains(message, want) {
			s.Errorf("it does not say %q", want)
		}
	}
	return held, thaw
}

// finalizers sets the finalizers of BatchRelease web.
func (s *env) finalizers(list string) {
	s.Helper()
	s.kubectl("patch", "batchrelease/web", "--type=merge", "-p", `{"metadata":{"finalizers":[`+list+`]}}`)
}

// approveNow commits an approval of step 0 of the release under way.
func (s *env) approveNow() {
	s.Helper()
	now := s.release("web")
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", now.Status.UpdateRevision, now.Spec.Commit, "0")})
}

// The Deployment of a plan that is back stays held, also once its hand-back would pass: a
// finalizer keeps the old BatchRelease. The release goes on behind its gate when that is
// gone. An approval of the release that has ended with the old plan opens no gate.
func TestPlanBack_KeptByAFinalizer(t *testing.T) {
	t.Parallel()
	s, held, thaw := keptPlan(t)
	thaw()
	before := s.release("web")
	s.approveNow()
	s.kubectl("label", "batchrelease/web", "example.org/round=now") // another round of rollout
	s.finalizers("")
	s.isGoneOrNew("web", before.UID)
	s.isAt("web", "WaitingForApproval", 0)
	s.says("False ApprovalIgnored: deploy/approvals/web.yaml: BatchApproval " + s.ns + "/web: spec.commit: " + before.Spec.Commit + " is another release; the present one comes from ")
	s.staysHeld(held)
	s.approveNow()
	s.isAt("web", "ReleaseCompleted", 1)
}

// A plan that is back, and leaves the branch again before it is created: the Deployment is
// handed back.
func TestPlanBack_GoneAgain(t *testing.T) {
	t.Parallel()
	s, _, thaw := keptPlan(t)
	gone := s.push(map[string]string{"deploy/plan.yaml": ""})
	thaw()
	s.applied(gone)
	if d := s.deployment("web"); d.Labels[v1alpha1.LabelHeld] != "" || d.Spec.Paused {
		t.Errorf("not handed back: %+v", d.Spec)
	}
	s.finalizers("")
}

// The branch is pushed back to before its plan was removed, while the hand-back is
// refused: the release has ended with its plan. The message says what to do, and it helps.
func TestPlanBack_BranchPushedBack(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.beginRelease()
	before := s.release("web")
	held, thaw := s.recordDeployments(), s.freeze()
	s.push(map[string]string{"deploy/plan.yaml": ""})
	s.handBackIsRefused()
	s.repo.Git("reset", "-q", "--hard", before.Spec.Commit)
	s.repo.Git("push", "-q", "--force", "origin", "HEAD:refs/heads/main")
	s.lookNow()
	thaw()
	s.isAt("web", "WaitingForApproval", 0)
	s.staysHeld(held)
	s.approveNow()
	s.says("False ApprovalIgnored: deploy/approvals/web.yaml: BatchApproval " + s.ns + "/web: spec.commit: the release of commit " + before.Spec.Commit[:12] +
		" has ended, and its BatchRelease was removed since; bring the change by a new commit")
	s.isAt("web", "WaitingForApproval", 0)
	s.push(manifests("v1"))
	s.isAt("web", "ReleaseCompleted", 1)
	s.push(manifests("v2"))
	s.isAt("web", "WaitingForApproval", 0)
	s.approveNow()
	s.isAt("web", "ReleaseCompleted", 1)
}
