package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
)

// sourceAccount is the account of a new GitSource where no flag names one.
const sourceAccount = "deployer"

// rightsTimeout is how long the API server may take to know a new RoleBinding.
const rightsTimeout = 20 * time.Second

// mayMake reports whether bootstrap makes the account where it is missing: not where a
// flag names it alone, since the name may be wrong.
func (b *bootstrap) mayMake() bool {
	flags := b.cmd.Flags()
	return b.source.Spec.ServiceAccountName != "" && b.role != "" && (flags.Changed("role") || !flags.Changed("service-account"))
}

// findAccount decides whether the account that applies is made.
func (b *bootstrap) findAccount(ctx context.Context) error {
	if !b.mayMake() {
		return nil
	}
	var account corev1.ServiceAccount
	err := b.at.Get(ctx, client.ObjectKey{Namespace: b.at.Namespace, Name: b.source.Spec.ServiceAccountName}, &account)
	switch {
	case apierrors.IsNotFound(err):
		b.makes = true
	case err != nil && !apierrors.IsForbidden(err): // its rights are asked for in any case
		return fmt.Errorf("reading ServiceAccount %s/%s: %w", b.at.Namespace, b.source.Spec.ServiceAccountName, err)
	}
	return nil
}

// accountObjects are the account and the binding that gives it the role.
func (b *bootstrap) accountObjects() []map[string]any {
	name := b.source.Spec.ServiceAccountName
	account := &corev1.ServiceAccount{}
	account.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	binding := &rbacv1.RoleBinding{
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: b.at.Namespace}},
	}
	binding.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
	var objects []map[string]any
	for _, o := range []client.Object{account, binding} {
		o.SetName(name)
		o.SetNamespace(b.at.Namespace)
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			panic(err) // API types all convert
		}
		delete(m["metadata"].(map[string]any), "creationTimestamp")
		objects = append(objects, m)
	}
	return objects
}

// checkRole asks the API server whether you may make the account and give it the role.
func (b *bootstrap) checkRole(ctx context.Context) error {
	if !b.makes {
		return nil
	}
	for _, o := range b.accountObjects() {
		if err := b.apply(ctx, o, client.DryRunAll); err != nil {
			return fmt.Errorf("making ServiceAccount %s/%s with the ClusterRole %s: %w; name an account that is there with --service-account",
				b.at.Namespace, b.source.Spec.ServiceAccountName, b.role, err)
		}
	}
	return nil
}

// within reports whether rules of a role give a right.
func within(r cli.Right, rules []rbacv1.PolicyRule) bool {
	has := func(list []string, word string) bool {
		return slices.Contains(list, word) || slices.Contains(list, "*")
	}
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return has(rule.Verbs, r.Verb) && has(rule.APIGroups, r.Group) && has(rule.Resources, r.Resource) && len(rule.ResourceNames) == 0
	})
}

// allowed reports whether an account has a right, or will have it by the role. It is
// Forbidden where you may not ask.
func (b *bootstrap) allowed(ctx context.Context, r cli.Right) (bool, error) {
	if b.makes && r.Account == b.applier(b.at.Namespace) {
		var role rbacv1.ClusterRole
		if err := b.at.Get(ctx, client.ObjectKey{Name: b.role}, &role); err != nil {
			return false, err
		}
		if r.Namespace == b.at.Namespace && within(r, role.Rules) {
			return true, nil
		}
	}
	return r.IsHeld(ctx, b.at)
}

// writeAccount applies the account and its binding, and waits until the API server
// knows its rights: the controller would be refused until then.
func (b *bootstrap) writeAccount(ctx context.Context) error {
	if !b.makes {
		return nil
	}
	what := b.accountName()
	for _, o := range b.accountObjects() {
		if err := b.apply(ctx, o); err != nil {
			return fmt.Errorf("writing %s: %w", what, err)
		}
	}
	for _, r := range b.needed() {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, rightsTimeout, true, func(ctx context.Context) (bool, error) {
			ok, err := r.IsHeld(ctx, b.at)
			if apierrors.IsForbidden(err) { // you may not ask
				return true, nil
			}
			return ok, err
		})
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("waiting for the rights of %s: it may not %s after %s", what, r, rightsTimeout)
		}
		if err != nil {
			return fmt.Errorf("waiting for the rights of %s: %w", what, err)
		}
	}
	b.done("%s is there", what)
	return nil
}

// accountName names the account that is made, and what it gets.
func (b *bootstrap) accountName() string {
	return fmt.Sprintf("ServiceAccount %s/%s with the ClusterRole %s", b.at.Namespace, b.source.Spec.ServiceAccountName, b.role)
}
