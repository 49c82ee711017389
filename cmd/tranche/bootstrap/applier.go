package bootstrap

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

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// checkApplier asks whether the accounts that apply may write what the path
// renders, where it is. Whether they may cannot always be found out.
func (b *bootstrap) checkApplier(ctx context.Context) error {
	if b.applier(b.source.Namespace) == "" {
		return nil // bootstrap has printed that it found no controller
	}
	lacking := map[string][]string{} // by account
	var accounts []string
	for _, r := range b.needed() {
		ok, err := b.allowed(ctx, r)
		if apierrors.IsForbidden(err) {
			_, err := fmt.Fprintf(b.cmd.OutOrStdout(), "? whether %s may apply it: you may not ask for the rights of others\n", r.Account)
			return err
		}
		if err != nil {
			return fmt.Errorf("asking for the rights of %s: %w", r.Account, err)
		}
		if !slices.Contains(accounts, r.Account) {
			accounts = append(accounts, r.Account)
		}
		if !ok {
			lacking[r.Account] = append(lacking[r.Account], r.String())
		}
	}
	for _, account := range accounts {
		if rights := lacking[account]; len(rights) > 0 {
			return fmt.Errorf("%s may not: %s; bind a role with these rights to it", account, strings.Join(rights, ", "))
		}
	}
	if len(accounts) == 0 {
		return nil // nothing is rendered
	}
	b.done("%s may apply all of it", strings.Join(accounts, " and "))
	return nil
}

// applier returns the account that writes for an object of a namespace. It is the one
// that the source names, else the controller's default one, else the controller's own. It
// is empty if that is not known.
func (b *bootstrap) applier(namespace string) string {
	if name := cmp.Or(b.source.Spec.ServiceAccountName, b.defaultAccount); name != "" {
		return cli.AccountName(namespace, name)
	}
	return b.account
}

// needed are the rights that applying what the path renders takes, and those
// that its releases take. A release is written as an account of the namespace
// that it is in.
func (b *bootstrap) needed() []cli.Right {
	applies := []string{"get", "create", "patch"}
	if b.source.Spec.Prune {
		applies = append(applies, "delete")
	}
	var list []cli.Right
	add := func(account string, gk schema.GroupKind, namespace string, verbs ...string) {
		mapping, err := b.at.RESTMapper().RESTMapping(gk)
		if err != nil {
			return // its CRD is part of the set
		}
		for _, verb := range verbs {
			r := cli.Right{
				Account: account,
				ResourceAttributes: authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: gk.Group, Resource: mapping.Resource.Resource,
				},
			}
			if !slices.Contains(list, r) {
				list = append(list, r)
			}
		}
	}
	account := b.applier(b.source.Namespace)
	for _, o := range b.set.Objects {
		add(account, o.GroupVersionKind().GroupKind(), o.GetNamespace(), applies...)
	}
	for _, r := range b.set.Releases {
		namespace := r.Plan.Namespace
		add(account, schema.GroupKind{Group: v1alpha1.Group, Kind: "BatchRelease"}, namespace, "get", "create", "patch", "delete")
		releaser := b.applier(namespace)
		add(releaser, schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}, namespace, "patch")
		add(releaser, schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}, namespace, "get", "create", "patch")
	}
	return list
}
