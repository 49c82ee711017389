package gitsync

import (
	"fmt"
	"sync"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// maxWriters is how many clients are kept; a cluster has fewer tenants, or a
// new client now and then costs little.
const maxWriters = 256

// writers are the clients by the account that they read and write as. They
// have no cache: what is applied is compared with what is there now.
type writers struct {
	config    *rest.Config
	options   client.Options
	byDefault string

	mu sync.Mutex
	by map[string]client.Client // by user name
}

func newWriters(mgr ctrl.Manager, byDefault string) *writers {
	return &writers{
		config: mgr.GetConfig(), byDefault: byDefault, by: map[string]client.Client{},
		options: client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()},
	}
}

// as returns the client of a service account of a namespace; empty: the
// default one, else the controller's own.
func (w *writers) as(namespace, account string) (client.Client, error) {
	if account == "" {
		account = w.byDefault
	}
	user := ""
	if account != "" {
		user = "system:serviceaccount:" + namespace + ":" + account
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, ok := w.by[user]; ok {
		return c, nil
	}
	config := rest.CopyConfig(w.config)
	if user != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Extra: map[string][]string{v1alpha1.ExtraController: {"true"}}}
	}
	c, err := client.New(config, w.options)
	if err != nil {
		return nil, fmt.Errorf("making a client for %q: %w", user, err)
	}
	if len(w.by) >= maxWriters {
		clear(w.by)
	}
	w.by[user] = c
	return c, nil
}
