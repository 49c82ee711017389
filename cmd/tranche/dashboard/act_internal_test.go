package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/commit"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The link leads to the page of the forge for a new file, with path and text filled in.
func TestForgePage(t *testing.T) {
	for _, tt := range []struct {
		reason, source, page, file, text string // page is empty: there is no link
		edit                             func(*view.Facts)
	}{
		{"GitHub", "https://github.com/acme/shop.git", "https://github.com/acme/shop/new/main", "filename", "value", nil},
		{"GitHub by SSH", "ssh://git@github.com:22/acme/shop.git", "https://github.com/acme/shop/new/main", "filename", "value", nil},
		{"GitLab", "https://gitlab.com/acme/web/shop", "https://gitlab.com/acme/web/shop/-/new/main", "file_name", "content", nil},
		{"an own GitLab", "https://gitlab.acme.org:84/shop.git", "https://gitlab.acme.org:84/shop/-/new/main", "file_name", "content", nil},
		{"Gitea", "https://gitea.acme.org/a/b.git", "https://gitea.acme.org/a/b/_new/main/apps/web/approvals", "filename", "value", nil},
		{"Codeberg", "https://codeberg.org/a/b", "https://codeberg.org/a/b/_new/main/apps/web/approvals", "filename", "value", nil},
		{
			"a branch with a slash", "https://github.com/a/b", "https://github.com/a/b/new/env/a%23b", "filename", "value",
			func(f *view.Facts) { f.Source.Spec.Ref.Branch = "env/a#b" },
		},
		{"a password in the URL", "https://ada:secret@github.com/a/b", "https://github.com/a/b/new/main", "filename", "value", nil},
		{"no such forge", "https://git.example.org/acme/shop.git", "", "", "", nil},
		{"a name that only looks so", "https://notgithub.com/acme/shop", "", "", "", nil},
		{"a folder", "file:///srv/gitlab/shop.git", "", "", "", nil},
		{
			"an approval that is to be signed", "https://github.com/acme/shop", "", "", "",
			func(f *view.Facts) { f.Release.Spec.RequireSignedApprovals = true },
		},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			f := &view.Facts{Release: clitest.Release(), Source: clitest.Source()}
			f.Source.Spec.URL = tt.source
			if tt.edit != nil {
				tt.edit(f)
			}
			got := forgePage(f)
			page, query, _ := strings.Cut(got, "?")
			if page != tt.page {
				t.Fatalf("the page is %q", got)
			}
			values, err := url.ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			file := values.Get(tt.file)
			if in := strings.TrimPrefix(page, "https://"); strings.Contains(in, "/_new/") {
				file = "apps/web/approvals/" + file
			}
			if tt.page != "" && (file != "apps/web/approvals/web.yaml" || values.Get(tt.text) != cli.ApprovalFile(f.Release, 1)) {
				t.Errorf("it has %v", values)
			}
		})
	}
}

// An approval that would not count is refused, with the reason.
func TestRefusals(t *testing.T) {
	const ada = "Ada <ada@example.org>"
	for _, tt := range []struct {
		reason, author string
		verb           commit.Verb
		edit           func(*view.Facts)
		want           string // empty: it is offered
	}{
		{"the author's own change", ada, commit.Approve, nil, "its author may not approve it"},
		{"another author", "Bea <bea@example.org>", commit.Approve, nil, ""},
		{"no clone, so no author", "", commit.Approve, nil, ""},
		{"the author pauses", ada, commit.Pause, nil, ""},
		{"the author rolls back", ada, commit.Rollback, nil, ""},
		{"no such rule", ada, commit.Approve, func(f *view.Facts) { f.Source.Spec.Approvals.DistinctAuthor = false }, ""},
		{"a gate that measures", "", commit.Approve, func(f *view.Facts) { clitest.Measure(f.Release) }, "its metrics open this gate"},
		{"one that wants an approval, too", "", commit.Approve, func(f *view.Facts) {
			clitest.Measure(f.Release)
			f.Release.Spec.Strategy.Steps[1].Analysis.Approval = true
		}, ""},
		{"one that only observes", "", commit.Approve, func(f *view.Facts) {
			clitest.Measure(f.Release)
			f.Release.Spec.Strategy.Analysis.Mode = v1alpha1.AnalysisObserve
		}, ""},
		{"a pause at a gate that measures", "", commit.Pause, func(f *view.Facts) { clitest.Measure(f.Release) }, ""},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			f := &view.Facts{Release: clitest.Release(), Source: clitest.Source()}
			f.Release.Annotations = map[string]string{v1alpha1.AnnotationCommitAuthor: ada}
			f.Source.Spec.Approvals = &v1alpha1.ApprovalPolicy{DistinctAuthor: true}
			if tt.edit != nil {
				tt.edit(f)
			}
			got := ""
			a := commit.Action{Verb: tt.verb, Step: f.Release.Status.CurrentStepIndex}
			for _, err := range []error{sameAuthor(f, tt.verb, tt.author), a.Refusal(f.Release, f.Source)} {
				if err != nil {
					got += err.Error()
				}
			}
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
