package analysis

import (
	"context"
	"encoding/base64"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/analysis/outbound"
	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
	"github.com/tranche-dev/tranche/rollout/impersonate"
)

// credentials are what a server is reached with.
type credentials struct {
	header http.Header
	tls    outbound.TLS
	apiKey string // of Datadog
	appKey string
}

// secretAge is how long what was read of a Secret is used. A right that is taken from an
// account counts after that.
const secretAge = time.Minute

// secrets reads Secrets as the accounts of releases, and keeps them for a while.
type secrets struct {
	reader client.Reader // reads as the account that the context names, and has no cache
	now    func() time.Time

	mu sync.Mutex
	of map[secretKey]secret
}

type secretKey struct {
	account string // its user name; empty: the controller's own
	name    types.NamespacedName
}

type secret struct {
	data map[string][]byte
	read time.Time
}

// get returns the data of a Secret.
func (s *secrets) get(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	key := secretKey{impersonate.Account(ctx), types.NamespacedName{Namespace: namespace, Name: name}}
	now := s.now()
	s.mu.Lock()
	kept, ok := s.of[key]
	s.mu.Unlock()
	if ok && now.Sub(kept.read).Abs() < secretAge {
		return kept.data, nil
	}
	var read corev1.Secret
	switch err := s.reader.Get(ctx, key.name, &read); {
	case apierrors.IsNotFound(err):
		return nil, unknown.Passing(unknown.SecretNotReadable, "Secret "+name+" not found")
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return nil, unknown.Passing(unknown.SecretNotReadable, "the account of the release may not get Secret "+name)
	case err != nil:
		return nil, unknown.Passing(unknown.ProviderUnavailable, "the API server does not answer as expected")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, kept := range s.of {
		if now.Sub(kept.read).Abs() >= secretAge {
			delete(s.of, other)
		}
	}
	s.of[key] = secret{read.Data, now}
	return read.Data, nil
}

// headerPrefix begins the keys of a Secret that are headers of their own: header.Api-Key.
const headerPrefix = "header."

// ofSecret returns the credentials that a Secret has, by the keys that Flux uses.
func ofSecret(name string, data map[string][]byte) (credentials, error) {
	var c credentials
	text := func(key string) string { return strings.TrimSpace(string(data[key])) }
	for key := range data {
		header, ok := strings.CutPrefix(key, headerPrefix)
		if !ok {
			continue
		}
		if !headerName.MatchString(header) || strings.ContainsAny(text(key), "\r\n\x00") {
			return c, unknown.Passing(unknown.SecretNotReadable, "Secret "+name+" has a key that is not a header")
		}
		c.set(header, text(key))
	}
	username, password, token := text("username"), string(data["password"]), text("bearerToken")
	if username != "" && token != "" {
		return c, unknown.Passing(unknown.SecretNotReadable, "Secret "+name+" has both username and bearerToken")
	}
	c.authorize(username, strings.TrimRight(password, "\r\n"), token)
	c.tls = outbound.TLS{CA: data["ca.crt"], Certificate: data["tls.crt"], Key: data["tls.key"]}
	c.apiKey, c.appKey = text("api-key"), text("app-key")
	return c, nil
}

func (c *credentials) set(name, value string) {
	if c.header == nil {
		c.header = http.Header{}
	}
	c.header.Set(name, value)
}

func (c *credentials) authorize(username, password, token string) {
	switch {
	case token != "":
		c.set("Authorization", "Bearer "+token)
	case username != "":
		c.set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(username+":"+password)))
	}
}

// ofProvider returns the credentials of a configured provider, from its files.
func ofProvider(p Provider, namespace string) (credentials, error) {
	var c credentials
	var failed bool
	read := func(path string) string {
		if path == "" {
			return ""
		}
		text, err := os.ReadFile(path)
		failed = failed || err != nil
		return string(text)
	}
	for name, value := range p.Headers {
		c.set(name, strings.ReplaceAll(value, "$(namespace)", namespace))
	}
	c.authorize(p.Username, strings.TrimRight(read(p.PasswordFile), "\r\n"), strings.TrimSpace(read(p.BearerTokenFile)))
	c.tls = outbound.TLS{CA: []byte(read(p.CAFile)), Certificate: []byte(read(p.CertFile)), Key: []byte(read(p.KeyFile))}
	c.apiKey, c.appKey = strings.TrimSpace(read(p.APIKeyFile)), strings.TrimSpace(read(p.AppKeyFile))
	if failed { // the path is the operator's, and no tenant's
		return c, unknown.Passing(unknown.SecretNotReadable, "a file of provider "+p.Name+" cannot be read by the controller")
	}
	return c, nil
}
