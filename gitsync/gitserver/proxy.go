package gitserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// keyAddress is the URL of the proxy, in the Secret that spec.proxySecretRef names. Its
// other keys are those of the credentials, as Flux has them.
const keyAddress = "address"

// proxy is an HTTP proxy; its zero value is that of the environment.
type proxy struct {
	options transport.ProxyOptions
}

// MayProxy refuses a proxy for a repository that it would not lead to.
func MayProxy(u *url.URL) error {
	if u.Scheme == "http" || u.Scheme == "https" {
		return nil
	}
	return &plan.Problem{
		Reason: v1alpha1.ReasonNotSupported, Where: "spec.proxySecretRef",
		Err:  fmt.Errorf("a proxy leads to http and https repositories, and this URL begins with %s", u.Scheme),
		Hint: "remove the field, or use https",
	}
}

// newProxy reads the data of the Secret with a proxy. No value of it is part of an error.
func newProxy(secret string, data map[string][]byte) (proxy, error) {
	address, err := url.Parse(string(data[keyAddress]))
	fact := ""
	switch {
	case len(data[keyAddress]) == 0:
		fact = "address is missing; put the URL of the proxy there"
	case err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https":
		fact = "address is no URL of an HTTP proxy; it must begin with http:// or https://"
	case address.User != nil:
		fact = "address has credentials in it; put them into username and password"
	default:
		return proxy{transport.ProxyOptions{URL: address.String(), Username: string(data[keyUsername]), Password: string(data[keyPassword])}}, nil
	}
	return proxy{}, &plan.Problem{Reason: v1alpha1.ReasonInvalidSecret, Where: "Secret " + secret, Err: errors.New(fact)}
}

// Through is the access by way of a proxy.
func (a Access) Through(secret string, data map[string][]byte) (Access, error) {
	var err error
	if a.proxy, err = newProxy(secret, data); err != nil {
		return Access{}, err
	}
	a.Identity += " " + identityOf(data)
	return a, nil
}

// of is what an HTTP transport takes as its proxy.
func (p proxy) of() func(*http.Request) (*url.URL, error) {
	if p.options.URL == "" {
		return http.ProxyFromEnvironment
	}
	full, err := p.options.FullURL()
	return func(*http.Request) (*url.URL, error) { return full, err }
}

// isProxyRefusal reports whether a proxy wants other credentials: to a request that it
// would pass on, or to one for a connection.
func isProxyRefusal(err error) bool {
	if answer := answerOf(err); answer != nil {
		return answer.StatusCode == http.StatusProxyAuthRequired
	}
	return strings.Contains(err.Error(), http.StatusText(http.StatusProxyAuthRequired))
}
