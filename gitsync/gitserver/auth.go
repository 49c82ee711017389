package gitserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	gitssh "github.com/go-git/go-git/v5/plumbing/transport/ssh"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Keys of the Secret that spec.secretRef names, as Flux has them.
const (
	keyUsername    = "username"
	keyPassword    = "password"
	keyBearerToken = "bearerToken"
	keyIdentity    = "identity"
	keyKnownHosts  = "known_hosts"
	keyCACert      = "ca.crt"
	keyTLSCert     = "tls.crt"
	keyTLSKey      = "tls.key"
)

// Access is how to come to a repository.
type Access struct {
	method             transport.AuthMethod
	app                *githubApp // makes a method for each exchange; nil: none
	caBundle           []byte
	clientCert, tlsKey []byte
	proxy              proxy
	Identity           string // changes when the content of the Secrets does
}

// NewAccess reads the Secret's data for a URL. No value of the Secret is part
// of an error.
func NewAccess(u *url.URL, secret string, data map[string][]byte, timeout time.Duration) (Access, error) {
	a := Access{Identity: identityOf(data)}
	var err error
	switch u.Scheme {
	case "http", "https":
		a.caBundle, a.clientCert, a.tlsKey = data[keyCACert], data[keyTLSCert], data[keyTLSKey]
		if a.app, err = newGitHubApp(data); err == nil && a.app == nil {
			a.method, err = newHTTPAuth(data)
		}
	case "ssh":
		a.method, err = newSSHAuth(u, data, timeout)
	}
	if err != nil {
		return Access{}, &plan.Problem{Reason: v1alpha1.ReasonInvalidSecret, Where: "Secret " + secret, Err: err}
	}
	return a, nil
}

// identityOf is a name for the content of a Secret that does not tell it.
func identityOf(data map[string][]byte) string {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(data)) {
		_, _ = fmt.Fprintf(h, "%d %s %d ", len(k), k, len(data[k]))
		h.Write(data[k])
	}
	return hex.EncodeToString(h.Sum(nil))
}

func newHTTPAuth(data map[string][]byte) (transport.AuthMethod, error) {
	username, password, token := string(data[keyUsername]), string(data[keyPassword]), string(data[keyBearerToken])
	if (len(data[keyTLSCert]) == 0) != (len(data[keyTLSKey]) == 0) {
		return nil, errors.New("tls.crt and tls.key go together; set both or none")
	}
	switch {
	case token != "" && (username != "" || password != ""):
		return nil, errors.New("has both bearerToken and username or password; keep one of them")
	case token != "":
		return &githttp.TokenAuth{Token: token}, nil
	case username != "" || password != "":
		// Many servers take a token as the password of any user.
		return &githttp.BasicAuth{Username: cmp.Or(username, "git"), Password: password}, nil
	default:
		return nil, nil
	}
}

// sshAuth is a key, with the host keys checked and a limit to the handshake.
type sshAuth struct {
	gitssh.PublicKeys
	timeout time.Duration
}

// ClientConfig returns the configuration of one connection.
func (a *sshAuth) ClientConfig() (*ssh.ClientConfig, error) {
	c, err := a.PublicKeys.ClientConfig()
	if err != nil {
		return nil, err
	}
	c.Timeout = a.timeout
	return c, nil
}

func newSSHAuth(u *url.URL, data map[string][]byte, timeout time.Duration) (transport.AuthMethod, error) {
	if len(data[keyIdentity]) == 0 {
		return nil, errors.New("identity is missing; put the private key there")
	}
	if len(data[keyKnownHosts]) == 0 {
		return nil, errors.New("known_hosts is missing; put there what `ssh-keyscan` prints for the host, once compared with what its owner " +
			"publishes")
	}
	// No part of the error: it may quote the key.
	signer, err := parseKey(data[keyIdentity], data[keyPassword])
	if err != nil {
		return nil, err
	}
	hosts, err := parseKnownHosts(data[keyKnownHosts])
	if err != nil {
		return nil, fmt.Errorf("known_hosts: %w", err)
	}
	a := &sshAuth{timeout: timeout}
	a.User, a.Signer = cmp.Or(u.User.Username(), gitssh.DefaultUsername), signer
	a.HostKeyCallback = withFingerprint(hosts.HostKeyCallback())
	// The algorithms are those of known_hosts. If all were offered in the client's order,
	// a server could choose a key that known_hosts does not have. A good host would then
	// be refused (G12).
	a.HostKeyAlgorithms = hosts.HostKeyAlgorithms(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "22")))
	return a, nil
}

// hostKeyError is a host key that is not trusted, by its fingerprint.
type hostKeyError struct {
	error
	fingerprint string
}

func (e *hostKeyError) Unwrap() error { return e.error }

func withFingerprint(check ssh.HostKeyCallback) ssh.HostKeyCallback {
	return func(host string, at net.Addr, key ssh.PublicKey) error {
		if err := check(host, at, key); err != nil {
			return &hostKeyError{err, key.Type() + " " + ssh.FingerprintSHA256(key)}
		}
		return nil
	}
}

func parseKey(identity, password []byte) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey(identity)
	if _, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		if len(password) == 0 {
			return nil, errors.New("identity is encrypted and there is no password; add it")
		}
		if signer, err = ssh.ParsePrivateKeyWithPassphrase(identity, password); err != nil {
			return nil, errors.New("identity is encrypted and password does not open it")
		}
	}
	if err != nil {
		return nil, errors.New("identity is no private key that can be read; it must be PEM, as ssh-keygen writes it")
	}
	return signer, nil
}

// parseKnownHosts goes by way of a file, since the parser takes only files.
// Nothing in it is secret.
func parseKnownHosts(content []byte) (db *knownhosts.HostKeyDB, err error) {
	f, err := os.CreateTemp("", "known_hosts-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // a leftover does no harm
	if _, err := f.Write(content); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if db, err = knownhosts.NewDB(f.Name()); err != nil {
		return nil, errors.New("a line does not parse; it must be as ssh-keyscan prints it")
	}
	return db, nil
}
