package main

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Two Deployments that one commit released are approved by one commit, with a file for
// each: the bare repository has the files, and both releases go on.
func TestApproveCommit(t *testing.T) {
	s := newShop(t, "shop", "overlays/production")
	s.waitFor("catalog", "ReleaseCompleted", 2, nil)
	s.waitFor("checkout", "ReleaseCompleted", 3, nil)
	s.says(1, "approve --commit 0123456 --yes", "no release under way in namespace "+s.ns+" comes from commit 0123456")
	s.says(1, "approve catalog --commit 0123456 --yes", "remove catalog, or --commit")
	s.replace("overlays/production/kustomization.yaml", "LOG_LEVEL=warning", "LOG_LEVEL=error")
	began := s.push("log only errors")
	s.waitFor("catalog", "WaitingForApproval", 0, nil)
	s.waitFor("checkout", "WaitingForApproval", 0, nil)

	s.says(0, "approve --commit "+began[:10]+" --yes --push", "approvals/catalog.yaml", "approvals/checkout.yaml", "Pushed to main")
	if got := s.run(s.bare, "git", "rev-list", "--count", began+"..main"); got != "1" {
		t.Errorf("%s commits were made", got)
	}
	if got, want := s.run(s.bare, "git", "show", "--name-only", "--format=%s", "main"), "Approve the 2 releases of "+began[:7]+"\n\noverlays/production/approvals/catalog.yaml\noverlays/production/approvals/checkout.yaml"; got != want {
		t.Errorf("the commit is\n%s\nwant\n%s", got, want)
	}
	if got := s.run(s.bare, "git", "log", "-1", "--format=%(trailers:key=Tranche-Release,valueonly)", "main"); strings.TrimSpace(got) != s.ns+"/catalog\n"+s.ns+"/checkout" {
		t.Errorf("the trailers name %q", got)
	}
	for _, name := range []string{"catalog", "checkout"} {
		file := s.run(s.bare, "git", "show", "main:overlays/production/approvals/"+name+".yaml")
		s.has(file, "name: "+name, `revision: "`+s.release(name).Status.UpdateRevision+`"`, "step: 0")
	}
	s.waitFor("checkout", "WaitingForApproval", 1, nil)
	s.waitFor("catalog", "ReleaseCompleted", 2, nil) // its second gate opens by itself
}

// Which releases a commit names, and when that is not clear.
func TestOfOneSource(t *testing.T) {
	of := func(name, source, commit string) v1alpha1.BatchRelease {
		br := *waiting().release.DeepCopy()
		br.Name, br.Spec.Commit, br.Labels[v1alpha1.LabelSource] = name, commit, source
		return br
	}
	const a, b = "aaaaaaa1", "aaaaaaa2"
	for _, tc := range []struct {
		why  string
		list []v1alpha1.BatchRelease
		err  string
	}{
		{"none", nil, "no release under way in namespace shop comes from commit aaaaaaa"},
		{"two of one", []v1alpha1.BatchRelease{of("web", "shop", a), of("api", "shop", a)}, ""},
		{"two commits", []v1alpha1.BatchRelease{of("web", "shop", a), of("api", "shop", b)}, "both aaaaaaa1 and aaaaaaa2 begin with it"},
		{"two sources", []v1alpha1.BatchRelease{of("web", "shop", a), of("api", "other", a)}, "come from the GitSources shop/shop, shop/other; name one with --source"},
	} {
		got, err := ofOneSource(tc.list, "aaaaaaa", "shop")
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) || err == nil && len(got) != len(tc.list) {
			t.Errorf("%s: %d, %v, want %q", tc.why, len(got), err, tc.err)
		}
	}
}
