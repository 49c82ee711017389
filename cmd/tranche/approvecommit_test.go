package main

import (
	"strings"
	"testing"
)

// Two Deployments that one commit released are approved by one commit, with a file for
// each: the bare repository has the files, and both releases go on.
func TestApproveCommit(t *testing.T) {
	s := newEnv(t, "shop", "overlays/production")
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
