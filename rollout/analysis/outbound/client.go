package outbound

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

const (
	maxBody     = 1 << 20  // bytes of an answer
	maxHeader   = 64 << 10 // bytes of its header
	maxSkew     = 30 * time.Second
	dialTimeout = 10 * time.Second
	// kept is how many sets of certificates have connections that are kept open.
	kept = 64
)

// Options of the clients.
type Options struct {
	// Networks are those in which the servers may be that releases name themselves.
	Networks Networks
	// Resolver resolves the names of servers; nil: that of the machine.
	Resolver *net.Resolver
	// Now is the clock that the clocks of servers are compared with.
	Now func() time.Time
	// MayReach replaces the check of an address, in tests whose servers are on this machine.
	MayReach func(netip.Addr) error
}

// Clients makes and keeps HTTP clients.
type Clients struct {
	o Options

	mu sync.Mutex
	of map[[sha256.Size]byte]*Client
}

// NewClients returns Clients without any client.
func NewClients(o Options) *Clients {
	if o.MayReach == nil {
		o.MayReach = func(a netip.Addr) error {
			if isOwn(a) {
				return errRefused
			}
			return o.Networks.MayReach(a)
		}
	}
	return &Clients{o: o, of: map[[sha256.Size]byte]*Client{}}
}

// TLS are the certificates that a server is reached with, in PEM; all may be empty.
type TLS struct {
	CA, Certificate, Key []byte
}

// For returns the client for a server. A trusted server is named by the configuration of the
// controller, and may have any address.
func (c *Clients) For(trusted bool, certificates TLS) (*Client, error) {
	key := digest(trusted, certificates)
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.of[key]; ok {
		return client, nil
	}
	client, err := c.make(trusted, certificates)
	if err != nil {
		return nil, err
	}
	if len(c.of) >= kept {
		c.forgetOne()
	}
	c.of[key] = client
	return client, nil
}

// Close closes the connections that are not in use.
func (c *Clients) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.of {
		c.of[key].http.CloseIdleConnections()
		delete(c.of, key)
	}
}

// forgetOne forgets any client. Its requests under way end as they would have.
func (c *Clients) forgetOne() {
	for key, client := range c.of {
		client.http.CloseIdleConnections()
		delete(c.of, key)
		return
	}
}

func digest(trusted bool, t TLS) (key [sha256.Size]byte) {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%t %d %d %d ", trusted, len(t.CA), len(t.Certificate), len(t.Key))
	for _, part := range [][]byte{t.CA, t.Certificate, t.Key} {
		h.Write(part)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (c *Clients) make(trusted bool, certificates TLS) (*Client, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(certificates.CA) > 0 {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(certificates.CA) {
			return nil, unknown.New(unknown.SecretNotReadable, "ca.crt has no certificate")
		}
	}
	if len(certificates.Certificate)+len(certificates.Key) > 0 {
		pair, err := tls.X509KeyPair(certificates.Certificate, certificates.Key)
		if err != nil { // its text is of parts of the key
			return nil, unknown.New(unknown.SecretNotReadable, "tls.crt and tls.key are not a certificate and its key")
		}
		secure.Certificates = []tls.Certificate{pair}
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: c.o.Resolver}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: secure, TLSHandshakeTimeout: dialTimeout,
		MaxResponseHeaderBytes: maxHeader, MaxIdleConnsPerHost: 4, MaxIdleConns: 64, IdleConnTimeout: time.Minute,
		DisableCompression: true, // or a small answer could become a long one
	}
	if !trusted {
		t.Proxy = nil
		// Control is asked with each address that a name has led to, before it is dialled.
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return errRefused
			}
			return c.o.MayReach(to.Addr())
		}
	}
	return &Client{http: &http.Client{Transport: t, CheckRedirect: noRedirect}, now: c.o.Now}, nil
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Client sends requests to servers with the same certificates.
type Client struct {
	http *http.Client
	now  func() time.Time
}

// failure puts an error of net/http into words, without the address that it has.
func failure(ctx context.Context, err error) *unknown.Error {
	var resolving *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, errRefused):
		return unknown.New(unknown.ProviderRefused,
			"the address is loopback, link-local, of the controller's machine, of a metadata service, or outside of --analysis-networks")
	case errors.Is(ctx.Err(), context.DeadlineExceeded), ok && timeout.Timeout():
		return unknown.Passing(unknown.ProviderUnavailable, "the server did not answer in time")
	case errors.As(err, &resolving) && resolving.IsNotFound:
		return unknown.Passing(unknown.ProviderUnavailable, "the name of the server is not known")
	case errors.As(err, &resolving):
		return unknown.Passing(unknown.ProviderUnavailable, "the name of the server cannot be resolved")
	case errors.As(err, &certificate):
		return unknown.Passing(unknown.ProviderUnavailable, "the certificate of the server is not valid; set ca.crt")
	case errors.As(err, &record):
		return unknown.Passing(unknown.ProviderUnavailable, "the server does not speak TLS")
	case errors.Is(err, syscall.ECONNREFUSED):
		return unknown.Passing(unknown.ProviderUnavailable, "the server refuses connections")
	}
	return unknown.Passing(unknown.ProviderUnavailable, "the connection to the server failed")
}
