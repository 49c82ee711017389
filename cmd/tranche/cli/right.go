package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Right is one that an account needs.
type Right struct {
	Account string // the user name
	authorizationv1.ResourceAttributes
}

// String is the right as people ask for it.
func (r Right) String() string {
	resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
	return fmt.Sprintf("%s %s in %s", r.Verb, resource, cmp.Or(r.Namespace, "the cluster"))
}

// IsHeld reports whether the account has the right now. The error is Forbidden where this
// user may not ask for the rights of others.
func (r Right) IsHeld(ctx context.Context, c client.Client) (bool, error) {
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: r.Account, Groups: groupsOf(r.Account), ResourceAttributes: &r.ResourceAttributes,
	}}
	err := c.Create(ctx, &review)
	return review.Status.Allowed, err
}

const accountPrefix = "system:serviceaccount:"

// AccountName returns the user name of a ServiceAccount.
func AccountName(namespace, name string) string { return accountPrefix + namespace + ":" + name }

// ParseAccount returns the ServiceAccount of a user name. It reports false for another
// user.
func ParseAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, accountPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ":")
}

// groupsOf are the groups that a user is in: those of every service account, where it is
// one.
func groupsOf(user string) []string {
	namespace, _, ok := ParseAccount(user)
	if !ok {
		return []string{"system:authenticated"}
	}
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}
