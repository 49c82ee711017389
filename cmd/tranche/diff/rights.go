package diff

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/preview"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// rights are those of the account that a GitSource names, on what a commit changes.
type rights struct {
	// lacking has a problem for each object that the account may not write.
	lacking plan.Problems
	// unchecked says that the rights are not known; empty where they are.
	unchecked string
}

// reasonForbidden is the reason that the GitSource would have.
const reasonForbidden = "Forbidden"

// checkRights asks the API server whether the account of a GitSource may write
// what a commit changes. A GitSource that names no account is applied by one that only the
// controller's flags name; its rights are not checked.
func checkRights(ctx context.Context, c client.Client, gs *v1alpha1.GitSource, v *preview.Preview) (rights, error) {
	account := gs.Spec.ServiceAccountName
	if account == "" {
		return rights{}, nil
	}
	var r rights
	for i := range v.Objects {
		o := &v.Objects[i]
		for _, verb := range verbsOf(v, o) {
			allowed, err := isAllowed(ctx, c, gs, o, verb)
			switch {
			case apierrors.IsForbidden(err):
				return rights{
					unchecked: fmt.Sprintf("Not checked: the rights of ServiceAccount %s/%s. This account may not create SubjectAccessReviews.",
						gs.Namespace, account),
				}, nil
			case meta.IsNoMatchError(err):
				continue // the commit brings its kind
			case err != nil:
				return r, fmt.Errorf("asking whether ServiceAccount %s/%s may %s %s: %w", gs.Namespace, account, verb, o, err)
			case !allowed:
				r.lacking = append(r.lacking, lacks(gs, o, verb))
			}
		}
	}
	return r, nil
}

// verbsOf are the rights that a change of an object needs. A server-side apply
// that creates needs two.
func verbsOf(v *preview.Preview, o *preview.Object) []string {
	switch o.Effect {
	case preview.EffectCreate:
		return []string{"create", "patch"}
	case preview.EffectChange:
		return []string{"patch"}
	case preview.EffectPrune:
		return []string{"delete"}
	case preview.EffectNone:
		for i := range v.Releases {
			if r := &v.Releases[i]; r.Deployment.String() == o.String() && r.Changes() {
				return []string{"patch"} // its template
			}
		}
	case preview.EffectHandOver, preview.EffectKeep, preview.EffectLeave, preview.EffectRefuse, preview.EffectUnknown:
	}
	return nil
}

func isAllowed(ctx context.Context, c client.Client, gs *v1alpha1.GitSource, o *preview.Object, verb string) (bool, error) {
	gvk := o.GroupVersionKind()
	mapping, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return false, err
	}
	attributes := &authorizationv1.ResourceAttributes{
		Verb: verb, Group: gvk.Group, Version: gvk.Version, Resource: mapping.Resource.Resource, Namespace: o.GetNamespace(), Name: o.GetName(),
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + gs.Namespace + ":" + gs.Spec.ServiceAccountName,
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + gs.Namespace, "system:authenticated"},
		ResourceAttributes: attributes,
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func lacks(gs *v1alpha1.GitSource, o *preview.Object, verb string) *plan.Problem {
	where := o.String()
	if o.File != "" {
		where = o.File + ": " + where
	}
	kind := strings.ToLower(o.GetKind())
	return &plan.Problem{
		Reason: reasonForbidden, Where: where,
		Err:  fmt.Errorf("ServiceAccount %s/%s may not %s it", gs.Namespace, gs.Spec.ServiceAccountName, verb),
		Hint: fmt.Sprintf("give the account the right to %s %s objects, or take the object out of the commit", verb, kind),
	}
}
