package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// environment is what the program is run with: a cluster, a person's git.
func (s *env) environment() []string {
	return append(os.Environ(), asTranche+"=1", "KUBECONFIG="+s.c.Kubeconfig, "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org")
}

// tranche runs the program in the clone, and returns what it prints and its
// exit code.
func (s *env) tranche(args ...string) (string, int) {
	s.Helper()
	cmd := exec.Command(os.Args[0], append(args, "-n", s.ns)...)
	cmd.Dir, cmd.Env = s.clone, s.environment()
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), exit.ExitCode()
	}
	s.must(err)
	return string(out), 0
}

// says runs the program, and fails unless it ends with the code and prints all
// of the texts.
func (s *env) says(code int, command string, texts ...string) string {
	s.Helper()
	var out string
	var got int
	clustertest.Wait(s, "a status of the present spec", func() error {
		if out, got = s.tranche(strings.Fields(command)...); strings.Contains(out, "try again in a moment") {
			return fmt.Errorf("tranche %s: %s", command, out)
		}
		return nil
	})
	if got != code {
		s.Fatalf("tranche %s: exit code %d, want %d:\n%s", command, got, code, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			s.Errorf("tranche %s does not say %q:\n%s", command, text, out)
		}
	}
	return out
}

// A release is steered from start to rollback with git and tranche alone, and
// watched in a terminal meanwhile.
func TestSteered(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.says(1, "approve web --yes", "no release under way")
	s.says(0, "get web", "Completed", "10/10")

	s.replace("deployment.yaml", "web:v1", "web:v2")
	began := s.push("web: v2")
	screen := s.terminal("status web --watch --commit " + began)
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	screen.shows("WaitingForApproval", "◼ step 0", "2/2", "waits for an approval", "web:v1 → registry.example.org/web:v2", "8/8 available", "tranche approve web")
	s.says(0, "status deployment/web", "git push origin HEAD:main", "approvals/web.yaml")

	s.says(1, "approve web --step 3 --yes", "the plan has the steps 0 to 2")
	s.says(1, "approve web", "give --yes")
	s.says(0, "approve web --yes", "+  step: 0", "git push origin HEAD:main")
	room := s.noRoom()
	s.run(s.clone, "git", "push", "--quiet", "origin", "main")
	screen.shows("Upgrading", "✔ step 0", "▶ step 1", "○ step 2")
	room()
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	screen.shows("✔ step 0", "approved by Ada <ada@example.org>", "◼ step 1", "5/5")

	s.says(0, "pause web --yes --push", "+  paused: true", "Pushed")
	s.waitFor("web", "ReleasePaused", 1, nil)
	screen.shows("ReleasePaused", "tranche resume web")
	s.says(0, "pause web --yes", "nothing to commit")
	s.says(0, "resume web --yes --push", "+  paused: false")
	s.waitFor("web", "WaitingForApproval", 1, nil)

	s.says(0, "approve web --all --yes --push --message Everyone", "-  step: 0", "+  step: 2")
	if got := s.run(s.clone, "git", "log", "-1", "--format=%B"); !strings.HasPrefix(got, "Everyone\n\nTranche-Release: "+s.ns+"/web\nTranche-Revision: ") || !strings.HasSuffix(got, "Tranche-Step: 2") {
		t.Errorf("the commit says\n%s", got)
	}
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	screen.shows("Completed", "10/10 available", "exit code 0")
	s.says(0, "history web", "Completed", "step 0: Ada <ada@example.org>", began[:7])
	s.says(0, "status web --watch --timeout 4m", "ReleaseCompleted")

	s.replace("deployment.yaml", "web:v2", "web:v3")
	s.push("web: v3")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v2": 8, "v3": 2})
	s.says(3, "status web --watch --timeout 1s", "is not over after 1s")
	screen = s.terminal("status web --watch")
	screen.shows("WaitingForApproval")
	stable := s.release("web").Status.StableRevision
	room = s.noRoom()
	s.says(0, "rollback web --yes --push", "-        image: registry.example.org/web:v3", "+        image: registry.example.org/web:v2")
	screen.shows("RollingBack", "◀ rolling back to "+stable, "✔ step 0", "▶ step 1  100%  10 pods", "8/10 available")
	room()
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	screen.shows("exit code 2")
	s.untouched("web")
	s.says(0, "rollback web --yes --push", "has taken back the last release of "+s.ns+"/web already")
	if got := s.run(s.clone, "git", "log", "-1", "--format=%s"); got != `Revert "web: v3"` {
		t.Errorf("the commit's subject is %s", got)
	}

	first := s.release("web").Status.History
	s.says(0, "rollback web --yes --to "+first[len(first)-1].Revision, "already; there is nothing to roll back")
	s.says(1, "rollback web --yes --to nonsense", "tranche history web")
	if got := s.run(s.clone, "git", "status", "--porcelain"); got != "" {
		t.Errorf("the clone is not clean:\n%s", got)
	}
}

// noRoom lets no pod into the namespace until what it returns is called, so
// that what passes by stays on the screen.
func (s *env) noRoom() func() {
	s.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "no-room", Namespace: s.ns},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}},
	}
	s.must(s.c.Client.Create(s.Context(), quota))
	clustertest.Wait(s, "the quota to count", func() error {
		s.must(s.c.Client.Get(s.Context(), client.ObjectKeyFromObject(quota), quota))
		if len(quota.Status.Hard) == 0 {
			return errors.New("no status")
		}
		return nil
	})
	return func() {
		s.Helper()
		s.must(s.c.Client.Delete(s.Context(), quota))
	}
}

// terminal runs the program in a real terminal, in the clone.
func (s *env) terminal(command string) *watched {
	s.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		if os.Getenv("CI") != "" {
			s.Fatal("tmux is not installed")
		}
		s.Skip("tmux is not installed")
	}
	c := &watched{env: s, socket: filepath.Join(s.TempDir(), "tmux")}
	script := filepath.Join(s.TempDir(), "run.sh")
	s.must(os.WriteFile(script, fmt.Appendf(nil, "cd %s\n%s %s -n %s\necho exit code $?\nexec cat\n", s.clone, os.Args[0], command, s.ns), 0o600))
	cmd := exec.Command("tmux", "-S", c.socket, "-f", os.DevNull, "new-session", "-d", "-x", "140", "-y", "50", "sh", script)
	cmd.Env = append(s.environment(), "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("tmux: %v: %s", err, out)
	}
	s.Cleanup(func() {
		if out, err := exec.Command("tmux", "-S", c.socket, "kill-server").CombinedOutput(); err != nil {
			s.Errorf("tmux kill-server: %v: %s", err, out)
		}
	})
	return c
}

// watched is what is seen in a terminal.
type watched struct {
	*env
	socket string
}

// types types a line.
func (c *watched) types(line string) {
	c.Helper()
	if out, err := exec.Command("tmux", "-S", c.socket, "send-keys", line, "Enter").CombinedOutput(); err != nil {
		c.Fatalf("tmux send-keys: %v: %s", err, out)
	}
}

// shows waits until all of the texts are on the screen at once, and fails if
// the picture was drawn below itself.
func (c *watched) shows(texts ...string) {
	c.Helper()
	clustertest.Wait(c, fmt.Sprintf("the screen to show %q", texts), func() error {
		out, err := exec.Command("tmux", "-u", "-S", c.socket, "capture-pane", "-p").CombinedOutput()
		if err != nil {
			return fmt.Errorf("tmux: %w: %s", err, out)
		}
		if n := strings.Count(string(out), "BatchRelease web"); n > 1 {
			return fmt.Errorf("the picture is there %d times:\n%s", n, out)
		}
		for _, text := range texts {
			if !strings.Contains(string(out), text) {
				return fmt.Errorf("without %q:\n%s", text, out)
			}
		}
		return nil
	})
}

// If only signers approve, the command replaces an approval that does not count. It names
// the whole commit, and signs nothing but the approval.
func TestApproveSigned(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.signers()
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	br := s.release("web")
	s.says(0, "status web", "tranche approve web -n "+s.ns+" --sign --push", "git commit -S -m")
	s.says(1, "approve web --direct --yes", "only signed approvals count")

	s.says(1, "approve web --yes --push", "takes only signed approvals; give --sign as well")
	s.says(0, "approve web --yes", "To let it count: git push")
	s.run(s.clone, "git", "push", "--quiet", "origin", "main")
	unsigned := s.run(s.clone, "git", "rev-parse", "HEAD")
	s.ignored(unsigned, "it is not signed")
	s.says(0, "approve web --yes --sign --push", "approvals/web.yaml will be, as a whole", "commit: \""+br.Spec.Commit+"\"", "Pushed to main")
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})

	planted := strings.Replace(s.run(s.clone, "git", "show", "HEAD:approvals/web.yaml"), "step: 0", "step: 1", 1) + "\n"
	other := "---\napiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: api, namespace: " + s.ns + "}\nspec: {revision: abc, commit: " + br.Spec.Commit + ", step: 3}\n"
	s.write("approvals/web.yaml", planted+other)
	s.push("another approval in the same file")
	before := s.run(s.clone, "git", "rev-parse", "HEAD")
	s.says(1, "approve web --yes --sign --push", "approvals/web.yaml has other documents")
	if now := s.run(s.clone, "git", "rev-parse", "HEAD"); now != before {
		t.Errorf("%s was committed", now)
	}
	s.write("approvals/web.yaml", planted)
	s.push("alone again")
	s.ignored(s.run(s.clone, "git", "rev-parse", "HEAD"), "it is not signed")
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	s.says(0, "approve web --yes --sign --push", "Pushed to main")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
}

// A user without a listed key has pushed, and spec.verify refuses the commit. A signed
// approval on top would apply it. The command shows it and commits only with the flag.
func TestApproveOnTopOfUnverified(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.signers()
	s.run(s.clone, "git", "config", "commit.gpgSign", "true")
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	source := s.source()
	patch := client.MergeFrom(source.DeepCopy())
	source.Spec.Verify = &v1alpha1.CommitVerification{Verification: v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "approvers"}}}
	s.must(s.c.Client.Patch(t.Context(), source, patch))
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})

	s.run(s.clone, "git", "config", "commit.gpgSign", "false")
	s.write("notes.txt", "of an outsider")
	outsider := s.push("bring more")
	clustertest.Wait(t, "the commit to be refused", func() error {
		if c := s.ready(); c == nil || c.Reason != v1alpha1.ReasonCommitNotVerified || s.source().Status.ObservedCommit != outsider {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	s.says(1, "approve web --yes --sign --push", "The signature would cover", ", 1 in all", outsider[:7]+" Ada <ada@example.org>: bring more", "--cover-unverified")
	if got := s.run(s.bare, "git", "rev-parse", "main"); got != outsider || s.run(s.clone, "git", "rev-parse", "main") != outsider {
		t.Errorf("%s was pushed on top of %s", got, outsider)
	}
	s.says(0, "approve web --yes --sign --push --cover-unverified", outsider[:7]+" Ada <ada@example.org>: bring more", "Pushed to main")
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
}

// ignored waits until a commit is seen, and an approval of it is ignored.
func (s *env) ignored(commit, because string) {
	s.Helper()
	clustertest.Wait(s, "the approval to be ignored", func() error {
		gs := s.source()
		if c := meta.FindStatusCondition(gs.Status.Conditions, "InSync"); gs.Status.ObservedCommit != commit || c == nil || c.Reason != "ApprovalIgnored" || !strings.Contains(c.Message, because) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// signers lets only approvals count that the clone's key has signed.
func (s *env) signers() {
	s.Helper()
	key := gittest.NewSSHKey(s, "ed25519", "")
	for _, line := range key.Config {
		name, value, _ := strings.Cut(line, "=")
		s.run(s.clone, "git", "config", name, value)
	}
	s.must(s.c.Client.Create(s.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "approvers"}, Data: map[string][]byte{"allowed_signers": []byte("ada@example.org " + key.Public)},
	}))
	source := s.source()
	patch := client.MergeFrom(source.DeepCopy())
	source.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: &v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "approvers"}}}
	s.must(s.c.Client.Patch(s.Context(), source, patch))
	clustertest.Wait(s, "the plan to be on record", func() error {
		if n := len(s.source().Status.Plans); n != 1 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// If only signers approve, a change of the plan waits. diff says so before it is merged,
// status while it waits, and approve --plan ends it.
func TestApprovePlan(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.says(1, "approve web --plan --yes", "has no spec.approvals.signers")
	s.signers()
	s.says(1, "approve web --plan --yes", "nothing to approve")

	s.replace("release.yaml", "20%", "40%")
	s.run(s.clone, "git", "commit", "--quiet", "-a", "-m", "web: 40 % at first")
	const text = `{"deployment":"NS/web","minReadySeconds":0,"onFailure":"Hold","progressDeadlineSeconds":600,"rollback":[1,"100%"],` +
		`"steps":[{"gate":"approval","replicas":"40%"},{"gate":"approval","replicas":"50%"},{"replicas":"100%"}],"strategy":{"maxSurge":"25%","maxUnavailable":"25%"}}`
	terms := strings.ReplaceAll(text, "NS", s.ns)
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte(terms)))
	s.says(0, "diff", "Plan of Deployment "+s.ns+"/web", "changes: steps.", "Digest: "+digest, "tranche approve web -n "+s.ns+" --plan --sign", "Nothing would change")
	s.run(s.clone, "git", "push", "--quiet", "origin", "main")
	clustertest.Wait(t, "the change to wait", func() error {
		if c := meta.FindStatusCondition(s.source().Status.Conditions, "InSync"); c == nil || c.Reason != "PlanNotApproved" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	s.says(0, "status web", "PlanNotApproved: Deployment "+s.ns+"/web", digest)
	if r := s.release("web").Spec.Strategy.Steps[0].Replicas; r.String() != "20%" {
		t.Errorf("step 0 is %s", r.String())
	}

	// Other documents in the file for the plan, and in that of releases, are not signed
	// with it.
	s.write("approvals/plans/web.yaml", "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: other}\nspec: {plan: "+strings.Repeat("0", 64)+"}\n")
	release := fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: %s}\nspec: {revision: abc, commit: 0123456, step: 0}\n", s.ns)
	s.write("approvals/web.yaml", release)
	s.push("two files")
	s.says(0, "approve web --plan --yes --sign --push", "now: ", "then: "+terms, "It changes: steps", "+  plan: \""+digest+"\"", "Pushed to main")
	content := s.run(s.clone, "git", "show", "origin/main:approvals/plans/web.yaml")
	if strings.Contains(content, "other") || strings.Count(content, "kind:") != 1 {
		t.Errorf("the file has\n%s", content)
	}
	if got := s.run(s.clone, "git", "show", "--name-only", "--format=", "origin/main"); got != "approvals/plans/web.yaml" {
		t.Errorf("the commit changes %s", got)
	}
	clustertest.Wait(t, "the plan to count", func() error {
		if r := s.release("web").Spec.Strategy.Steps[0].Replicas; r.String() != "40%" {
			return fmt.Errorf("step 0 is %s: %+v", r.String(), s.source().Status.Conditions)
		}
		return nil
	})
}
