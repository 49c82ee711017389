package rollout_test

import (
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// chaosAdmissions puts one kind of admission in force after the other, for a while each.
type chaosAdmissions struct {
	*chaos
	there []client.Object
}

// Conditions of the policies. They are about ten of the 50 Deployments.
const (
	ofSome       = `object.metadata.name.matches('^web-[0-9][05]')`
	inEarnest    = `!(has(request.dryRun) && request.dryRun)`
	byController = `request.userInfo.username == 'system:serviceaccount:tranche-system:tranche-controller'`
)

// kindsOfAdmission are by name the objects that make them. A policy on ReplicaSets is about
// those that the controller writes: a native controller whose writes are changed makes
// ReplicaSets without end.
var kindsOfAdmission = map[string]func(a *chaosAdmissions) []client.Object{
	"mutates Deployments": func(a *chaosAdmissions) []client.Object { return a.mutate("deployments", ofSome) },
	"mutates Deployments outside dry runs": func(a *chaosAdmissions) []client.Object {
		return a.mutate("deployments", ofSome, inEarnest)
	},
	"mutates ReplicaSets outside dry runs": func(a *chaosAdmissions) []client.Object {
		return a.mutate("replicasets", ofSome, inEarnest, byController)
	},
	"refuses ReplicaSets": func(a *chaosAdmissions) []client.Object { return a.refuse("apps", "replicasets") },
	"refuses Deployments": func(a *chaosAdmissions) []client.Object { return a.refuse("apps", "deployments") },
	"refuses statuses":    func(a *chaosAdmissions) []client.Object { return a.refuse(v1alpha1.Group, "batchreleases/status") },
	"has a quota": func(a *chaosAdmissions) []client.Object {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "pods", Namespace: a.ns}}
		quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")}
		return []client.Object{quota}
	},
}

// turn takes away what is in force, or puts another kind in force.
func (a *chaosAdmissions) turn() {
	a.Helper()
	if len(a.there) > 0 {
		a.takeAway()
		return
	}
	names := slices.Sorted(maps.Keys(kindsOfAdmission))
	name := names[a.r.IntN(len(names))]
	a.struck[name]++
	a.there = kindsOfAdmission[name](a)
	for _, o := range a.there {
		a.must(a.c.Client.Create(a.Context(), o))
	}
}

func (a *chaosAdmissions) takeAway() {
	a.Helper()
	for _, o := range slices.Backward(a.there) {
		a.must(a.c.Client.Delete(a.Context(), o))
	}
	a.there = nil
}

// name of the policies, of which there is one kind at a time.
func (a *chaosAdmissions) name() string { return a.ns + ".example.org" }

func (a *chaosAdmissions) match(group, resource string) *admissionv1.MatchResources {
	rule := admissionv1.NamedRuleWithOperations{}
	rule.Operations = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}
	rule.APIGroups, rule.APIVersions, rule.Resources = []string{group}, []string{"*"}, []string{resource}
	return &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: a.ns}},
		ResourceRules:     []admissionv1.NamedRuleWithOperations{rule},
	}
}

func conditions(expressions ...string) []admissionv1.MatchCondition {
	var all []admissionv1.MatchCondition
	for i, e := range expressions {
		all = append(all, admissionv1.MatchCondition{Name: fmt.Sprintf("condition-%d", i), Expression: e})
	}
	return all
}

// mutate returns a policy that changes pod templates where all conditions hold.
func (a *chaosAdmissions) mutate(resource string, where ...string) []client.Object {
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: a.name()}}
	policy.Spec.MatchConstraints, policy.Spec.MatchConditions = a.match("apps", resource), conditions(where...)
	policy.Spec.ReinvocationPolicy = admissionv1.NeverReinvocationPolicy
	policy.Spec.Mutations = []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{
		Expression: `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{` +
			`annotations: {"example.org/injected": "true"}}}}}`,
	}}}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: a.name()}}
	binding.Spec.PolicyName = policy.Name
	return []client.Object{a.c.Mutating(a, policy), a.c.Mutating(a, binding)}
}

// refuse returns a policy that refuses what the controller writes.
func (a *chaosAdmissions) refuse(group, resource string) []client.Object {
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: a.name()}}
	policy.Spec.MatchConstraints, policy.Spec.MatchConditions = a.match(group, resource), conditions(ofSome, byController)
	policy.Spec.Validations = []admissionv1.Validation{{Expression: "false", Message: "not now"}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: a.name()}}
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	return []client.Object{policy, binding}
}
