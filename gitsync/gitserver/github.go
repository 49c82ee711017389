package gitserver

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/bradleyfalzon/ghinstallation/v2"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/golang-jwt/jwt/v4"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Keys of the Secret for a GitHub App, as Flux has them.
const (
	keyAppID           = "githubAppID"
	keyAppInstallation = "githubAppInstallationID"
	keyAppPrivateKey   = "githubAppPrivateKey"
	keyAppBaseURL      = "githubAppBaseURL"
)

// defaultGitHubAPI is the API of github.com; a GitHub Enterprise Server has
// one of its own.
const defaultGitHubAPI = "https://api.github.com"

// githubApp is a GitHub App that a repository is read and written as.
type githubApp struct {
	id           int64
	installation int64 // 0: the one on the repository
	key          *rsa.PrivateKey
	api          *url.URL
}

// newGitHubApp returns nil where the Secret has none. No value of the Secret is
// part of an error.
func newGitHubApp(data map[string][]byte) (*githubApp, error) {
	if len(data[keyAppID]) == 0 {
		for _, k := range []string{keyAppInstallation, keyAppPrivateKey, keyAppBaseURL} {
			if len(data[k]) > 0 {
				return nil, fmt.Errorf("has %s and no %s; add it", k, keyAppID)
			}
		}
		return nil, nil
	}
	for _, k := range []string{keyUsername, keyPassword, keyBearerToken} {
		if len(data[k]) > 0 {
			return nil, fmt.Errorf("has both %s and %s; keep one of them", keyAppID, k)
		}
	}
	app := &githubApp{}
	var err error
	if app.id, err = number(data, keyAppID); err != nil {
		return nil, err
	}
	if len(data[keyAppInstallation]) > 0 {
		if app.installation, err = number(data, keyAppInstallation); err != nil {
			return nil, err
		}
	}
	if app.key, err = jwt.ParseRSAPrivateKeyFromPEM(data[keyAppPrivateKey]); err != nil {
		return nil, errors.New(keyAppPrivateKey + " is no RSA private key in PEM; put the file there that GitHub made for the app")
	}
	if app.api, err = appURL(strings.TrimSpace(string(data[keyAppBaseURL]))); err != nil {
		return nil, err
	}
	return app, nil
}

// appURL returns where the API is. It is shown in messages, so it must have no password.
func appURL(base string) (*url.URL, error) {
	if base == "" {
		base = defaultGitHubAPI
	}
	api, err := url.Parse(strings.TrimRight(base, "/"))
	switch {
	case err != nil || api.Host == "" || api.Scheme != "https" && api.Scheme != "http":
		return nil, errors.New(keyAppBaseURL + " is no URL; it is that of the API, such as https://github.example.org/api/v3")
	case api.User != nil || api.RawQuery != "" || api.Fragment != "":
		return nil, errors.New(keyAppBaseURL + " has more in it than host and path; leave out user, password, query and fragment")
	}
	return api, nil
}

func number(data map[string][]byte, key string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(string(data[key])), 10, 64)
	if err != nil || n <= 0 {
		return 0, errors.New(key + " is no number; the app's page at GitHub has it")
	}
	return n, nil
}

// GitHubApps makes tokens for GitHub Apps, and keeps each until shortly before
// it ends.
type GitHubApps struct {
	mu     sync.Mutex
	tokens map[string]*githubToken // by Secret and repository
}

// NewGitHubApps returns apps without a token.
func NewGitHubApps() *GitHubApps { return &GitHubApps{tokens: map[string]*githubToken{}} }

type githubToken struct {
	secret string // the content it was made from
	*ghinstallation.Transport
}

// Authenticate adds a token of the GitHub App to a remote that has one.
// https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app/authenticating-as-a-github-app-installation
func (a *GitHubApps) Authenticate(ctx context.Context, r *Remote) error {
	app := r.Access.app
	if app == nil {
		return nil
	}
	t, err := a.of(ctx, *r)
	if err != nil {
		return err
	}
	token, err := t.Token(ctx)
	if err != nil {
		answer, _ := errors.AsType[*ghinstallation.HTTPError](err)
		if answer == nil || answer.Response == nil {
			return app.problem(*r, err)
		}
		_ = answer.Response.Body.Close()
		return app.refused(*r, answer.Response)
	}
	r.Access.method = &githttp.BasicAuth{Username: "x-access-token", Password: token}
	return nil
}

// of returns what makes tokens for a remote.
func (a *GitHubApps) of(ctx context.Context, r Remote) (*githubToken, error) {
	name := r.Secret + " " + r.String()
	a.mu.Lock()
	t := a.tokens[name]
	a.mu.Unlock()
	if t != nil && t.secret == r.Access.Identity {
		return t, nil
	}
	app := r.Access.app
	apps := ghinstallation.NewAppsTransportFromPrivateKey(r.Access.httpTransport(), app.id, app.key)
	installation := app.installation
	if installation == 0 {
		var err error
		if installation, err = app.installationOn(ctx, apps, r); err != nil {
			return nil, err
		}
	}
	t = &githubToken{r.Access.Identity, ghinstallation.NewFromAppsTransport(apps, installation)}
	t.BaseURL = app.api.String()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens[name] = t
	return t, nil
}

// installationOn asks for the app's installation on the repository.
func (a *githubApp) installationOn(ctx context.Context, apps http.RoundTripper, r Remote) (int64, error) {
	repository := strings.TrimSuffix(strings.Trim(r.URL.Path, "/"), ".git")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.api.String()+"/repos/"+repository+"/installation", nil)
	if err != nil {
		return 0, fmt.Errorf("asking for the installation of GitHub App %d on %s: %w", a.id, r, err)
	}
	answer, err := apps.RoundTrip(req)
	if err != nil {
		return 0, a.problem(r, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return 0, a.refused(r, answer)
	}
	var installation struct {
		ID int64 `json:"id"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&installation); err != nil || installation.ID == 0 {
		return 0, &plan.Problem{
			Reason: v1alpha1.ReasonFetchFailed, Where: a.api.Redacted(), Err: errors.New("the answer is not as GitHub's"),
			Hint: "check " + keyAppBaseURL + " in Secret " + r.Secret,
		}
	}
	return installation.ID, nil
}

// refused is about an answer that is no token.
func (a *githubApp) refused(r Remote, answer *http.Response) error {
	p := &plan.Problem{Reason: v1alpha1.ReasonAuthenticationFailed, Where: r.String()}
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		p.Err = fmt.Errorf("%s does not accept the key of GitHub App %d", a.api.Redacted(), a.id)
		p.Hint = "check " + keyAppID + " and " + keyAppPrivateKey + " in Secret " + r.Secret
	case http.StatusForbidden, http.StatusNotFound:
		p.Err = fmt.Errorf("GitHub App %d is not installed there, or suspended", a.id)
		p.Hint = "install it for the repository, and check " + keyAppInstallation + " in Secret " + r.Secret
	default:
		p.Reason, p.Retry = v1alpha1.ReasonFetchFailed, true
		p.Err = fmt.Errorf("asking %s for a token of GitHub App %d: %s", a.api.Redacted(), a.id, answer.Status)
	}
	return p
}

// problem is about an API that could not be asked.
func (a *githubApp) problem(r Remote, err error) error {
	return Remote{URL: a.api, Secret: r.Secret}.Problem(err)
}

// httpTransport is as go-git's for the repository itself: with the same proxy, and with
// the Secret's authorities beside the system's.
func (a Access) httpTransport() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	t.Proxy = a.proxy.of()
	if len(a.caBundle) == 0 {
		return t
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(a.caBundle)
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t
}
