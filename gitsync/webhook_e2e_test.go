package gitsync_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A push that the server reports is applied at once, though the source syncs once an
// hour by itself. A hook that is not signed by the source's token gets the same
// answer, and moves nothing.
func TestWebhook(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	address := gittest.FreeAddress(t)
	stop := s.startManager(s.c.Config, func(mgr ctrl.Manager) error {
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, NoCrossNamespaceRefs: true, NoRemoteBases: true, WebhookAddress: address})
	})
	t.Cleanup(stop)
	s.must(s.c.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: s.ns}, StringData: map[string]string{"token": "s3cret"}}))
	url := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{}).URL + "/repo.git"
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.URL = url
		gs.Spec.Webhook = &v1alpha1.Webhook{SecretRef: v1alpha1.LocalObjectReference{Name: "hook"}}
	})
	s.applied(first)

	second := s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	body := fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, url)
	stranger := fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, "https://example.org/other.git")
	if a, b := s.tellOf(address, body, "guess"), s.tellOf(address, stranger, "guess"); a != b || a != http.StatusAccepted {
		t.Errorf("answered %d of a repository that is followed, and %d of another", a, b)
	}
	if got := s.gs().Status.ObservedCommit; got != first {
		t.Errorf("a hook that is not signed has had %s looked at", got)
	}
	s.tellOf(address, body, "s3cret")
	s.applied(second)

	// As a replica does that gets the hook and does not sync itself.
	third := s.push(map[string]string{"deploy/a.yaml": configMap("a", "three")})
	if out, err := s.c.Kubectl(t, "annotate", "-n", s.ns, "gitsource", "shop", v1alpha1.AnnotationPush+"=now"); err != nil {
		t.Fatal(out)
	}
	s.applied(third)

	var last string
	for i := range 10 { // in less than a second
		last = s.push(map[string]string{"deploy/a.yaml": configMap("a", fmt.Sprintf("v%d", i))})
		s.tellOf(address, body, "s3cret")
	}
	s.applied(last)
}

func (s *env) tellOf(address, body, token string) int {
	s.Helper()
	sum := hmac.New(sha256.New, []byte(token))
	sum.Write([]byte(body))
	var code int
	clustertest.Wait(s, "the webhook receiver", func() error {
		r, err := http.NewRequest(http.MethodPost, "http://"+address+"/webhook", strings.NewReader(body))
		s.must(err)
		r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(sum.Sum(nil)))
		answer, err := (&http.Client{Timeout: 10 * time.Second}).Do(r)
		if err != nil {
			return err
		}
		code = answer.StatusCode
		return answer.Body.Close()
	})
	return code
}
