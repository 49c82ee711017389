package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// If only signers approve, a second file of another user keeps no signer from approving: the
// controller ignores it, and so does the command. It names the file, and writes its own.
func TestApproveBesidePlanted(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.signers()
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	br := s.release("web")
	planted := func(step int) string {
		return fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: %s}\n"+
			"spec: {revision: %q, commit: %q, step: %d}\n", s.ns, br.Status.UpdateRevision, br.Spec.Commit, step)
	}
	s.write("approvals/a.yaml", planted(0)+"---\n"+strings.Replace(planted(0), "web", "api", 1))
	s.write("approvals/x1.yaml", planted(0))
	unsigned := s.push("approve it without a signature")
	s.ignored(unsigned, "it is not signed")
	s.says(0, "approve web --yes --sign --push", "approvals/web.yaml will be, as a whole", "Ignored: approvals/a.yaml: ", "other documents",
		"Ignored: approvals/x1.yaml: ", "commit "+unsigned[:12]+" brought it: it is not signed", "Pushed to main")
	if got := s.run(s.clone, "git", "show", "--name-only", "--format=", "origin/main"); got != "approvals/web.yaml" {
		t.Errorf("the commit changes %s", got)
	}
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})

	stranger := gittest.NewSSHKey(t, "ed25519", "")
	var args []string
	for _, c := range stranger.Config {
		args = append(args, "-c", c)
	}
	s.write("approvals/x1.yaml", planted(1))
	s.run(s.clone, "git", append(args, "commit", "--quiet", "--all", "-S", "-m", "approve it with another key")...)
	s.run(s.clone, "git", "push", "--quiet", "origin", "main")
	s.ignored(s.run(s.clone, "git", "rev-parse", "HEAD"), "a key that is not listed")
	s.says(0, "approve --commit "+br.Spec.Commit+" --yes --sign --push",
		"Ignored: approvals/x1.yaml: ", "a key that is not listed", "Pushed to main")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
}
