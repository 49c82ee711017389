package main

import (
	"fmt"
	"math"
	"net"
	"path/filepath"
	"regexp"
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
	b := clitest.NewBrowser(t, filepath.Join("dashboard", "web"))
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, nil)
	url := runDashboard(s, s.clone, "-n", s.ns)
	list, page := b.Tab("waiting", nil), b.Tab("release", map[string]any{"width": 1280, "height": 860})
	list.Opens(url)
	list.Sees("main", "Nothing waits for you.")
	list.Picture("nothing", false)
	page.Opens(url)
	page.Clicks("link", "Releases")
	page.Sees("table.releases", "web", "Complete", "10/10")
	page.Clicks("link", "web")
	page.Sees("main", "Complete")
	for _, at := range []*clitest.Tab{list, page} {
		at.Runs("globalThis.unloaded = true", nil)
	}

	s.replace("deployment.yaml", ":v1", ":v2")
	v2 := s.push("web: v2")
	page.Sees("main", "2 of 10 pods run", "Waiting for approval", "v1", "v2")
	list.Sees("main", "Approve step 0", "by Ada")
	list.Sees("nav", "Waiting 1")
	list.IsClean("Waiting")
	list.Picture("waiting", false)

	decides(s, page, "Approve step 0", "Approve step 0 of web", "+++ b/approvals/web.yaml", "+ step: 0")
	page.Sees("main", "5 of 10 pods run", "Waiting for approval", "Ada")
	page.Sees("section.hero", "5/5")
	page.IsClean("Release")
	page.Picture("release", false)

	shows(list, s, url)

	decides(s, page, "Pause", "Pause web", "release.yaml", "+ paused: true")
	page.Sees("main", "Paused", "Resume the plan")
	list.Sees("main", "Resume the plan")
	decides(s, page, "Resume", "Resume web", "release.yaml", "- paused: true")
	page.Sees("main", "5 of 10 pods run", "Waiting for approval")

	s.run(s.clone, "git", "revert", "--no-edit", v2)
	s.run(s.clone, "git", "push", "--quiet")
	page.Sees("main", "Complete", "rolled back")
	list.Sees("main", "Nothing waits for you.")

	s.replace("deployment.yaml", ":v1", ":v3")
	s.push("web: v3")
	page.Sees("main", "2 of 10 pods run", "Waiting for approval", "v3")
	decides(s, page, "Roll back", `Revert "web: v3"`, "deployment.yaml", "web:v3", "+ image: registry.example.org/web:v1")
	page.Sees("section.hero", "10/10")
	page.Sees("main", "Complete")
	page.Sees(".timeline", "in steps,", "at gates", "rolled back")
	list.Sees("main", "Nothing waits for you.")
	if text := s.run(s.bare, "git", "show", "main:deployment.yaml"); !strings.Contains(text, "web:v1\n") {
		t.Errorf("the branch brings:\n%s", text)
	}
	for _, at := range []*clitest.Tab{list, page} {
		var stayed bool
		if at.Runs("globalThis.unloaded === true", &stayed); !stayed {
			t.Errorf("%s was loaded again", at.Name)
		}
		at.IsClean(at.Name)
	}
	page.Picture("complete", true)
}

// decides clicks an action. The page shows the change first, and then the person commits it.
func decides(s *env, page *clitest.Tab, button, subject string, diff ...string) {
	s.Helper()
	before := s.run(s.bare, "git", "rev-parse", "main")
	page.Clicks("button", button)
	page.Sees("dialog", append([]string{"Commits as Ada <ada@example.org> to main"}, diff...)...)
	page.IsClean("the dialog of " + button)
	page.Picture(strings.ToLower(strings.Fields(button)[0]), false)
	if now := s.run(s.bare, "git", "rev-parse", "main"); now != before {
		s.Errorf("main is at %s before the person has agreed", now)
	}
	page.Clicks("button", "Commit and push")
	page.Sees("dialog", "Pushed to main of origin.")
	want := "Ada <ada@example.org>|Ada|" + subject + "|" + before
	if got := s.run(s.bare, "git", "log", "-1", "--format=%an <%ae>|%cn|%s|%P", "main"); got != want {
		s.Errorf("the commit is %q, want %q", got, want)
	}
	page.Clicks("button", "Close")
}

// shows opens the page on a telephone, in the dark. Then it lets the stream be cut while a
// manifest is refused.
func shows(list *clitest.Tab, s *env, url string) {
	s.Helper()
	small := list.Tab("small", map[string]any{"width": 320, "height": 640, "dark": true})
	small.Opens(url)
	for at, text := range map[string]string{
		"": "Approve step 1", "releases": "1 of 1 release", "sources": "Applied", "releases/" + s.ns + "/web": "The change",
	} {
		small.Runs("history.pushState(null, '', '/"+at+"'); dispatchEvent(new PopStateEvent('popstate'))", nil)
		small.Sees("main", text)
		small.Fits("320 px, /" + at)
		small.IsClean("320 px in the dark, /" + at)
		small.Picture("small-"+strings.ReplaceAll(at, "/", "-"), true)
	}

	// A commit that is refused, while the stream is cut.
	small.Does("offline", nil, map[string]any{"tab": "small", "offline": true})
	s.write("broken.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: broken}\nspec: {ports: [{port: nine}]}\n")
	s.push("a bad manifest")
	list.Sees("main", "Correct the branch main", "broken.yaml", "Service", `spec.ports[port="nine",protocol="TCP"].port`)
	list.IsClean("a bad manifest")
	list.Picture("refused", false)
	small.Does("offline", nil, map[string]any{"tab": "small", "offline": false})
	small.Runs("history.pushState(null, '', '/sources'); dispatchEvent(new PopStateEvent('popstate'))", nil)
	small.Sees("main", "broken.yaml", `.port`, "expected numeric")
	s.run(s.clone, "git", "rm", "--quiet", "broken.yaml")
	s.push("take it back")
	list.Sees("nav", "Waiting 1")
}

// isShown reads both revisions of a metric from the page, beside what the exporter has counted.
// The release holds, since both fail.
func (s *measured) isShown(t *testing.T) {
	b := clitest.NewBrowser(t, filepath.Join("dashboard", "web"))
	url := runDashboard(s.env, t.TempDir(), "-n", s.ns)
	page := b.Tab("analysis", nil)
	page.Opens(url)
	page.Opens(strings.SplitN(url, "?", 2)[0] + "releases/" + s.ns + "/web")
	page.Sees("section.card[aria-labelledby=analysis]", "Analysis of step 0", "errors", "unknown", "stable fails too", "max 2%")
	page.Runs("document.querySelectorAll('details').forEach((d) => (d.open = true))", nil)
	page.Sees(".windows", "1", "%")
	var legend string
	page.Runs("document.querySelector('.legend').innerText.replace(/\\s+/g, ' ')", &legend)
	var of [2]float64
	legend = regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(legend, "")
	if _, err := fmt.Sscanf(legend, "new %f %% stable %f %%", &of[0], &of[1]); err != nil {
		t.Fatalf("the legend is %q: %v", legend, err)
	}
	for i, tag := range []string{"v2-errors", "v1-errors"} {
		ok, failed := s.m.Served(t, s.ns, s.replicaSet(tag))
		if share := 100 * failed / (ok + failed); math.Abs(share-of[i]) > 2 {
			t.Errorf("%s: the page has %v %%, and the exporter has counted %v %%", tag, of[i], share)
		}
	}
	var points [2]int
	page.Runs("['circle.update', 'rect.stable'].map((s) => document.querySelectorAll('.metric > .chart ' + s).length)", &points)
	if points[0] == 0 || points[1] == 0 {
		t.Errorf("%v points of the two revisions", points)
	}
	page.IsClean("Analysis")
	page.Picture("analysis", true)
	small := b.Tab("small", map[string]any{"width": 320, "height": 640, "dark": true})
	small.Opens(url)
	small.Opens(strings.SplitN(url, "?", 2)[0] + "releases/" + s.ns + "/web")
	small.Sees("main", "Analysis of step 0")
	small.Fits("320 px, Analysis")
	small.IsClean("320 px in the dark, Analysis")
	small.Picture("analysis-small", true)
}

// A reader of one namespace of three sees nothing of the others. The dashboard has the rights
// of config/dashboard, and no others.
func TestDashboard_ReaderOfOneNamespace(t *testing.T) {
	b := clitest.NewBrowser(t, filepath.Join("dashboard", "web"))
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
	for _, args := range [][]string{{"-k", "../../config/dashboard", "--dry-run=server"}, {"-f", "../../config/dashboard/role.yaml"}} {
		if out, err := c.Kubectl(t, append([]string{"apply", "--server-side"}, args...)...); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	url := runDashboard(s, t.TempDir(), "--as", "system:serviceaccount:tranche-system:tranche-dashboard", "--auth=token",
		"--address", address, "--allowed-hosts", address)

	page := b.Tab("reader", nil)
	page.Opens(url + "releases")
	page.Sees("main", "not signed in")
	page.IsClean("the sign-in")
	page.Picture("sign-in", false)
	page.Does("fill", nil, map[string]any{"tab": "reader", "selector": "#token", "text": strings.TrimSpace(token)})
	page.Clicks("button", "Sign in")
	page.Sees("main", "web-1", "1 of 1 release")
	page.Runs("history.pushState(null, '', '/releases/"+names[0]+"/web-0'); dispatchEvent(new PopStateEvent('popstate'))", nil)
	page.Sees("main", "There is no such release, or you may not see it.")
	if text := page.Text(); strings.Contains(text, names[2]) || strings.Contains(text, "web-2") {
		t.Errorf("it sees more: %s", text)
	}
	var leaked bool
	page.Runs(`fetch("/api/stream?release=`+names[0]+`/web-0").then(async (r) => {
		const text = new TextDecoder().decode((await r.body.getReader().read()).value);
		return text.includes("web-0\"") || text.includes("web-2");
	})`, &leaked)
	if leaked {
		t.Error("the stream has a release of another namespace")
	}
	page.HasNoError("the reader")
}
