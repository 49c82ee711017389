package gitsync_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
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

// inNamespace returns the same repository with another namespace.
func inNamespace(s *env) *env {
	s.Helper()
	return &env{T: s.T, c: s.c, ns: s.c.Namespace(s), repo: s.repo}
}

// tokenReads returns how often each namespace's token was read, among the requests after the
// first n.
func (l *ledger) tokenReads(n int) map[string]int {
	list, _ := l.since(n)
	reads := map[string]int{}
	for _, r := range list {
		if ns, ok := strings.CutSuffix(strings.TrimPrefix(r, "GET /api/v1/namespaces/"), "/secrets/hook"); ok {
			reads[ns]++
		}
	}
	return reads
}

// hookSources are sources of one repository in namespaces of their own, whose pushes are reported.
type hookSources struct {
	*env     // the first of them
	requests *ledger
	address  string
	url      string
	// at is the commit that each is to have applied.
	at map[*env]string
}

// newHookSources returns sources with these tokens; empty: the source takes no webhooks.
func newHookSources(t *testing.T, tokens ...string) (*hookSources, []*env) {
	t.Helper()
	s := newIdleEnv(t)
	h := &hookSources{env: s, requests: &ledger{}, address: gittest.FreeAddress(t), at: map[*env]string{}}
	h.url = gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{}).URL + "/repo.git"
	all, more := []*env{s}, []string{}
	for range tokens[1:] {
		all = append(all, inNamespace(s))
		more = append(more, all[len(all)-1].ns)
	}
	t.Cleanup(s.startManager(h.requests.config(s.c.Config), func(mgr ctrl.Manager) error {
		options := gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, NoRemoteBases: true}
		options.WebhookAddress = h.address
		return gitsync.Add(mgr, options)
	}, more...))
	tip, read := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")}), 0
	for i, of := range all {
		hook := &v1alpha1.Webhook{SecretRef: v1alpha1.LocalObjectReference{Name: "hook"}}
		if tokens[i] == "" {
			hook = nil
		} else {
			s.must(s.c.Client.Create(t.Context(), hookSecret(of, tokens[i])))
			read++
		}
		of.source(func(gs *v1alpha1.GitSource) { gs.Spec.URL, gs.Spec.Webhook = h.url, hook })
		of.applied(tip)
		h.at[of] = tip
	}
	clustertest.Wait(t, "the tokens to be read", func() error {
		if reads := h.requests.tokenReads(0); len(reads) != read {
			return fmt.Errorf("%v", reads)
		}
		return nil
	})
	return h, all
}

func hookSecret(of *env, token string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hook", Namespace: of.ns}, StringData: map[string]string{"token": token}}
}

// push reports a push with a token until the sources have it that are to, and expects the others
// to stay where they are. It returns how often each token was read.
func (h *hookSources) push(why, token string, to ...*env) map[string]int {
	h.Helper()
	tip := h.env.push(map[string]string{"deploy/a.yaml": configMap("a", "for "+why)})
	body := fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"clone_url":%q}}`, h.url)
	_, n := h.requests.since(0)
	h.tellOf(h.address, body, token)
	for _, of := range to {
		h.at[of] = tip
		clustertest.Wait(h, why+": "+tip, func() error {
			if now := of.gs().Status.AppliedCommit; now != tip {
				return fmt.Errorf("at %s", now)
			}
			return nil
		})
	}
	for of, want := range h.at {
		if now := of.gs().Status.AppliedCommit; now != want {
			h.Errorf("%s: %s is at %s, want %s", why, of.ns, now, want)
		}
	}
	return h.requests.tokenReads(n)
}

// A push of a repository that many namespaces follow reads no token: each was read when its
// source came. It counts for the sources whose own token has signed it, and for no others. A
// token that is changed counts from then on.
func TestWebhook_ManyNamespaces(t *testing.T) {
	t.Parallel()
	h, all := newHookSources(t, "shared", "shared", "shared", "other", "")
	one, two, three, other := all[0], all[1], all[2], all[3]
	for _, step := range []struct {
		why, token string
		to         []*env
	}{
		{"the token of three", "shared", []*env{one, two, three}},
		{"the token of another", "other", []*env{other}},
		{"no token of any", "guess", nil},
	} {
		if reads := h.push(step.why, step.token, step.to...); len(reads) > 0 {
			t.Errorf("%s: tokens were read: %v", step.why, reads)
		}
	}
	_, n := h.requests.since(0)
	h.must(h.c.Client.Update(t.Context(), hookSecret(one, "new")))
	clustertest.Wait(t, "the sync for the Secret, of which the receiver knows by then", func() error {
		read := "GET /apis/tranche.dev/v1alpha1/namespaces/" + one.ns + "/gitsources/shop"
		if list := first(h.requests.since(n)); !slices.Contains(list, read) {
			return fmt.Errorf("the requests: %q", list)
		}
		return nil
	})
	if reads := h.push("the new token of one", "new", one); len(reads) != 1 || reads[one.ns] != 1 {
		t.Errorf("the tokens that were read: %v, and only that of %s was changed", reads, one.ns)
	}
	if reads := h.push("the token that one had", "shared", two, three); len(reads) > 0 {
		t.Errorf("tokens were read: %v", reads)
	}
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
