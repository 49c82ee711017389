package repository

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"

	"github.com/tranche-dev/tranche/gitsync/gitserver"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// forge is a server as GitHub is one for an app. It has an API that gives tokens to
// clients that sign with the app's key, and repositories for clients with such a token.
type forge struct {
	*httptest.Server
	repo  *gittest.Repo
	key   *rsa.PrivateKey
	lives time.Duration // of a token
	given atomic.Int32
	down  atomic.Bool
}

func newForge(t *testing.T) *forge {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	f := &forge{repo: gittest.NewRepo(t), key: key, lives: time.Hour}
	f.repo.CommitAndPush(map[string]string{"a.yaml": "one"})
	f.Server = gittest.Serve(t, filepath.Dir(filepath.Dir(f.repo.Bare)), gittest.ServeOptions{Wrap: f.wrap})
	return f
}

// repository is its path, of two names.
func (f *forge) repository() string {
	owner, name := filepath.Split(f.repo.Bare)
	return filepath.Base(owner) + "/" + name
}

func (f *forge) wrap(git http.Handler) http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("GET /api/v3/repos/{owner}/{name}/installation", f.signed(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("owner")+"/"+r.PathValue("name")+".git" != f.repository() {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, `{"id": 7}`)
	}))
	api.HandleFunc("POST /api/v3/app/installations/{id}/access_tokens", f.signed(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != "7" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"token": "ghs_%d", "expires_at": %q}`, f.given.Add(1), time.Now().Add(f.lives).Format(time.RFC3339))
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch username, token, _ := r.BasicAuth(); {
		case f.down.Load():
			http.Error(w, "maintenance", http.StatusServiceUnavailable)
		case strings.HasPrefix(r.URL.Path, "/api/"):
			api.ServeHTTP(w, r)
		case username != "x-access-token" || f.given.Load() == 0 || token != fmt.Sprintf("ghs_%d", f.given.Load()):
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
		default:
			git.ServeHTTP(w, r)
		}
	})
}

// signed lets pass what app 42 has signed.
func (f *forge) signed(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var claims jwt.RegisteredClaims
		_, err := jwt.ParseWithClaims(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), &claims, func(*jwt.Token) (any, error) {
			return &f.key.PublicKey, nil
		})
		if err != nil || claims.Issuer != "42" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		h(w, r)
	}
}

func (f *forge) secret(edit ...func(map[string][]byte)) map[string][]byte {
	data := map[string][]byte{
		"githubAppID": []byte("42"), "githubAppBaseURL": []byte(f.URL + "/api/v3"),
		"githubAppPrivateKey": pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(f.key)}),
	}
	for _, e := range edit {
		e(data)
	}
	return data
}

// look is one at the repository, with a token for it.
func (f *forge) look(t *testing.T, ms *Cache, apps *gitserver.GitHubApps, data map[string][]byte) (*Snapshot, error) {
	t.Helper()
	r := remoteFor(t, f.URL+"/"+f.repository(), data)
	ctx, cancel := context.WithTimeout(t.Context(), lookWithin(""))
	defer cancel()
	if err := apps.Authenticate(ctx, &r); err != nil {
		return nil, err
	}
	return lookAt(t, ms, r, "main")
}

// A repository that only a GitHub App may read is read with a token of the app's
// installation. The installation is named or found, and the token is used until it ends.
func TestGitHubApp(t *testing.T) {
	f := newForge(t)
	ms, apps := NewCache(t.TempDir()), gitserver.NewGitHubApps()
	named := f.secret(func(d map[string][]byte) { d["githubAppInstallationID"] = []byte("7\n") })
	for range 2 {
		for i, data := range []map[string][]byte{f.secret(), named, named} {
			s, err := f.look(t, ms, apps, data)
			if err != nil {
				t.Fatal(err)
			}
			if got := content(t, s, "a.yaml"); got != "one" {
				t.Errorf("read %q", got)
			}
			if i == 2 && f.given.Load()%2 != 0 {
				t.Errorf("%d tokens were asked for, with one of them good still", f.given.Load())
			}
		}
	}
	f.lives = 30 * time.Second // less than the minute before its end in which a token is not used
	before := f.given.Load()
	for i := range int32(2) {
		if _, err := f.look(t, ms, apps, f.secret()); err != nil {
			t.Fatal(err)
		}
		if got := f.given.Load() - before; got != i+1 {
			t.Fatalf("%d new tokens for %d looks", got, i+1)
		}
	}
}

func TestGitHubAppRefused(t *testing.T) {
	f := newForge(t)
	other := newForge(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>") }))
	defer page.Close()
	for name, tt := range map[string]struct {
		edit         func(map[string][]byte)
		down         bool
		reason, says string
	}{
		"another key": {func(d map[string][]byte) {
			d["githubAppPrivateKey"] = other.secret()["githubAppPrivateKey"]
		}, false, v1alpha1.ReasonAuthenticationFailed, "does not accept the key of GitHub App 42"},
		"another app": {func(d map[string][]byte) {
			d["githubAppID"] = []byte("43")
		}, false, v1alpha1.ReasonAuthenticationFailed, "does not accept the key of GitHub App 43"},
		"not installed": {func(d map[string][]byte) {
			d["githubAppInstallationID"] = []byte("8")
		}, false, v1alpha1.ReasonAuthenticationFailed, "is not installed there"},
		"not on this one": {func(d map[string][]byte) {
			d["githubAppBaseURL"] = []byte(other.URL + "/api/v3")
			d["githubAppPrivateKey"] = other.secret()["githubAppPrivateKey"]
		}, false, v1alpha1.ReasonAuthenticationFailed, "is not installed there"},
		"the API is down": {nil, true, v1alpha1.ReasonFetchFailed, "503"},
		"no server": {func(d map[string][]byte) {
			d["githubAppBaseURL"] = []byte("http://127.0.0.1:1")
		}, false, v1alpha1.ReasonHostUnreachable, "refused"},
		"not an API": {func(d map[string][]byte) {
			d["githubAppBaseURL"] = []byte(page.URL)
		}, false, v1alpha1.ReasonFetchFailed, "is not as GitHub's"},
		"no name for a host": {func(d map[string][]byte) {
			d["githubAppBaseURL"] = []byte("https://no-such-host.invalid")
		}, false, v1alpha1.ReasonHostUnreachable, "no-such-host.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			f.down.Store(tt.down)
			defer f.down.Store(false)
			data := f.secret()
			if tt.edit != nil {
				tt.edit(data)
			}
			_, err := f.look(t, NewCache(t.TempDir()), gitserver.NewGitHubApps(), data)
			p, _ := errors.AsType[*plan.Problem](err)
			if p == nil || p.Reason != tt.reason || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "ghs_") {
				t.Errorf("%v", err)
			}
		})
	}
}
