package main

import (
	"fmt"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A browser shows the three gestures without a reload. A tag starts a release, an approval
// that is clicked lets it go on, and git revert rolls back.
func TestDashboard_ShowsTheThreeGestures(t *testing.T) {
	b := newBrowser(t)
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, nil)
	url := runDashboard(s, s.clone, "-n", s.ns)
	list, page := b.tab("waiting", nil), b.tab("release", map[string]any{"width": 1280, "height": 860})
	list.opens(url)
	list.sees("main", "Nothing waits for you.")
	list.picture("nothing", false)
	page.opens(url)
	page.clicks("link", "Releases")
	page.sees("table.releases", "web", "Complete", "10/10")
	page.clicks("link", "web")
	page.sees("main", "Complete")
	for _, at := range []*tab{list, page} {
		at.runs("globalThis.unloaded = true", nil)
	}

	s.replace("deployment.yaml", ":v1", ":v2")
	v2 := s.push("web: v2")
	page.sees("main", "2 of 10 pods run", "Waiting for approval", "v1", "v2")
	list.sees("main", "Approve step 0", "by Ada")
	list.sees("nav", "Waiting 1")
	list.isClean("Waiting")
	list.picture("waiting", false)

	// The page shows the change first, and the person commits it.
	before := s.run(s.bare, "git", "rev-parse", "main")
	page.clicks("button", "Approve step 0")
	page.sees("dialog", "Commits as Ada <ada@example.org> to main", "+++ b/approvals/web.yaml", "+ step: 0")
	page.isClean("the dialog")
	page.picture("approve", false)
	if now := s.run(s.bare, "git", "rev-parse", "main"); now != before {
		t.Errorf("main is at %s before the person has agreed", now)
	}
	page.clicks("button", "Commit and push")
	page.sees("dialog", "Pushed to main of origin.")
	want := "Ada <ada@example.org>|Ada|Approve step 0 of web|" + before
	if got := s.run(s.bare, "git", "log", "-1", "--format=%an <%ae>|%cn|%s|%P", "main"); got != want {
		t.Errorf("the commit is %q", got)
	}
	page.clicks("button", "Close")
	page.sees("main", "5 of 10 pods run", "Waiting for approval", "Ada")
	page.sees("section.hero", "5/5")
	page.isClean("Release")
	page.picture("release", false)

	shows(list, s, url)

	s.run(s.clone, "git", "revert", "--no-edit", v2)
	s.run(s.clone, "git", "push", "--quiet")
	page.sees("main", "Complete", "rolled back")
	list.sees("main", "Nothing waits for you.")
	for _, at := range []*tab{list, page} {
		var stayed bool
		if at.runs("globalThis.unloaded === true", &stayed); !stayed {
			t.Errorf("%s was loaded again", at.name)
		}
		at.isClean(at.name)
	}
	page.picture("complete", true)
}

// shows opens the page on a telephone, in the dark. Then it lets the stream be cut while a
// manifest is refused.
func shows(list *tab, s *env, url string) {
	s.Helper()
	small := list.tab("small", map[string]any{"width": 320, "height": 640, "dark": true})
	small.opens(url)
	for _, at := range []string{"", "releases", "sources", "releases/" + s.ns + "/web"} {
		small.runs("history.pushState(null, '', '/"+at+"'); dispatchEvent(new PopStateEvent('popstate'))", nil)
		small.sees("main", map[string]string{"": "Waiting", "releases": "Releases", "sources": "Sources"}[at])
		small.sees("main", "web"[:len("web")*min(1, len(at))])
		small.fits("320 px, /" + at)
		small.isClean("320 px in the dark, /" + at)
		small.picture("small-"+strings.ReplaceAll(at, "/", "-"), true)
	}

	// A commit that is refused, while the stream is cut.
	small.does("offline", nil, map[string]any{"tab": "small", "offline": true})
	s.write("broken.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {ports: [{port: nine}]}\n")
	s.push("a bad manifest")
	list.sees("main", "Correct the branch main", "broken.yaml", "Service", "spec.ports[0].port")
	list.isClean("a bad manifest")
	list.picture("refused", false)
	small.does("offline", nil, map[string]any{"tab": "small", "offline": false})
	small.runs("history.pushState(null, '', '/sources'); dispatchEvent(new PopStateEvent('popstate'))", nil)
	small.sees("main", "broken.yaml", "spec.ports[0].port")
	s.run(s.clone, "git", "rm", "--quiet", "broken.yaml")
	s.push("take it back")
	list.sees("nav", "Waiting 1")
}

// A reader of one namespace of three sees nothing of the others.
func TestDashboard_ReaderOfOneNamespace(t *testing.T) {
	b := newBrowser(t)
	c := clustertest.Shared(t)
	var names []string
	for i := range 3 {
		ns := c.Namespace(t)
		names = append(names, ns)
		br := clitest.Release()
		br.Namespace, br.ResourceVersion, br.Generation = ns, "", 0
		br.Name, br.Labels, br.Spec.Template = fmt.Sprintf("web-%d", i), nil, nil
		br.Status = v1alpha1.BatchReleaseStatus{}
		if err := c.Client.Create(t.Context(), br); err != nil {
			t.Fatal(err)
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: names[1]}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: names[1]},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: names[1]}},
	}
	s := &env{TB: t, c: c, ns: names[1]}
	s.must(c.Client.Create(t.Context(), account))
	s.must(c.Client.Create(t.Context(), binding))
	token, err := c.Kubectl(t, "create", "token", "reader", "-n", names[1])
	s.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	address := l.Addr().String()
	s.must(l.Close())
	url := runDashboard(s, t.TempDir(), "--auth=token", "--address", address, "--allowed-hosts", address)

	page := b.tab("reader", nil)
	page.opens(url + "releases")
	page.sees("main", "not signed in")
	page.isClean("the sign-in")
	page.picture("sign-in", false)
	page.does("fill", nil, map[string]any{"tab": "reader", "selector": "#token", "text": strings.TrimSpace(token)})
	page.clicks("button", "Sign in")
	page.sees("main", "web-1", "1 of 1 release")
	page.runs("history.pushState(null, '', '/releases/"+names[0]+"/web-0'); dispatchEvent(new PopStateEvent('popstate'))", nil)
	page.sees("main", "There is no such release, or you may not see it.")
	if text := page.text(); strings.Contains(text, names[2]) || strings.Contains(text, "web-2") {
		t.Errorf("it sees more: %s", text)
	}
	var leaked bool
	page.runs(`fetch("/api/stream?release=`+names[0]+`/web-0").then(async (r) => {
		const text = new TextDecoder().decode((await r.body.getReader().read()).value);
		return text.includes("web-0\"") || text.includes("web-2");
	})`, &leaked)
	if leaked {
		t.Error("the stream has a release of another namespace")
	}
	page.hasNoError("the reader")
}
