// Package account tells whether the policy on held Deployments lets the controller's account
// hand them back.
package account

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// policyHeldDeployments is the name of the ValidatingAdmissionPolicy on held
// Deployments and of its binding, as config/policy installs them.
const policyHeldDeployments = "tranche-held-deployments"

// variableAccounts is the policy's variable that lists the accounts of the
// controller.
const variableAccounts = "accounts"

// accountFor is how long an answer of [Account.MayHandBack] is kept.
const accountFor = time.Minute

// Account is the user as whom the controller writes, compared with the accounts
// that the policy on held Deployments lets pass. A controller that runs under
// another account could take a hold and never hand back.
type Account struct {
	reader client.Reader                         // past the cache: the controller may only get the one policy
	whoami func(context.Context) (string, error) // the user name of the controller
	now    func() time.Time

	mu      sync.Mutex
	asked   time.Time
	problem error
}

// New asks the API server through the controller's own client.
func New(reader client.Reader, own client.Client, now func() time.Time) *Account {
	return &Account{reader: reader, now: now, whoami: func(ctx context.Context) (string, error) { return userOf(ctx, own) }}
}

// userOf returns the user as whom a client is authenticated, or whom it
// impersonates.
func userOf(ctx context.Context, c client.Client) (string, error) {
	var review authenticationv1.SelfSubjectReview
	if err := c.Create(ctx, &review, client.DisableReadYourWritesConsistency); err != nil {
		return "", fmt.Errorf("creating a SelfSubjectReview: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

// MayHandBack returns a refusal when the policy on held Deployments would refuse the
// controller's hand-back. asAccount says that the controller writes as a tenant's
// account: then the policy knows it by a user extra. The answer is kept for a minute. If
// the controller may not read the policy, there is no refusal. The error is that the API server
// gave no answer, which is no refusal.
func (a *Account) MayHandBack(ctx context.Context, asAccount bool) (refusal, err error) {
	if asAccount {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.asked.IsZero() && a.now().Sub(a.asked) < accountFor {
		return a.problem, nil
	}
	problem, err := a.ask(ctx)
	if apierrors.IsForbidden(err) {
		logr.FromContextOrDiscard(ctx).V(1).Info("Skipped the check of the admission policy", "policy", policyHeldDeployments, "because",
			err.Error())
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("checking whether ValidatingAdmissionPolicy %s lets the controller hand back: %w", policyHeldDeployments, err)
	}
	a.asked, a.problem = a.now(), problem
	return problem, nil
}

// Explain adds to a refusal by the API server that the policies do not let the controller's
// account pass, if that is so. The policy on the status does not say what to do.
func (a *Account) Explain(ctx context.Context, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	refusal, unknown := a.MayHandBack(ctx, false)
	if unknown != nil || refusal == nil {
		return err
	}
	return fmt.Errorf("%w. %w", refusal, err)
}

// Log returns a function that logs if the policies do not let the controller's account pass.
// The status of a BatchRelease may not say so, since the same account writes it.
func (a *Account) Log(log logr.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		if refusal, err := a.MayHandBack(ctx, false); err == nil && refusal != nil {
			log.Error(refusal, "No release begins under this account")
		}
		return nil
	}
}

// ask returns a problem with the account. err says why ask could not find out.
func (a *Account) ask(ctx context.Context) (problem, err error) {
	name := client.ObjectKey{Name: policyHeldDeployments}
	var policy admissionv1.ValidatingAdmissionPolicy
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	for _, o := range []client.Object{&policy, &binding} {
		if err := a.reader.Get(ctx, name, o); err != nil {
			return nil, client.IgnoreNotFound(err) // nothing refuses
		}
	}
	if binding.Spec.PolicyName != policyHeldDeployments || !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny) {
		return nil, nil
	}
	user, err := a.whoami(ctx)
	if err != nil {
		return nil, err
	}
	return Refusal(&policy, user), nil
}

// Refusal returns an error when a policy that lets the controller pass does not let the user
// pass. A policy whose accounts cannot be read lets a user pass whose name is in any of its
// expressions.
func Refusal(policy *admissionv1.ValidatingAdmissionPolicy, user string) error {
	for _, v := range policy.Spec.Variables {
		if v.Name != variableAccounts {
			continue
		}
		accounts, ok := readAccounts(v.Expression)
		if !ok {
			break
		}
		if slices.Contains(accounts, user) {
			return nil
		}
		writes := "pass"
		if policy.Name == policyHeldDeployments {
			writes = "write held Deployments"
		}
		return fmt.Errorf("ValidatingAdmissionPolicy %s lets only %s %s, and the controller is %s; "+
			"run the controller as that account (--as, outside the cluster), or add %[4]s to the variable %[5]s in config/policy",
			policy.Name, orNoAccount(accounts), writes, user, variableAccounts)
	}
	if slices.ContainsFunc(Expressions(policy), func(e string) bool { return strings.Contains(e, user) }) {
		return nil
	}
	return fmt.Errorf("ValidatingAdmissionPolicy %s does not name the controller's account %s; "+
		"run the controller as an account that it names, or name this one in config/policy", policy.Name, user)
}

func orNoAccount(accounts []string) string {
	if len(accounts) == 0 {
		return "no account"
	}
	return strings.Join(accounts, ", ")
}

// Expressions returns those of a policy in which an account may be named.
func Expressions(policy *admissionv1.ValidatingAdmissionPolicy) []string {
	var expressions []string
	for _, c := range policy.Spec.MatchConditions {
		expressions = append(expressions, c.Expression)
	}
	for _, v := range policy.Spec.Variables {
		expressions = append(expressions, v.Expression)
	}
	for _, v := range policy.Spec.Validations {
		expressions = append(expressions, v.Expression)
	}
	return expressions
}

// A CEL string literal without escapes, and a list of such literals.
const literal = `(?:'[^'"\\\n]*'|"[^'"\\\n]*")`

var (
	literalElement = regexp.MustCompile(literal)
	literalList    = regexp.MustCompile(`^\s*\[\s*(?:` + literal + `(?:\s*,\s*` + literal + `)*)?\s*\]\s*$`)
)

// readAccounts reads a CEL expression that is a list of string literals. It
// reports false for any other.
func readAccounts(expression string) (accounts []string, ok bool) {
	if !literalList.MatchString(expression) {
		return nil, false
	}
	for _, quoted := range literalElement.FindAllString(expression, -1) {
		accounts = append(accounts, quoted[1:len(quoted)-1])
	}
	return accounts, true
}
