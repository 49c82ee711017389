package gitsync_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// newForward is an HTTP proxy that brings every host to one server, for who has the
// password. It counts what it let pass.
func newForward(t *testing.T, to, password string) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	passed := &atomic.Int64{}
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		as := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
		if user, got, ok := as.BasicAuth(); !ok || user != "ada" || got != password {
			http.Error(w, "who are you", http.StatusProxyAuthRequired)
			return
		}
		passed.Add(1)
		out := r.Clone(r.Context())
		out.RequestURI, out.URL.Host = "", to
		out.Header.Del("Proxy-Authorization")
		answer, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer answer.Body.Close()
		for k, v := range answer.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, answer.Body)
	}))
	t.Cleanup(p.Close)
	return p, passed
}

// A repository that only a proxy leads to is followed through it. The status names the
// problem with the Secret of the proxy, and not its password. A sync that failed is
// tried again after spec.retryInterval.
func TestProxySecret(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{})
	proxy, passed := newForward(t, strings.TrimPrefix(server.URL, "http://"), "s3cret")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "proxy", Namespace: s.ns}, StringData: map[string]string{"username": "ada", "password": "wr0ng"}}
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.URL = "http://git.example.org/repo.git"
		gs.Spec.ProxySecretRef = &v1alpha1.LocalObjectReference{Name: "proxy"}
		gs.Spec.RetryInterval = &metav1.Duration{Duration: time.Second}
	})
	refused := func(reason, says string) {
		t.Helper()
		clustertest.Wait(s, reason+": "+says, func() error {
			ready := meta.FindStatusCondition(s.gs().Status.Conditions, "Ready")
			if ready == nil || ready.Reason != reason || !strings.Contains(ready.Message, says) {
				return fmt.Errorf("%+v", ready)
			}
			if strings.Contains(ready.Message, "s3cret") || strings.Contains(ready.Message, "wr0ng") {
				t.Errorf("a password is in %q", ready.Message)
			}
			return nil
		})
	}
	refused("SecretNotFound", "spec.proxySecretRef: there is no Secret "+s.ns+"/proxy")
	s.must(s.c.Client.Create(t.Context(), secret))
	refused("InvalidSecret", "address is missing")
	set := func(key, value string) {
		t.Helper()
		now := get(s, "proxy", &corev1.Secret{})
		now.StringData = map[string]string{key: value}
		s.must(s.c.Client.Update(t.Context(), now))
	}
	set("address", "socks5://proxy.example.org")
	refused("InvalidSecret", "must begin with http:// or https://")
	set("address", "http://ada:s3cret@"+strings.TrimPrefix(proxy.URL, "http://"))
	refused("InvalidSecret", "address has credentials in it")
	set("address", proxy.URL)
	refused("AuthenticationFailed", "the proxy")
	set("password", "s3cret")
	s.refused("", "EmptyRepository")
	// The push of a remote server is not seen, and the interval is an hour.
	s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")}))
	if passed.Load() == 0 {
		t.Error("the proxy was not asked")
	}
}

// A proxy leads to HTTP servers.
func TestProxyOfSSH(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.ProxySecretRef = &v1alpha1.LocalObjectReference{Name: "proxy"}
	})
	s.refused("", "NotSupported")
}
