package access

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Resource is what a reader may list in a namespace.
type Resource struct{ Group, Name string }

// The resources that pages show.
var (
	BatchReleases = Resource{v1alpha1.Group, "batchreleases"}
	GitSources    = Resource{v1alpha1.Group, "gitsources"}
	Deployments   = Resource{"apps", "deployments"}
	ReplicaSets   = Resource{"apps", "replicasets"}
	Events        = Resource{"events.k8s.io", "events"}
)

// Rights says what a reader may see.
type Rights interface {
	// May reports whether the user may list a resource in a namespace. An error says that
	// this is not known; the answer is then false.
	May(ctx context.Context, u *User, namespace string, what Resource) (bool, error)
}

// All lets the reader see all that the server reads: it reads as that person.
type All struct{}

// May returns true.
func (All) May(context.Context, *User, string, Resource) (bool, error) { return true, nil }

// Reviewed asks the API server, by a SubjectAccessReview for each namespace.
type Reviewed struct {
	client client.Client
	known  *memory[bool]
}

// NewReviewed returns rights that the API server knows. An answer counts for 30 s.
func NewReviewed(c client.Client, now func() time.Time) *Reviewed {
	return &Reviewed{client: c, known: newMemory[bool](now)}
}

// May asks first whether the user may list the resource in all namespaces.
func (r *Reviewed) May(ctx context.Context, u *User, namespace string, what Resource) (bool, error) {
	all, err := r.review(ctx, u, "", what)
	if all || err != nil || namespace == "" {
		return all, err
	}
	return r.review(ctx, u, namespace, what)
}

func (r *Reviewed) review(ctx context.Context, u *User, namespace string, what Resource) (bool, error) {
	key := fmt.Sprintf("%s %s/%s %s", namespace, what.Group, what.Name, u.key())
	if allowed, ok := r.known.get(key); ok {
		return allowed, nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Group: what.Group, Resource: what.Name, Namespace: namespace},
	}}
	for name, value := range u.Extra {
		review.Spec.Extra[name] = authorizationv1.ExtraValue(value)
	}
	if err := r.client.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking the cluster what %s may list in namespace %q: %w", u.Name, namespace, err)
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	r.known.put(key, allowed)
	return allowed, nil
}

// askedAtOnce is how many reviews of one reader run at the same time.
const askedAtOnce = 16

// Visible returns the namespaces in which a user may list a resource.
func Visible(ctx context.Context, r Rights, u *User, namespaces []string, what Resource) (map[string]bool, error) {
	visible := map[string]bool{}
	if _, all := r.(All); all {
		for _, name := range namespaces {
			visible[name] = true
		}
		return visible, nil
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	var errs []error
	turns := make(chan struct{}, askedAtOnce)
	for i, name := range namespaces {
		ask := func() {
			may, err := r.May(ctx, u, name, what)
			mu.Lock()
			defer mu.Unlock()
			if visible[name] = may; err != nil {
				errs = append(errs, err)
			}
		}
		if i == 0 { // its answer for all namespaces counts for the others
			ask()
			continue
		}
		turns <- struct{}{}
		all.Go(func() { defer func() { <-turns }(); ask() })
	}
	all.Wait()
	return visible, errors.Join(errs...)
}
