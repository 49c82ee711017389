package clients

import (
	"cmp"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// most is how many clients are kept; a cluster has fewer tenants, or a
// new client now and then costs little.
const most = 256

// Clients are those by the account that they read and write as. They
// have no cache: what is applied is compared with what is there now.
type Clients struct {
	config    *rest.Config
	options   client.Options
	byDefault string

	mu sync.Mutex
	by map[string]client.Client // by user name
}

// New returns the clients of a manager. byDefault is the account of a source that names none;
// empty: that of the controller.
func New(mgr ctrl.Manager, byDefault string) *Clients {
	return &Clients{
		config: mgr.GetConfig(), byDefault: byDefault, by: map[string]client.Client{},
		options: client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()},
	}
}

// User returns the user name of a service account of a namespace; empty for the controller's
// own account.
func (c *Clients) User(namespace, account string) string {
	if account = cmp.Or(account, c.byDefault); account == "" {
		return ""
	}
	return serviceaccount.MakeUsername(namespace, account)
}

// As returns the client of a service account of a namespace; empty: the
// default one, else the controller's own.
func (c *Clients) As(namespace, account string) (client.Client, error) {
	user := c.User(namespace, account)
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok := c.by[user]; ok {
		return one, nil
	}
	config := rest.CopyConfig(c.config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Extra: map[string][]string{v1alpha1.ExtraController: {"true"}}}
	}
	one, err := client.New(config, c.options)
	if err != nil {
		return nil, fmt.Errorf("making a client for %q: %w", user, err)
	}
	if len(c.by) >= most {
		clear(c.by)
	}
	c.by[user] = one
	return one, nil
}
