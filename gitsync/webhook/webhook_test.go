package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// The bodies that forges send for a push, as far as they matter.
var pushes = map[string]string{
	"github":         `{"ref":"refs/heads/main","after":"3f2c","repository":{"full_name":"shop/web","html_url":"https://GitHub.com/shop/web","clone_url":"https://github.com/shop/web.git","ssh_url":"git@github.com:shop/web.git"}}`,
	"gitlab":         `{"object_kind":"push","ref":"refs/heads/main","project":{"web_url":"https://github.com/shop/web","git_ssh_url":"git@github.com:shop/web.git","git_http_url":"https://github.com/shop/web.git"},"repository":{"url":"git@github.com:shop/web.git"}}`,
	"gitea":          `{"ref":"refs/heads/main","repository":{"id":1,"html_url":"https://github.com/shop/web","ssh_url":"ssh://git@github.com:2222/shop/web.git","clone_url":"https://github.com/shop/web.git"}}`,
	"bitbucket":      `{"push":{"changes":[{"new":{"type":"branch","name":"main"},"old":null}]},"repository":{"full_name":"shop/web","links":{"html":{"href":"https://github.com/shop/web"}}}}`,
	"bitbucket data": `{"eventKey":"repo:refs_changed","changes":[{"ref":{"id":"refs/heads/main","displayId":"main","type":"BRANCH"}}],"repository":{"links":{"clone":[{"href":"ssh://git@github.com:7999/shop/web.git","name":"ssh"},{"href":"https://github.com/scm/shop/web.git","name":"http"}]}}}`,
	"generic":        `{"url":"https://github.com/shop/web","ref":"refs/heads/main"}`,
	"no branch":      `{"url":"https://github.com/shop/web"}`,
}

func TestMain(m *testing.M) { os.Exit(clustertest.Main(m)) }

func sourceAt(url, branch string) *v1alpha1.GitSource {
	gs := &v1alpha1.GitSource{}
	gs.Spec.URL, gs.Spec.Ref.Branch = url, branch
	return gs
}

// A push is of a source if it is of its repository, by whatever URL, and of its
// branch.
func TestPushIsOf(t *testing.T) {
	for name, body := range pushes {
		p := parsePush([]byte(body))
		for _, url := range []string{
			"https://github.com/shop/web", "https://github.com:443/shop/web.git", "ssh://git@GITHUB.com:2222/shop/web.git",
		} {
			if !p.isOf(sourceAt(url, "main")) {
				t.Errorf("%s: not of %s: %+v", name, url, p)
			}
		}
		if other := p.isOf(sourceAt("https://github.com/shop/web", "release")); other != (name == "no branch") {
			t.Errorf("%s: of another branch: %t", name, other)
		}
		for _, url := range []string{
			"https://github.com/shop/webs", "https://example.org/shop/web", "https://github.com/other/shop/web", "https://github.com",
		} {
			if p.isOf(sourceAt(url, "main")) {
				t.Errorf("%s: of %s", name, url)
			}
		}
	}
	if tag := parsePush([]byte(`{"url":"https://github.com/shop/web","ref":"refs/tags/main"}`)); tag.isOf(sourceAt("https://github.com/shop/web", "main")) {
		t.Error("the push of a tag is taken for one of the branch")
	}
	for _, ref := range []v1alpha1.GitReference{{Branch: "main", Tag: "v1"}, {Branch: "main", SemVer: "1.x"}} {
		gs := sourceAt("https://github.com/shop/web", "main")
		gs.Spec.Ref = ref
		if tag := parsePush([]byte(`{"url":"https://github.com/shop/web","ref":"refs/tags/v1.2.0"}`)); !tag.isOf(gs) {
			t.Errorf("the push of a tag is not of a source that follows %+v", ref)
		}
	}
}

func hmacOf(body, token string) string {
	sum := hmac.New(sha256.New, []byte(token))
	sum.Write([]byte(body))
	return hex.EncodeToString(sum.Sum(nil))
}

// A hook counts as signed if it is signed with the token, in the way of its forge.
func TestHookSignature(t *testing.T) {
	const body, token = `{"a":1}`, "s3cret"
	good := hmacOf(body, token)
	for name, tc := range map[string]struct {
		header, value string
		signed        bool
	}{
		"github":             {"X-Hub-Signature-256", "sha256=" + good, true},
		"gitea":              {"X-Gitea-Signature", good, true},
		"bitbucket":          {"X-Hub-Signature", "sha256=" + good, true},
		"generic":            {"X-Signature", "sha256=" + good, true},
		"gitlab":             {"X-Gitlab-Token", token, true},
		"unsigned":           {"X-Other", good, false},
		"by another token":   {"X-Hub-Signature-256", "sha256=" + hmacOf(body, "guess"), false},
		"of another body":    {"X-Hub-Signature-256", "sha256=" + hmacOf(`{"a":2}`, token), false},
		"cut off":            {"X-Hub-Signature-256", "sha256=" + good[:32], false},
		"by SHA-1":           {"X-Hub-Signature", "sha1=" + good, false},
		"empty":              {"X-Hub-Signature-256", "", false},
		"gitlab, wrong":      {"X-Gitlab-Token", "guess", false},
		"the token, as HMAC": {"X-Hub-Signature-256", token, false},
	} {
		h := hook{header: http.Header{}, body: []byte(body)}
		h.header.Set(tc.header, tc.value)
		if got := h.signedWith([]byte(token)); got != tc.signed {
			t.Errorf("%s: signed %t", name, got)
		}
	}
}

// The answer depends on the request alone, and not on which repositories are followed.
func TestHookAnswers(t *testing.T) {
	w := &Receiver{
		log: logr.Discard(), limit: rate.NewLimiter(rate.Inf, 1), jobs: make(chan hook, 2),
		reading: newShares(hooksReading, hooksOfPeer), large: make(chan struct{}, largeHooks),
	}
	post := func(method, body string) (int, string) {
		answer := httptest.NewRecorder()
		w.ServeHTTP(answer, httptest.NewRequest(method, "/webhook", strings.NewReader(body)))
		return answer.Code, answer.Body.String()
	}
	for _, tc := range []struct {
		why, method, body string
		code              int
	}{
		{"of a repository that may be followed", http.MethodPost, pushes["github"], http.StatusAccepted},
		{"of anything else", http.MethodPost, `{"zen":"hello"}`, http.StatusAccepted},
		{"two wait already", http.MethodPost, `{}`, http.StatusServiceUnavailable},
		{"not posted", http.MethodGet, "", http.StatusMethodNotAllowed},
		{"a form", http.MethodPost, "payload=%7B%7D", http.StatusBadRequest},
		{"too large", http.MethodPost, `"` + strings.Repeat("a", maxHook) + `"`, http.StatusRequestEntityTooLarge},
	} {
		if code, text := post(tc.method, tc.body); code != tc.code {
			t.Errorf("%s: %d %s, want %d", tc.why, code, text, tc.code)
		}
	}
	w.limit = rate.NewLimiter(0, 0)
	if code, _ := post(http.MethodPost, `{}`); code != http.StatusTooManyRequests {
		t.Errorf("more than may come: %d", code)
	}
}

// A replica that does not look itself asks by the annotation, once in a while.
func TestHookOfAnotherReplica(t *testing.T) {
	c := clustertest.Shared(t)
	gs := sourceAt("https://git.example.org/shop.git", "main")
	gs.Namespace, gs.Name = c.Namespace(t), "shop"
	if err := c.Client.Create(t.Context(), gs); err != nil {
		t.Fatal(err)
	}
	w := &Receiver{c: c.Client, log: logr.Discard(), slots: make(chan struct{}, 1), asked: map[types.NamespacedName]bool{}}
	w.ask(t.Context(), client.ObjectKeyFromObject(gs), false)
	w.ask(t.Context(), client.ObjectKeyFromObject(gs), false)
	clustertest.Wait(t, "the annotation", func() error {
		if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(gs), gs); err != nil {
			return err
		}
		if gs.Annotations[v1alpha1.AnnotationPush] == "" {
			return errors.New("there is none")
		}
		return nil
	})
}

// leader syncs all sources, and passes their requests on.
type leader chan types.NamespacedName

func (leader) Syncs(client.Object) bool { return true }

func (l leader) RequestSync(_ context.Context, sources ...types.NamespacedName) {
	for _, name := range sources {
		l <- name
	}
}

// The replica that syncs a source gets the request of a signed hook directly, and no
// annotation is written. A hook that another token signed asks for nothing.
func TestHookOfThisReplica(t *testing.T) {
	w, address := hookServer(t)
	requests := make(leader, 2)
	w.requester = requests
	c := clustertest.Shared(t)
	secret := &corev1.Secret{Data: map[string][]byte{keyToken: []byte("s3cret")}}
	secret.Namespace, secret.Name = c.Namespace(t), "hook"
	gs := sourceAt("https://git.example.org/"+secret.Namespace+".git", "main")
	gs.Namespace, gs.Name = secret.Namespace, "shop"
	gs.Spec.Webhook = &v1alpha1.Webhook{SecretRef: v1alpha1.LocalObjectReference{Name: secret.Name}}
	for _, o := range []client.Object{secret, gs} {
		if err := c.Client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	body := `{"url":"` + gs.Spec.URL + `","ref":"refs/heads/main"}`
	for _, token := range []string{"guess", "s3cret"} {
		post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/webhook", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		post.Header.Set("X-Hub-Signature-256", "sha256="+hmacOf(body, token))
		answer, err := http.DefaultClient.Do(post)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusAccepted {
			t.Errorf("signed by %s: %s", token, answer.Status)
		}
	}
	clustertest.Wait(t, "the request", func() error {
		if len(requests) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	if got := <-requests; got != client.ObjectKeyFromObject(gs) {
		t.Errorf("a sync of %s was requested", got)
	}
	if len(requests) > 0 {
		t.Errorf("the hook that another token signed requested a sync of %s", <-requests)
	}
	if err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(gs), gs); err != nil {
		t.Fatal(err)
	}
	if at := gs.Annotations[v1alpha1.AnnotationPush]; at != "" {
		t.Errorf("there is the annotation of a push: %s", at)
	}
}

func FuzzWebhook(f *testing.F) {
	for _, body := range pushes {
		f.Add([]byte(body), "https://github.com/shop/web.git")
	}
	f.Add([]byte(`{"ref":{},"repository":[],"push":{"changes":[null]}}`), "file:///srv/git/web.git")
	f.Fuzz(func(t *testing.T, body []byte, url string) {
		p := parsePush(body)
		if slices.Contains(p.repositories, "") {
			t.Error("a repository without a name")
		}
		p.isOf(sourceAt(url, "main"))
		h := hook{header: http.Header{"X-Hub-Signature-256": {url}}, body: body}
		if h.signedWith([]byte("s3cret")) && url != "sha256="+hmacOf(string(body), "s3cret") && url != hmacOf(string(body), "s3cret") {
			t.Error("signed by whom")
		}
	})
}
