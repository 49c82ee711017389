package doctor

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/config"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/rollout/account"
)

// embeddedAccount is the controller's account in the manifests of this program.
const embeddedAccount = "system:serviceaccount:tranche-system:tranche-controller"

// checkPolicies compares the admission policies and their bindings with those of this
// program.
func (e *exam) checkPolicies(ctx context.Context) []Finding {
	bindings := map[string]*admissionv1.ValidatingAdmissionPolicyBinding{}
	for _, o := range config.Objects("policy", "ValidatingAdmissionPolicyBinding") {
		bindings[o.GetName()] = typed[admissionv1.ValidatingAdmissionPolicyBinding](o)
	}
	accounts, err := e.accounts(ctx)
	var list []Finding
	for _, o := range config.Objects("policy", "ValidatingAdmissionPolicy") {
		f := e.checkPolicy(ctx, typed[admissionv1.ValidatingAdmissionPolicy](o), bindings[o.GetName()], accounts)
		f.Check, f.Object = "policy", o.GetName()
		if f.Result == OK && err != nil {
			f = unknown(f.Check, f.Object, err)
		}
		list = append(list, f)
	}
	return list
}

// accounts are those that controllers run as.
func (e *exam) accounts(ctx context.Context) ([]string, error) {
	if e.account != "" {
		return []string{e.account}, nil
	}
	list, err := e.findInstances(ctx)
	var accounts []string
	for i := range list {
		accounts = append(accounts, list[i].account)
	}
	slices.Sort(accounts)
	return slices.Compact(accounts), err
}

func (e *exam) checkPolicy(ctx context.Context, want *admissionv1.ValidatingAdmissionPolicy,
	wantBinding *admissionv1.ValidatingAdmissionPolicyBinding, accounts []string,
) Finding {
	todo := e.apply("config/policy")
	var is admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	for _, o := range []client.Object{&is, &binding} {
		err := e.Get(ctx, client.ObjectKey{Name: want.Name}, o)
		what := "it"
		if o == client.Object(&binding) {
			what = "its binding"
		}
		if apierrors.IsNotFound(err) {
			return Finding{Result: Problem, Message: what + " is not there, so nothing is refused", Todo: todo}
		}
		if err != nil {
			return unknown("", "", err)
		}
	}
	if binding.Spec.PolicyName != want.Name || !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		return Finding{Result: Problem, Todo: todo,
			Message: fmt.Sprintf("its binding is of policy %s with %v, and does not deny", binding.Spec.PolicyName, binding.Spec.ValidationActions)}
	}
	for _, user := range accounts {
		if !namesAccounts(want) {
			break
		}
		if refusal := account.Refusal(&is, user); refusal != nil {
			return Finding{Result: Problem, Message: refusal.Error()}
		}
	}
	setDefaults(want, wantBinding)
	differ := append(differing("spec.", masked(&want.Spec), masked(&is.Spec)),
		differing("the binding's spec.", &wantBinding.Spec, &binding.Spec)...)
	if len(differ) > 0 {
		return Finding{Result: Problem, Message: "it differs from that of this program in " + plan.JoinNames(differ),
			Todo: todo + ", and take back what other field managers have set"}
	}
	message := "current, and bound with Deny"
	if namesAccounts(want) {
		switch {
		case len(accounts) > 0:
			message += "; it lets " + plan.JoinNames(accounts) + " pass"
		default:
			return Finding{Result: Unknown, Message: message + "; the controller's account is not known",
				Todo: "name it with --controller-account"}
		}
	}
	return Finding{Result: OK, Message: message}
}

// namesAccounts reports whether a policy of this program lets the controller's account
// pass by name.
func namesAccounts(p *admissionv1.ValidatingAdmissionPolicy) bool {
	return slices.ContainsFunc(account.Expressions(p), func(e string) bool { return strings.Contains(e, embeddedAccount) })
}

// accountList is a CEL list that names service accounts.
var accountList = regexp.MustCompile(`\[\s*['"]system:serviceaccount:[^\]]*\]`)

// masked returns a policy without the names of accounts. An installation in another
// namespace has others, and [account.Refusal] judges them. White space does not count either:
// kustomize and Helm fold the lines of an expression in ways of their own.
func masked(spec *admissionv1.ValidatingAdmissionPolicySpec) *admissionv1.ValidatingAdmissionPolicySpec {
	spec = spec.DeepCopy()
	mask := func(expression *string) {
		*expression = strings.Join(strings.Fields(accountList.ReplaceAllString(*expression, "[ACCOUNTS]")), " ")
	}
	for i := range spec.MatchConditions {
		mask(&spec.MatchConditions[i].Expression)
	}
	for i := range spec.Variables {
		mask(&spec.Variables[i].Expression)
	}
	for i := range spec.Validations {
		mask(&spec.Validations[i].Expression)
		mask(&spec.Validations[i].MessageExpression)
	}
	return spec
}

// setDefaults sets the fields that the API server adds to the manifests.
func setDefaults(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
	p.Spec.FailurePolicy = ptr.To(ptr.Deref(p.Spec.FailurePolicy, admissionv1.Fail))
	m := p.Spec.MatchConstraints
	m.MatchPolicy = ptr.To(ptr.Deref(m.MatchPolicy, admissionv1.Equivalent))
	for _, selector := range []**metav1.LabelSelector{&m.NamespaceSelector, &m.ObjectSelector} {
		if *selector == nil {
			*selector = &metav1.LabelSelector{}
		}
	}
	for i := range m.ResourceRules {
		m.ResourceRules[i].Scope = ptr.To(ptr.Deref(m.ResourceRules[i].Scope, admissionv1.AllScopes))
	}
	if r := b.Spec.ParamRef; r != nil {
		r.ParameterNotFoundAction = ptr.To(ptr.Deref(r.ParameterNotFoundAction, admissionv1.DenyAction))
	}
}

// differing names the fields of two specs that differ.
func differing(prefix string, want, is any) []string {
	a, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		panic(err) // API types all convert
	}
	b, err := runtime.DefaultUnstructuredConverter.ToUnstructured(is)
	if err != nil {
		panic(err)
	}
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	var names []string
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !reflect.DeepEqual(a[key], b[key]) {
			names = append(names, prefix+key)
		}
	}
	return names
}
