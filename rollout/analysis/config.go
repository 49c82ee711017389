package analysis

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/rollout/analysis/unknown"
)

// The types of providers that the configuration names.
const (
	TypePrometheus = "prometheus"
	TypeDatadog    = "datadog"
)

// Provider is a server that plans name.
type Provider struct {
	// Name is what plans call it.
	Name string `json:"name"`
	// Type is prometheus or datadog.
	Type string `json:"type"`
	// Address is its URL; of Datadog, with a default.
	Address string `json:"address,omitempty"`
	// Namespaces are those whose plans may name it; empty: all.
	Namespaces []string `json:"namespaces,omitempty"`
	// Headers are sent with each query. $(namespace) in a value is that of the release.
	Headers map[string]string `json:"headers,omitempty"`
	// Username, and the files of secrets. They are read for each query.
	Username        string `json:"username,omitempty"`
	PasswordFile    string `json:"passwordFile,omitempty"`
	BearerTokenFile string `json:"bearerTokenFile,omitempty"`
	CAFile          string `json:"caFile,omitempty"`
	CertFile        string `json:"certFile,omitempty"`
	KeyFile         string `json:"keyFile,omitempty"`
	APIKeyFile      string `json:"apiKeyFile,omitempty"`
	AppKeyFile      string `json:"appKeyFile,omitempty"`
}

// Configuration has the providers of a file, which is read again when it has changed.
type Configuration struct {
	path string // empty: there is none

	mu        sync.Mutex
	text      string
	providers map[string]Provider
}

// ReadConfiguration reads a file; an empty path is a configuration without providers.
func ReadConfiguration(path string) (*Configuration, error) {
	c := &Configuration{path: path}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// read reads the file if it has changed. If it is not valid the former providers stay.
func (c *Configuration) read() error {
	if c.path == "" {
		return nil
	}
	text, err := os.ReadFile(c.path)
	if err != nil {
		return fmt.Errorf("reading the providers of analyses: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if string(text) == c.text {
		return nil
	}
	providers, err := parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", c.path, err)
	}
	c.text, c.providers = string(text), providers
	return nil
}

// parse reads providers, by their names.
func parse(text []byte) (map[string]Provider, error) {
	var file struct {
		Providers []Provider `json:"providers"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("reading providers: %w", err)
	}
	byName := map[string]Provider{}
	for i, p := range file.Providers {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("providers[%d] %q: %w", i, p.Name, err)
		}
		if _, ok := byName[p.Name]; ok {
			return nil, fmt.Errorf("providers[%d] %q: there is another one of that name", i, p.Name)
		}
		byName[p.Name] = p
	}
	return byName, nil
}

var (
	providerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)
	headerName   = regexp.MustCompile(`^[-A-Za-z0-9]+$`)
)

// check returns what is wrong with a provider.
func (p Provider) check() error {
	if !providerName.MatchString(p.Name) {
		return errors.New("name: must be up to 63 lower-case letters, digits, hyphens and dots")
	}
	of := map[string]func() error{TypePrometheus: p.checkPrometheus, TypeDatadog: p.checkDatadog}[p.Type]
	if of == nil {
		return fmt.Errorf("type: %q: must be prometheus or datadog", p.Type)
	}
	if err := of(); err != nil {
		return err
	}
	if (p.CertFile == "") != (p.KeyFile == "") {
		return errors.New("certFile and keyFile are set together")
	}
	for name := range p.Headers {
		if !headerName.MatchString(name) {
			return fmt.Errorf("headers: %q is not the name of a header", name)
		}
	}
	return p.checkAddress()
}

func (p Provider) checkPrometheus() error {
	switch {
	case p.Address == "":
		return errors.New("address is missing")
	case p.APIKeyFile+p.AppKeyFile != "":
		return errors.New("apiKeyFile and appKeyFile are for datadog")
	case (p.Username == "") != (p.PasswordFile == ""):
		return errors.New("username and passwordFile are set together")
	case p.Username != "" && p.BearerTokenFile != "":
		return errors.New("username and bearerTokenFile exclude each other")
	}
	return nil
}

func (p Provider) checkDatadog() error {
	switch {
	case p.APIKeyFile == "" || p.AppKeyFile == "":
		return errors.New("apiKeyFile or appKeyFile is missing")
	case p.Username+p.PasswordFile+p.BearerTokenFile != "":
		return errors.New("username, passwordFile and bearerTokenFile are for prometheus")
	}
	return nil
}

func (p Provider) checkAddress() error {
	if p.Address == "" {
		return nil
	}
	u, err := url.Parse(p.Address)
	http := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
	if !http || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("address: must be an http or https URL without user, query and fragment")
	}
	return nil
}

// TypeOf returns the type of a provider that plans of a namespace may name; empty: there is none.
func (c *Configuration) TypeOf(namespace, name string) string {
	for _, kind := range []string{TypePrometheus, TypeDatadog} {
		if _, err := c.find(namespace, name, kind); err == nil {
			return kind
		}
	}
	return ""
}

// find returns a provider that a plan names.
func (c *Configuration) find(namespace, name, kind string) (Provider, error) {
	_ = c.read() // a file that is not valid leaves the former providers
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.providers[name]
	if !ok || p.Type != kind || len(p.Namespaces) > 0 && !slices.Contains(p.Namespaces, namespace) {
		var known []string
		for _, other := range c.providers {
			if other.Type == kind && (len(other.Namespaces) == 0 || slices.Contains(other.Namespaces, namespace)) {
				known = append(known, other.Name)
			}
		}
		slices.Sort(known)
		hint := "it has none"
		if len(known) > 0 {
			hint = "it has " + strings.Join(known, ", ")
		}
		return Provider{}, unknown.Passing(unknown.ProviderRefused,
			"the controller's configuration has no provider "+name+" of type "+kind+" for this namespace; "+hint)
	}
	return p, nil
}
