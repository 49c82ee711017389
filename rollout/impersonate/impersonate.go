// Package impersonate has the one client by which the controller writes as several accounts.
package impersonate

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// accountKey is the key of a context's value: the user name to write as.
type accountKey struct{}

// As returns a context in which the client of [NewClient] writes as a
// service account of a namespace. An empty account is the controller's own.
func As(ctx context.Context, namespace, account string) context.Context {
	if account == "" {
		return ctx
	}
	return context.WithValue(ctx, accountKey{}, "system:serviceaccount:"+namespace+":"+account)
}

// NewClient returns a client that reads from the manager's cache and writes as the
// account that the context names. It is one client for all accounts, so that a read of an
// object sees every write, whichever account made it. [ForDeployment] says what a list sees.
func NewClient(mgr ctrl.Manager) (client.Client, error) {
	c, err := newClient(mgr, &client.CacheOptions{Reader: mgr.GetCache(), EnableReadYourWritesConsistency: ptr.To(true)})
	if err != nil {
		return nil, err
	}
	return &ownWrites{Client: c, written: map[types.NamespacedName]map[object]int{}}, nil
}

// NewUncachedClient returns a client that reads as the account, too, from the API server: what
// the account may not read, the release does not get.
func NewUncachedClient(mgr ctrl.Manager) (client.Client, error) { return newClient(mgr, nil) }

func newClient(mgr ctrl.Manager, cache *client.CacheOptions) (client.Client, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	own := transport.ImpersonationConfig{
		UserName: config.Impersonate.UserName, UID: config.Impersonate.UID, Groups: config.Impersonate.Groups, Extra: config.Impersonate.Extra,
	}
	config.Impersonate = rest.ImpersonationConfig{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &impersonator{own: own, next: next} })
	c, err := client.New(config, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), Cache: cache})
	if err != nil {
		return nil, fmt.Errorf("making the client of the BatchRelease reconciler: %w", err)
	}
	return c, nil
}

// Account returns the user name as which a context writes; empty: the controller's own.
func Account(ctx context.Context) string {
	user, _ := ctx.Value(accountKey{}).(string)
	return user
}

// impersonator sends each request as the account of its context, or as the
// controller's own.
type impersonator struct {
	own  transport.ImpersonationConfig
	next http.RoundTripper
}

func (i *impersonator) RoundTrip(r *http.Request) (*http.Response, error) {
	as := i.own
	if user, ok := r.Context().Value(accountKey{}).(string); ok {
		as = transport.ImpersonationConfig{UserName: user, Extra: map[string][]string{v1alpha1.ExtraController: {"true"}}}
	}
	if as.UserName == "" {
		return i.next.RoundTrip(r)
	}
	return transport.NewImpersonatingRoundTripper(as, i.next).RoundTrip(r)
}
