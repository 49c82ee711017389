package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A person is asked, and what they do not want does not happen; what they sign
// is signed. The program is a plugin of kubectl, under that name.
func TestAsked(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	key := gittest.NewSSHKey(t, "ed25519", "")
	signers := filepath.Join(t.TempDir(), "allowed_signers")
	s.must(os.WriteFile(signers, []byte("ada@example.org "+key.Public+"\n"), 0o600))
	for _, c := range append(key.Config, "gpg.ssh.allowedSignersFile="+signers) {
		option, value, _ := strings.Cut(c, "=")
		s.run(s.clone, "git", "config", option, value)
	}
	s.replace("deployment.yaml", "web:v1", "web:v2")
	head := s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})

	approve := "approve web --source source --sign --push"
	screen := s.terminal(approve)
	screen.shows("step: 0", "[y/N]")
	screen.types("n")
	screen.shows("exit code 1")
	if got := s.run(s.clone, "git", "rev-parse", "HEAD", "origin/main"); got != head+"\n"+head {
		t.Errorf("what was not wanted was done:\n%s", got)
	}
	screen = s.terminal(approve)
	screen.shows("[y/N]")
	screen.types("y")
	screen.shows("exit code 0")
	if got := s.run(s.clone, "git", "log", "-1", "--format=%G? %GS", "origin/main"); got != "G ada@example.org" {
		t.Errorf("the commit's signature is %q", got)
	}
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})

	dir := t.TempDir()
	s.must(os.Symlink(os.Args[0], filepath.Join(dir, "kubectl-tranche")))
	root, err := clustertest.Root()
	s.must(err)
	for args, want := range map[string]string{
		"get web -n " + s.ns: "WaitingForApproval", "get --help": "kubectl tranche get", "version": "client:",
	} {
		kubectl := exec.Command(filepath.Join(root, "bin", "kubectl"), append([]string{"tranche"}, strings.Fields(args)...)...)
		kubectl.Env = append(s.environment(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := kubectl.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("kubectl tranche %s: %v: %s", args, err, out)
		}
	}
}
