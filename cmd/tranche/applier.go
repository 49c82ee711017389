package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// checkApplier asks whether the account that applies may write what the path
// renders, where it is. Whether it may cannot always be found out.
func (b *bootstrap) checkApplier(ctx context.Context) error {
	account := b.account
	if name := b.source.Spec.ServiceAccountName; name != "" {
		account = "system:serviceaccount:" + b.source.Namespace + ":" + name
	}
	if account == "" {
		return nil // that no controller was found has been told
	}
	var lacking []string
	for _, attributes := range b.needed() {
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: account, Groups: groupsOf(account), ResourceAttributes: &attributes,
		}}
		err := b.at.Create(ctx, &review)
		if apierrors.IsForbidden(err) {
			_, err := fmt.Fprintf(b.cmd.OutOrStdout(), "? whether %s may apply it: you may not ask for the rights of others\n", account)
			return err
		}
		if err != nil {
			return fmt.Errorf("asking for the rights of %s: %w", account, err)
		}
		if !review.Status.Allowed {
			lacking = append(lacking, fmt.Sprintf("%s %s in %s", attributes.Verb, attributes.Resource, cmp.Or(attributes.Namespace, "the cluster")))
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("%s may not: %s; bind a role with these rights to it", account, strings.Join(lacking, ", "))
	}
	b.done("%s may apply all of it", account)
	return nil
}

// groupsOf are the groups that every service account is in.
func groupsOf(account string) []string {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(account, "system:serviceaccount:"), ":")
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}

// needed are the rights that applying what the path renders takes.
func (b *bootstrap) needed() []authorizationv1.ResourceAttributes {
	verbs := []string{"get", "create", "patch"}
	if b.source.Spec.Prune {
		verbs = append(verbs, "delete")
	}
	var list []authorizationv1.ResourceAttributes
	add := func(gk schema.GroupKind, namespace string) {
		mapping, err := b.at.RESTMapper().RESTMapping(gk)
		if err != nil {
			return // its CRD is part of the set
		}
		for _, verb := range verbs {
			a := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: gk.Group, Resource: mapping.Resource.Resource}
			if !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	for _, o := range b.set.Objects {
		add(o.GroupVersionKind().GroupKind(), o.GetNamespace())
	}
	for _, r := range b.set.Releases {
		add(schema.GroupKind{Group: v1alpha1.Group, Kind: "BatchRelease"}, r.Plan.Namespace)
		add(schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}, r.Plan.Namespace)
	}
	return list
}
