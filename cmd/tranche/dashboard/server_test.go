package dashboard_test

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/feed"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/web"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// cluster answers reviews, and counts them.
type cluster struct {
	client.Client
	tokens  map[string]string // users by token
	may     func(user, resource, namespace string) bool
	reviews int
	err     error // of each review
}

// newCluster holds the release of clitest in three namespaces.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &cluster{tokens: map[string]string{}, may: func(string, string, string) bool { return false }}
	made := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			c.reviews++
			if c.err != nil {
				return c.err
			}
			switch review := o.(type) {
			case *authenticationv1.TokenReview:
				review.Status.User.Username = c.tokens[review.Spec.Token]
				review.Status.Authenticated = review.Status.User.Username != ""
			case *authorizationv1.SubjectAccessReview:
				a := review.Spec.ResourceAttributes
				review.Status.Allowed = a.Verb == "list" && c.may(review.Spec.User, a.Resource, a.Namespace)
			}
			return nil
		},
	})
	for _, namespace := range []string{"shop", "bank", "farm"} {
		br, gs := clitest.Release(), clitest.Source()
		br.Namespace, br.Labels[v1alpha1.LabelSourceNamespace], gs.Namespace = namespace, namespace, namespace
		br.Status.Message = "the pods of " + namespace
		made.WithObjects(br, gs)
	}
	c.Client = made.Build()
	return c
}

// feedOf is the feed of a cluster that does not change by itself.
func feedOf(t testing.TB, c client.Client) *feed.Cluster {
	t.Helper()
	f := &feed.Cluster{Feed: feed.New(), Reader: c, Kinds: feed.Kinds{Sources: true, Workloads: true, Events: true}}
	var releases v1alpha1.BatchReleaseList
	var sources v1alpha1.GitSourceList
	if err := c.List(t.Context(), &releases); err != nil {
		t.Fatal(err)
	}
	if err := c.List(t.Context(), &sources); err != nil {
		t.Fatal(err)
	}
	for i := range releases.Items {
		br := &releases.Items[i]
		f.Put(feed.ID{Kind: feed.Releases, Namespace: br.Namespace, Name: br.Name}, view.NewRow(br))
	}
	for i := range sources.Items {
		gs := &sources.Items[i]
		f.Put(feed.ID{Kind: feed.Sources, Namespace: gs.Namespace, Name: gs.Name}, view.NewSourceRow(gs))
	}
	return f
}

// handler is a server in a cluster, of which each reader sees what they may see.
func handler(t testing.TB, c *cluster, auth access.Authenticator, clock func() time.Time) http.Handler {
	t.Helper()
	s := &dashboard.Server{Feed: feedOf(t, c), Auth: auth, Rights: access.NewReviewed(c, clock), Hosts: []string{host}, Now: clock}
	return s.Handler()
}

const host = "127.0.0.1:8642"

// asked is a request to the server, and its answer.
func asked(h http.Handler, method, target string, edit ...func(*http.Request)) *http.Response {
	return patient(h, method, target, append(edit, func(r *http.Request) {
		ctx, stop := context.WithTimeout(r.Context(), 300*time.Millisecond) // a stream ends with it
		context.AfterFunc(ctx, stop)
		*r = *r.WithContext(ctx)
	})...)
}

// patient is a request that may take as long as git does.
func patient(h http.Handler, method, target string, edit ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, "http://"+host+target, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func cookie(res *http.Response) func(*http.Request) {
	return func(r *http.Request) {
		for _, c := range res.Cookies() {
			r.AddCookie(c)
		}
	}
}

// A server of one person answers those alone who have had its URL, under its own name, for
// 12 hours.
func TestServer_LocalRefusesStrangers(t *testing.T) {
	now := clitest.Noon
	clock := func() time.Time { return now }
	local := access.NewLocal(8642, clock)
	h := (&dashboard.Server{Feed: feedOf(t, newCluster(t)), Auth: local, Rights: access.All{}, Hosts: []string{host}, Now: clock}).Handler()
	signedIn := asked(h, "GET", "/?token="+local.Token)
	if signedIn.StatusCode != http.StatusSeeOther || signedIn.Header.Get("Location") != "/" {
		t.Fatalf("%d to %q", signedIn.StatusCode, signedIn.Header.Get("Location"))
	}
	for _, c := range signedIn.Cookies() {
		if !strings.HasPrefix(c.Name, "__Host-") || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode ||
			c.Path != "/" || c.Domain != "" {
			t.Errorf("the cookie is %v", c)
		}
	}
	good := cookie(signedIn)
	strangers(t, h, good)
	now = now.Add(12 * time.Hour)
	if res := asked(h, "GET", "/api/stream", good); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("an expired cookie: %d", res.StatusCode)
	}
}

type edits = []func(*http.Request)

// strangers sends requests of which only the first is answered with data.
func strangers(t *testing.T, h http.Handler, good func(*http.Request)) {
	t.Helper()
	for _, c := range []struct {
		reason, method, target string
		edit                   edits
		want                   int
	}{
		{"the reader", "GET", "/api/stream", edits{good}, 200},
		{"no token", "GET", "/api/stream", nil, 401},
		{"a wrong token", "GET", "/?token=wrong", nil, 401},
		{"an empty token signs no reader in", "GET", "/?token=", nil, 200},
		{"a forged cookie", "GET", "/api/stream", edits{header("Cookie", "__Host-tranche-8642=9999999999.AAAA")}, 401},
		{"a cookie of another port", "GET", "/api/stream", edits{header("Cookie", "__Host-tranche-1=1")}, 401},
		{"a bearer token is nothing here", "GET", "/api/stream", edits{header("Authorization", "Bearer x")}, 401},
		{"a header of a proxy is nothing here", "GET", "/api/stream", edits{header("X-Forwarded-User", "ada")}, 401},
		{"another name (DNS rebinding)", "GET", "/api/stream", edits{good, func(r *http.Request) { r.Host = "evil.example:8642" }}, 421},
		{"its page, too", "GET", "/", edits{func(r *http.Request) { r.Host = "evil.example" }}, 421},
		{"no name", "GET", "/", edits{func(r *http.Request) { r.Host = "" }}, 421},
		{"a page that is posted to", "POST", "/releases", edits{good}, 405},
		{"another page that reads", "GET", "/api/stream", edits{good, header("Sec-Fetch-Site", "cross-site")}, 403},
		{"that of an old browser that reads", "GET", "/api/stream", edits{good, header("Origin", "http://evil.example")}, 403},
		{"a link of another page", "GET", "/", edits{good, header("Sec-Fetch-Site", "cross-site")}, 200},
		{"another page's request", "POST", "/api/logout", edits{good, header("Sec-Fetch-Site", "cross-site")}, 403},
		{"that of another port", "POST", "/api/logout", edits{good, header("Sec-Fetch-Site", "same-site")}, 403},
		{"that of an old browser", "POST", "/api/logout", edits{good, header("Origin", "http://evil.example")}, 403},
		{"a form", "POST", "/api/login", edits{good, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }}, 404},
		{"no such address", "GET", "/api/secrets", edits{good}, 404},
		{"a file outside", "GET", "/assets/../../embed.go", edits{good}, 307},
	} {
		t.Run(c.reason, func(t *testing.T) {
			res := asked(h, c.method, c.target, c.edit...)
			if res.StatusCode != c.want {
				t.Errorf("%d, want %d", res.StatusCode, c.want)
			}
			if policy := res.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
				strings.Contains(policy, "unsafe") || !strings.Contains(policy, "frame-ancestors 'none'") {
				t.Errorf("the policy is %q", policy)
			}
			if c.want != 303 && len(res.Cookies()) > 0 && c.target != "/api/logout" {
				t.Errorf("it sets %v", res.Cookies())
			}
		})
	}
}

// The page has no script and no style of its own, which the policy would refuse.
func TestPage_HasNothingInline(t *testing.T) {
	index, err := fs.ReadFile(web.Files(), "index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`<script>`, `<script [^>]*>[^<]`, `<style`, ` style=`, ` on[a-z]+=`, `https?://`} {
		if found := regexp.MustCompile(bad).Find(index); found != nil {
			t.Errorf("the page has %s", found)
		}
	}
}

func TestServer_TokenIsReviewed(t *testing.T) {
	now := clitest.Noon
	clock := func() time.Time { return now }
	c := newCluster(t)
	c.tokens["of-ada"] = "ada"
	h := handler(t, c, access.NewToken(c, clock), clock)
	bearer := header("Authorization", "Bearer of-ada")
	me := func(edit ...func(*http.Request)) (user string) {
		var answer struct{ User string }
		if err := json.NewDecoder(asked(h, "GET", "/api/me", edit...).Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return answer.User
	}
	if got := me(bearer); got != "ada" {
		t.Errorf("the user is %q", got)
	}
	if me(bearer); c.reviews != 1 {
		t.Errorf("%d reviews of one token within 30 s", c.reviews)
	}
	for reason, edit := range map[string]edits{
		"no token":                   nil,
		"an unknown token":           {header("Authorization", "Bearer of-eve")},
		"a header of a proxy":        {header("X-Forwarded-User", "ada")},
		"a long token":               {header("Authorization", "Bearer "+strings.Repeat("x", 5000))},
		"a token in the URL's place": {header("Authorization", "Basic of-ada")},
	} {
		if res := asked(h, "GET", "/api/stream", edit...); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", reason, res.StatusCode)
		}
	}
	signedIn := asked(h, "POST", "/api/login", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(`{"token":"of-ada"}`)) })
	if got := me(cookie(signedIn)); got != "ada" {
		t.Errorf("after the sign-in the user is %q", got)
	}
	delete(c.tokens, "of-ada") // it expires
	now = now.Add(30 * time.Second)
	if res := asked(h, "GET", "/api/stream", bearer); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("an expired token: %d", res.StatusCode)
	}
	c.tokens["of-ada"], c.err = "ada", &feed.DownError{Since: now}
	now = now.Add(30 * time.Second)
	for _, target := range []string{"/api/me", "/api/stream"} { // no answer that would sign the reader out
		if res := asked(h, "GET", target, bearer); res.StatusCode != http.StatusBadGateway {
			t.Errorf("%s while the API server is down: %d", target, res.StatusCode)
		}
	}
}

func TestProxy_PeerIsTrusted(t *testing.T) {
	p := &access.Proxy{Trusted: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, UserHeader: "X-User", GroupsHeader: "X-Groups"}
	for _, c := range []struct {
		reason, peer string
		edit         []func(*http.Request)
		user, groups string // empty: refused
	}{
		{"the proxy", "10.1.2.3:5000", edits{header("X-User", "ada"), header("X-Groups", "dev, ops")}, "ada", "system:authenticated dev ops"},
		{"another peer", "10.2.2.3:5000", edits{header("X-User", "ada")}, "", ""},
		{"the proxy as IPv6", "[::ffff:10.1.2.3]:5000", edits{header("X-User", "ada")}, "ada", "system:authenticated"},
		{"another peer in the proxy's name", "10.2.2.3:5000", edits{header("X-User", "ada"), header("X-Forwarded-For", "10.1.2.3")}, "", ""},
		{"no user", "10.1.2.3:5000", nil, "", ""},
		{"two users", "10.1.2.3:5000", edits{header("X-User", "ada"), header("X-User", "eve")}, "", ""},
		{"a name of the cluster", "10.1.2.3:5000", edits{header("X-User", "system:admin")}, "", ""},
		{
			"a group of the cluster", "10.1.2.3:5000", edits{header("X-User", "ada"), header("X-Groups", "system:masters,dev")},
			"ada", "system:authenticated dev",
		},
	} {
		t.Run(c.reason, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", http.NoBody)
			r.RemoteAddr = c.peer
			for _, e := range c.edit {
				e(r)
			}
			u, err := p.Authenticate(r)
			if err != nil && c.user != "" || err == nil && (u.Name != c.user || strings.Join(u.Groups, " ") != c.groups) {
				t.Errorf("%+v, %v", u, err)
			}
		})
	}
}

// A reader of one namespace of three sees nothing of the others, in the stream or by a name
// that is guessed. Once the right is gone, the reader sees nothing at all.
func TestStream_ShowsWhatTheReaderMaySee(t *testing.T) {
	now := clitest.Noon
	clock := func() time.Time { return now }
	c := newCluster(t)
	c.may = func(user, _, namespace string) bool { return user == "ada" && namespace == "shop" }
	proxy := &access.Proxy{Trusted: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, UserHeader: "X-User", GroupsHeader: "X-Groups"}
	h := handler(t, c, proxy, clock)
	stream := func(target string) string {
		text, err := io.ReadAll(asked(h, "GET", "/api/stream"+target, header("X-User", "ada")).Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if text := stream("?release=shop/web"); strings.Contains(text, "bank") || strings.Contains(text, "farm") ||
		!strings.Contains(text, `"release":{"namespace":"shop"`) || !strings.Contains(text, `"sources":[{"namespace":"shop"`) {
		t.Error(text)
	}
	hidden, absent := stream("?release=bank/web"), stream("?release=bank/none")
	if !strings.Contains(hidden, `"release":null`) || hidden != absent {
		t.Errorf("a guessed name tells something:\n%s\n%s", hidden, absent)
	}
	if text := stream("?after=x-1-1"); !strings.Contains(text, `"reset":true`) {
		t.Errorf("a number of another server: %s", text)
	}
	c.may = func(string, string, string) bool { return false }
	now = now.Add(30 * time.Second)
	if text := stream("?release=shop/web"); strings.Contains(text, "the pods of") || !strings.Contains(text, `"reset":true`) {
		t.Errorf("without the right: %s", text)
	}
}
