package dashboard_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/access"
	"github.com/tranche-dev/tranche/cmd/tranche/dashboard/feed"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// onPage serves the releases of a cluster that does not change by itself, to one person.
// edit is for the release of namespace shop, whose page is returned.
func onPage(
	t *testing.T, b *clitest.Browser, clone *dashboard.Clone, edit func(*v1alpha1.BatchRelease, *v1alpha1.GitSource),
) (*clitest.Tab, *feed.Cluster) {
	t.Helper()
	c := newCluster(t)
	br, gs := &v1alpha1.BatchRelease{}, &v1alpha1.GitSource{}
	for name, o := range map[string]client.Object{"web": br, "shop": gs} {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, o); err != nil {
			t.Fatal(err)
		}
	}
	edit(br, gs)
	for _, o := range []client.Object{br, gs} {
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	f := feedOf(t, c)
	local := access.NewLocal(1, time.Now)
	s := &dashboard.Server{Feed: f, Auth: local, Rights: access.All{}, Now: time.Now, Clone: clone}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	s.Hosts = []string{strings.TrimPrefix(server.URL, "http://")}
	page := b.Tab(t.Name(), map[string]any{"width": 320, "height": 640})
	page.Opens(server.URL + "/?token=" + local.Token)
	page.Opens(server.URL + "/releases/shop/web")
	page.Sees("main h1", "web")
	return page, f
}

// TestPage_OfOneRelease has the tests of the page of a release that need no cluster. They
// share a browser.
func TestPage_OfOneRelease(t *testing.T) {
	b := clitest.NewBrowser(t, "web")
	t.Run("the link to the forge", func(t *testing.T) { leadsToTheForge(t, b) })
	t.Run("the own change", func(t *testing.T) { refusesTheOwnChange(t, b) })
	t.Run("old rows", func(t *testing.T) { saysThatItIsOld(t, b) })
	t.Run("a hostile release", func(t *testing.T) { showsHostileTexts(t, b) })
}

// The link to the forge has the approval filled in. A gate that was opened in spite of its metrics
// says so.
func leadsToTheForge(t *testing.T, b *clitest.Browser) {
	page, _ := onPage(t, b, nil, func(br *v1alpha1.BatchRelease, gs *v1alpha1.GitSource) {
		gs.Spec.URL = "https://github.com/acme/shop.git"
		br.Status.Approvals[0].Override = []string{"errors"}
	})
	page.Sees("main", "Commit the approval on the forge", "override: Ada", "step 0: override, Ada")
	var href string
	page.Runs("document.querySelector('.decide a').href", &href)
	for _, part := range []string{
		"https://github.com/acme/shop/new/main?", "filename=apps%2Fweb%2Fapprovals%2Fweb.yaml", "kind%3A+BatchApproval", "step%3A+1",
	} {
		if !strings.Contains(href, part) {
			t.Errorf("%s is not in %s", part, href)
		}
	}
	page.IsClean("the link to the forge")
}

// A person is not offered to approve the own change, if that does not count. They may go back.
func refusesTheOwnChange(t *testing.T, b *clitest.Browser) {
	dir, url := t.TempDir(), "ssh://git@git.example.org/shop.git"
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"}, {"remote", "add", "origin", url},
		{"config", "user.name", "Ada"}, {"config", "user.email", "ada@example.org"},
	} {
		clitest.Run(t, dir, "git", args...)
	}
	page, _ := onPage(t, b, &dashboard.Clone{Dir: dir}, func(br *v1alpha1.BatchRelease, gs *v1alpha1.GitSource) {
		br.Annotations = map[string]string{v1alpha1.AnnotationCommitAuthor: "Ada <ada@example.org>"}
		gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{DistinctAuthor: true, Signers: &v1alpha1.Verification{}}
	})
	page.Sees(".decide", "Roll back", "Approve step 1 is not possible: you wrote the change, and its author may not approve it")
	var buttons []string
	page.Runs("[...document.querySelectorAll('.decide button')].map((b) => b.innerText)", &buttons)
	if slices.ContainsFunc(buttons, func(b string) bool { return strings.Contains(b, "Approve") }) {
		t.Errorf("the buttons are %q", buttons)
	}
	page.IsClean("the own change")
}

// While the cluster does not answer, the badge is not Live, and a line says since when what is shown
// may be old. Both end by themselves.
func saysThatItIsOld(t *testing.T, b *clitest.Browser) {
	page, f := onPage(t, b, nil, func(*v1alpha1.BatchRelease, *v1alpha1.GitSource) {})
	page.Sees("header .live", "Live")
	since := time.Now().Add(-time.Minute)
	f.SetStale(&feed.Stale{Since: since, Reason: "The API server does not answer: it was stopped"})
	page.Sees("header .live", "Not live")
	page.Sees("main", "What is shown is of ", since.Local().Format(":04:05"), "may be old. The API server does not answer: it was stopped")
	page.IsClean("old rows")
	f.SetStale(nil)
	f.SetStill("The controller has stopped")
	page.Sees("main", "The controller has stopped")
	page.Sees("header .live", "Live")
	var text string
	page.Runs("document.querySelector('main').innerText", &text)
	if strings.Contains(text, "may be old") {
		t.Error(text)
	}
}

// Texts of others are text, whatever they have in them. Many metrics and windows fit on a
// telephone. A release that goes and comes again is followed.
func showsHostileTexts(t *testing.T, b *clitest.Browser) {
	const bad = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>` + "\u202e"
	page, f := onPage(t, b, nil, func(br *v1alpha1.BatchRelease, gs *v1alpha1.GitSource) {
		clitest.Measure(br)
		br.Status.Message, br.Spec.Template.Spec.Containers[0].Image = bad, bad
		br.Annotations = map[string]string{v1alpha1.AnnotationCommitAuthor: bad}
		gs.Spec.URL = "javascript:document.title='owned'"
		a := br.Status.Analysis
		a.Message, a.Metrics[0].Message, a.Records[0].Reason = bad, bad, bad
		of := a.Metrics[0]
		a.Metrics = nil
		for i := range 30 {
			m := *of.DeepCopy()
			m.Name = fmt.Sprint(strings.Repeat("m", 200), i)
			for n := range int32(100) {
				w := of.Measurements[n%4]
				w.N, w.Message = n+1, bad
				if n%3 == 0 {
					w.Update, w.Stable = []string{"NaN", "1e400", "1/0", bad}[n%4], "1e300"
				}
				m.Measurements = append(m.Measurements, w)
			}
			a.Metrics = append(a.Metrics, m)
		}
	})
	page.Sees("main", "Analysis of step 1", "m29", "<img src=x")
	page.Fits("a hostile release")
	page.Runs("document.querySelector('details').open = true", nil)
	page.IsClean("a hostile release")
	var title, links string
	page.Runs("document.title", &title)
	page.Runs("[...document.links].map((a) => a.protocol).join()", &links)
	if title != "shop/web · Tranche" || strings.Contains(links, "javascript") {
		t.Errorf("the title is %q, and links are of %s", title, links)
	}
	id := feed.ID{Kind: feed.Releases, Namespace: "shop", Name: "web"}
	f.Delete(id)
	page.Sees("main", "There is no such release")
	f.Put(id, view.NewRow(clitest.Release()))
	page.Sees("main", "Analysis of step 1")
	page.HasNoError("a release that went and came")
}
