package gitsync_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// The URL of the API of a GitHub Enterprise Server has a password in it. The Secret is refused, and nothing that users see
// has the password.
func TestSecretValues_GitHubApp(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>") }))
	t.Cleanup(page.Close)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	s.must(err)
	data := map[string]string{
		"githubAppID": "42", "githubAppBaseURL": strings.Replace(page.URL, "://", "://ada:hunter7@", 1) + "/api/v3",
		"githubAppPrivateKey": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
	}
	s.must(s.c.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "app", Namespace: s.ns}, StringData: data}))
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.URL = page.URL + "/shop/repo"
		gs.Spec.SecretRef = &v1alpha1.LocalObjectReference{Name: "app"}
	})
	clustertest.Wait(t, "a refusal", func() error {
		if ready := said(s.gs()); !strings.Contains(ready, "Ready=False") {
			return fmt.Errorf("%q", ready)
		}
		return nil
	})
	const want = "InvalidSecret: Secret %s/app: githubAppBaseURL has more in it than host and path; leave out user, password, " +
		"query and fragment"
	if seen := said(s.gs()); !strings.Contains(seen, fmt.Sprintf(want, s.ns)) {
		t.Error(seen)
	}
	if seen := visible(s); strings.Contains(seen, "hunter") {
		t.Errorf("the password is in %s", seen)
	}
}
