package account

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const ownAccount = "system:serviceaccount:tranche-system:tranche-controller"

// policies is an API server with one policy and its binding.
type policies struct {
	client.Reader
	policy  *admissionv1.ValidatingAdmissionPolicy
	binding *admissionv1.ValidatingAdmissionPolicyBinding
	err     error
	reads   int
}

func (p *policies) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	p.reads++
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "policies"}, key.Name)
	switch o := o.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		if p.err != nil {
			return p.err
		}
		if p.policy == nil {
			return notFound
		}
		p.policy.DeepCopyInto(o)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		if p.binding == nil {
			return notFound
		}
		p.binding.DeepCopyInto(o)
	}
	return nil
}

func policyWith(expression string, more ...string) *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{}
	p.Name = policyHeldDeployments
	if expression != "" {
		p.Spec.Variables = []admissionv1.Variable{{Name: "accounts", Expression: expression}}
	}
	for _, e := range more {
		p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: e})
	}
	return p
}

func bindingWith(actions ...admissionv1.ValidationAction) *admissionv1.ValidatingAdmissionPolicyBinding {
	b := &admissionv1.ValidatingAdmissionPolicyBinding{}
	b.Name, b.Spec.PolicyName, b.Spec.ValidationActions = policyHeldDeployments, policyHeldDeployments, actions
	return b
}

func TestMayHandBack(t *testing.T) {
	deny := bindingWith(admissionv1.Deny)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "policies"}, policyHeldDeployments, errors.New("no"))
	for name, tc := range map[string]struct {
		reason    string
		api       policies
		asAccount bool
		whoami    error
		want      string // part of the error
	}{
		"named": {reason: "the policy lets it pass", api: policies{
			policy: policyWith("['a', '" + ownAccount + "']"), binding: deny,
		}},
		"another": {reason: "the hold could not be given back", api: policies{
			policy: policyWith("['system:serviceaccount:a:b', 'c']"), binding: deny,
		},
			want: "lets only system:serviceaccount:a:b, c write held Deployments, and the controller is " + ownAccount +
				"; run the controller as that account"},
		"no account": {reason: "an empty list lets no account pass",
			api: policies{policy: policyWith("[]"), binding: deny}, want: "lets only no account write"},
		"a part of the name": {reason: "an account is the whole name", api: policies{
			policy: policyWith("['" + ownAccount + "-b']"), binding: deny,
		}, want: "lets only"},
		"as an account": {reason: "the user extra lets it pass", api: policies{policy: policyWith("['c']"), binding: deny}, asAccount: true},
		"no policy":     {reason: "nothing refuses", api: policies{binding: deny}},
		"no binding":    {reason: "nothing refuses", api: policies{policy: policyWith("['c']")}},
		"only audited": {reason: "nothing refuses", api: policies{
			policy: policyWith("['c']"), binding: bindingWith(admissionv1.Audit, admissionv1.Warn),
		}},
		"unknown, named": {reason: "a policy of the administrator's own may let it pass", api: policies{
			policy: policyWith("", "request.userInfo.username == '"+ownAccount+"'"), binding: deny,
		}},
		"unknown, not named": {reason: "it cannot let it pass by name", api: policies{
			policy: policyWith("", "request.userInfo.username == 'c'"), binding: deny,
		}, want: "does not name the controller's account " + ownAccount},
		"computed, named": {reason: "only a list of literals is read", api: policies{
			policy: policyWith("['c'] + ['" + ownAccount + "']"), binding: deny,
		}},
		"computed, another": {reason: "only a list of literals is read", api: policies{
			policy: policyWith("['c'] + ['d']"), binding: deny,
		}, want: "does not name"},
		"not readable": {reason: "an older role has no right to read it", api: policies{err: forbidden, binding: deny}},
		"who is not told": {reason: "the right may be taken from all users", api: policies{
			policy: policyWith("['c']"), binding: deny,
		}, whoami: fmt.Errorf("asking: %w", forbidden)},
	} {
		t.Run(name, func(t *testing.T) {
			a := &Account{reader: &tc.api, now: time.Now, whoami: func(context.Context) (string, error) { return ownAccount, tc.whoami }}
			got, err := a.MayHandBack(t.Context(), tc.asAccount)
			if err != nil || (got == nil) != (tc.want == "") || got != nil && !strings.Contains(got.Error(), tc.want) {
				t.Errorf("%s: got %v and error %v, want %q", tc.reason, got, err, tc.want)
			}
		})
	}
}

// An answer is kept for a minute. A failure to ask is neither kept nor a refusal.
func TestMayHandBack_AsksOnceAMinute(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	api := &policies{policy: policyWith("['c']"), binding: bindingWith(admissionv1.Deny), err: errors.New("timeout")}
	a := &Account{reader: api, now: func() time.Time { return now }, whoami: func(context.Context) (string, error) { return ownAccount, nil }}
	var got []string
	ask := func() {
		before := api.reads
		refusal, err := a.MayHandBack(t.Context(), false)
		got = append(got, fmt.Sprintf("reads=%d refused=%t failed=%t", api.reads-before, refusal != nil, err != nil))
	}
	ask()
	api.err = nil
	ask()
	api.policy = policyWith("['" + ownAccount + "']")
	now = now.Add(59 * time.Second)
	ask()
	now = now.Add(time.Second)
	ask()
	want := []string{
		"reads=1 refused=false failed=true", "reads=2 refused=true failed=false",
		"reads=0 refused=true failed=false", "reads=2 refused=false failed=false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadAccounts(t *testing.T) {
	for _, tc := range []struct {
		expression string
		want       []string
		ok         bool
	}{
		{"['a']", []string{"a"}, true},
		{" [ 'a' , \"b:c\" ]\n", []string{"a", "b:c"}, true},
		{"[]", nil, true},
		{"", nil, false},
		{"'a'", nil, false},
		{"['a', ]", nil, false},
		{"['a' 'b']", nil, false},
		{"['a', b]", nil, false},
		{`['a\'b']`, nil, false},
		{"['a'] + ['b']", nil, false},
		{"['a', 'b'].filter(x, x != 'a')", nil, false},
	} {
		got, ok := readAccounts(tc.expression)
		if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
			t.Errorf("%s: ok=%t (-want +got):\n%s", tc.expression, ok, diff)
		}
	}
}

// A controller under another account says so at its start, and with each write that is
// refused. The policy on the status does not name the account to run as.
func TestExplain(t *testing.T) {
	const why = "the status is the memory of the controller"
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "batchreleases"}, "web", errors.New(why))
	failed := errors.New("timeout")
	for account, want := range map[string]bool{"c": true, ownAccount: false} {
		api := &policies{policy: policyWith("['" + account + "']"), binding: bindingWith(admissionv1.Deny)}
		a := &Account{reader: api, now: time.Now, whoami: func(context.Context) (string, error) { return ownAccount, nil }}
		const todo = "run the controller as that account"
		got := a.Explain(t.Context(), refused)
		if !apierrors.IsForbidden(got) || !strings.Contains(got.Error(), why) || strings.Contains(got.Error(), todo) != want {
			t.Errorf("the policy names %s: %v", account, got)
		}
		if got := a.Explain(t.Context(), failed); got.Error() != failed.Error() {
			t.Errorf("the policy names %s: %v", account, got)
		}
		var log strings.Builder
		logger := funcr.New(func(_, args string) { log.WriteString(args) }, funcr.Options{})
		if err := a.Log(logger)(t.Context()); err != nil || strings.Contains(log.String(), todo) != want {
			t.Errorf("the policy names %s: %v: %s", account, err, log.String())
		}
	}
}
