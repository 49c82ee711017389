package rollout_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// outsideDryRuns is a condition of admission: it cannot be foreseen.
const outsideDryRuns = "!(has(request.dryRun) && request.dryRun)"

// admit installs admission that from now on changes the pod template of every Deployment
// of the namespace that is written. A policy of the cluster does that, and so does an
// upgrade of Kubernetes with another default.
func (s *env) admit(condition string) {
	s.Helper()
	name := "mutate-" + s.ns
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
		}}}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "when", Expression: condition}},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{
			Expression: `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{annotations: {"admission": "was-here"}}}}}`,
		}}},
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
	}}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
		PolicyName:     name,
		MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.ns}}},
	}}
	for _, o := range []client.Object{policy, binding} {
		s.must(s.c.Client.Create(s.Context(), s.c.Mutating(s, o)))
		s.Cleanup(func() {
			_, _ = s.c.Kubectl(s, "delete", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", name)
		})
	}
	s.create("probe", 0, func(d *appsv1.Deployment) { d.Spec.Template = template("probe", "probe") })
	clustertest.Wait(s, "the mutation", func() error {
		d := s.deployment("probe")
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, "seen", d.ResourceVersion)
		if err := s.c.Client.Update(s.Context(), d); err != nil {
			return err
		}
		if !mutated(d) {
			return errors.New("a template passes as it is")
		}
		return nil
	})
}

func mutated(d *appsv1.Deployment) bool { return d.Spec.Template.Annotations["admission"] != "" }

// running returns the UIDs of the ReplicaSets with pods, and of their pods.
func (s *env) running() map[string]string {
	s.Helper()
	all := map[string]string{}
	for _, rs := range s.sets() {
		if *rs.Spec.Replicas > 0 {
			all[rs.Name] = string(rs.UID)
		}
	}
	var pods corev1.PodList
	s.must(s.c.Client.List(s.Context(), &pods, client.InNamespace(s.ns)))
	for _, p := range pods.Items {
		if owner := metav1.GetControllerOf(&p); owner != nil && all[owner.Name] != "" && p.DeletionTimestamp == nil {
			all[p.Name] = string(p.UID)
		}
	}
	return all
}

// looked waits until the controller has seen the BatchRelease as it is now, and
// says the reason.
func (s *env) looked(reason string, step int32, sizes map[string]int32) {
	s.Helper()
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Strategy.ProgressDeadlineSeconds = ptr.To(ptr.Deref(spec.Strategy.ProgressDeadlineSeconds, 600) + 1)
	})
	s.waitFor(reason, step, sizes)
}

// A policy that changes templates is installed while nothing moves, and the
// controller is started again: that starts nothing and replaces no pod. The next
// release goes its way.
func TestIdentity_MutationWhileIdle(t *testing.T) {
	t.Parallel()
	s, stop := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	stop()
	before, generation := s.running(), s.deployment("web").Generation
	s.admit("true")
	startControllerIn(t, s.c, s.ns)
	s.looked(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v1": 2})
	if diff := cmp.Diff(before, s.running()); diff != "" {
		t.Errorf("what runs (-before +after):\n%s", diff)
	}
	if now := s.deployment("web").Generation; now != generation {
		t.Errorf("the Deployment was written: generation %d, then %d", generation, now)
	}

	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	s.finish(2)
	if d := s.deployment("web"); !mutated(d) {
		t.Errorf("not mutated: %+v", d.Spec.Template)
	}
	s.looked(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 2})
	if n := s.w.Judged("I7"); n != 1 {
		t.Errorf("%d hand-backs\n%s", n, s.w.Timeline())
	}
}

// A policy has changed the template of an idle Deployment that another user wrote, and
// is taken away. The controller, started again, replaces no pod: Git has said nothing.
func TestIdentity_MutationEndsWhileIdle(t *testing.T) {
	t.Parallel()
	s, stop := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	remove := s.mutate()
	s.kubectl("-n", s.ns, "annotate", "deployment/web", "note=hello")
	s.rolled("web", 2)
	s.looked(v1alpha1.ReasonReleaseCompleted, 1, nil)
	if n := s.mutated(); n != 2 {
		t.Fatalf("%d of 2 pods run what the policy has made", n)
	}
	remove()
	clustertest.Wait(t, "the policy to act no more", func() error {
		out, err := s.c.Kubectl(t, "-n", s.ns, "create", "deployment", "probe", "--image=probe", "--dry-run=server", "-o", "yaml")
		if err == nil && strings.Contains(out, injected) {
			err = errors.New("it acts")
		}
		return err
	})
	stop()
	before, generation := s.running(), s.deployment("web").Generation
	startControllerIn(t, s.c, s.ns)
	s.looked(v1alpha1.ReasonReleaseCompleted, 1, nil)
	if diff := cmp.Diff(before, s.running()); diff != "" {
		t.Errorf("what runs (-before +after):\n%s", diff)
	}
	if now := s.deployment("web").Generation; now != generation {
		t.Errorf("the Deployment was written: generation %d, then %d", generation, now)
	}
}

// Admission changes the stable template when a Deployment without replicas is handed
// back at it. That is one hand-back, and the gate stays closed.
func TestIdentity_StableMutatedAtHandBack(t *testing.T) {
	t.Parallel()
	for name, condition := range map[string]string{"always": "true", "outside dry runs": outsideDryRuns} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t)
			var calls requests
			startControllerIn(t, s.c, s.ns, calls.count)
			s.install(2)
			s.plan("1", "100%")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
			s.bring("v2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
			s.admit(condition)
			calls.forget()
			// written fails unless the controller has written the Deployment so often.
			written := func(want int) {
				t.Helper()
				if n := calls.of(http.MethodPatch, "/deployments/web 200"); n != want {
					t.Errorf("%d writes to the Deployment, want %d\n%s\n%s", n, want, calls.String(), s.w.Timeline())
				}
			}
			s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=0")
			s.waitFor(v1alpha1.ReasonScaledToZero, 0, map[string]int32{})
			s.nativeHasSeen("web")
			d := s.deployment("web")
			if image := d.Spec.Template.Spec.Containers[0].Image; !mutated(d) || !strings.HasSuffix(image, ":v1") {
				t.Errorf("handed back at %s, mutated=%t", image, mutated(d))
			}
			s.looked(v1alpha1.ReasonScaledToZero, 0, map[string]int32{})
			s.looked(v1alpha1.ReasonScaledToZero, 0, map[string]int32{})
			written(1)
			s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=2")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
			s.finish(2)
			s.looked(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 2})
			written(3)
		})
	}
}

// Admission that no dry run shows makes another template of what is released. The
// revision is named as its pods are, and an approval of that name counts.
func TestIdentity_NamedAsItsPods(t *testing.T) {
	t.Parallel()
	s, _ := newEnvWithController(t)
	s.install(2)
	s.plan("1", "100%")
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, nil)
	s.admit(outsideDryRuns)
	s.bring("v2")
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	hash := s.pods("v2")[0].Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if d := s.deployment("web"); !mutated(d) {
		t.Fatalf("not mutated: %+v", d.Spec.Template)
	}
	s.edit(func(spec *v1alpha1.BatchReleaseSpec) {
		spec.Approval = &v1alpha1.Approval{Revision: hash, Commit: spec.Commit, Step: 0, ApprovedBy: "Ada"}
	})
	s.looked(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 2})
	if s := s.release().Status; s.StableRevision != hash || s.UpdateRevision != hash {
		t.Errorf("pods are of %s, and the status says stable %s, update %s", hash, s.StableRevision, s.UpdateRevision)
	}
}

// A revision that was rolled back has another name after an upgrade of the cluster.
// It is not released again; the next one is.
func TestIdentity_UpgradeAfterARollback(t *testing.T) {
	t.Parallel()
	s, stop := atGateOf(t, 2)
	name := s.set("v2").Name
	s.kubectl("-n", s.ns, "annotate", "batchrelease", "web", "tranche.dev/rollback=true")
	s.waitFor(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
	s.untouched()
	stop()
	before, writes := s.running(), s.w.Writes("Deployment", v1alpha1.ManagerRollout)
	s.admit("true")
	startControllerIn(t, s.c, s.ns)
	s.looked(v1alpha1.ReasonRolledBack, 1, map[string]int32{"v1": 2})
	if diff := cmp.Diff(before, s.running()); diff != "" {
		t.Errorf("what runs (-before +after):\n%s", diff)
	}
	if n := s.w.Writes("Deployment", v1alpha1.ManagerRollout) - writes; n != 0 {
		t.Errorf("%d writes to the Deployment\n%s", n, s.w.Timeline())
	}
	s.bring("v2") // by another commit
	s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 1, "v2": 1})
	for _, rs := range s.sets() {
		if rs.Name == name && *rs.Spec.Replicas > 0 {
			t.Errorf("the upgrade has left the name of the revision, %s: the test shows nothing", name)
		}
	}
}

// The name of the new ReplicaSet is taken in the middle of a release, so that the
// revision gets another. The release goes on, and an approval that was given before
// opens its gate.
func TestIdentity_CollisionInTheMiddle(t *testing.T) {
	t.Parallel()
	s, stop := atGateOf(t, 2)
	stop()
	name := s.set("v2").Name
	s.must(s.c.Client.Delete(t.Context(), s.set("v2")))
	s.become(map[string]int32{"v1": 2}) // the native controller takes over
	taken := s.newSet(name, "v9", 0)
	taken.Labels = map[string]string{"app": "other"}
	taken.Spec.Selector.MatchLabels, taken.Spec.Template.Labels = taken.Labels, taken.Labels
	clustertest.Wait(t, "the name to be free", func() error { return s.c.Client.Create(t.Context(), taken.DeepCopy()) })
	s.approve(0)
	startControllerIn(t, s.c, s.ns)
	s.waitFor(v1alpha1.ReasonReleaseCompleted, 1, map[string]int32{"v2": 2})
	s.untouched()
	if now := s.set("v2").Name; now == name || ptr.Deref(s.deployment("web").Status.CollisionCount, 0) == 0 {
		t.Errorf("ReplicaSet %s, collisionCount %d: nothing has collided", now, ptr.Deref(s.deployment("web").Status.CollisionCount, 0))
	}
	var outcomes []string
	for _, r := range s.release().Status.History {
		outcomes = append(outcomes, fmt.Sprintf("%s %d", r.Outcome, len(r.Approvals)))
	}
	if diff := cmp.Diff([]string{"Completed 1"}, outcomes); diff != "" {
		t.Errorf("outcomes and approvals (-want +got):\n%s", diff)
	}
}
