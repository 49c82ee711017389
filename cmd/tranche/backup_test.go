package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// commandsOf returns the commands below a heading of a page of docs: the indented
// lines.
func commandsOf(t testing.TB, page, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), "\n## "+heading+"\n")
	below, _, _ = strings.Cut(below, "\n## ")
	var commands []string
	for line := range strings.Lines(below) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, strings.TrimSpace(command))
		}
	}
	if !found || len(commands) == 0 {
		t.Fatalf("docs/%s has no commands below %q", page, heading)
	}
	return commands
}

// shell runs a command of the documents, in a folder that has config/.
func (s *env) shell(dir, command string) string {
	s.Helper()
	root, err := clustertest.Root()
	s.must(err)
	cmd := exec.Command("bash", "-c", "set -o pipefail; "+command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.c.Kubeconfig, "PATH="+filepath.Join(root, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

// All of Tranche is deleted in the middle of a release, and restored by docs/backup.md.
// No pod moves by it, no gate opens, and a revision that was rolled back is not tried
// again. One Deployment is lost and restored, too. Another one has been released since the
// back-up.
func TestBackup(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	s, failed, lost, older := envIn(t, c, "web"), envIn(t, c, "web"), envIn(t, c, "web"), envIn(t, c, "web")
	stop := s.process()
	for _, s := range []*env{s, failed, lost, older} {
		s.follow("source", ".")
		s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	}
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(".", "web", 0)
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	failed.replace("release.yaml", "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 3\n    onFailure: Rollback\n")
	failed.replace("deployment.yaml", "web:v1", "web:broken")
	failed.push("web: a broken one")
	failed.waitFor("web", "RolledBack", 2, map[string]int32{"v1": 10})
	lost.replace("deployment.yaml", "web:v1", "web:v2")
	lost.push("web: v2")
	lost.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	older.releaseAll("v2")
	dir := t.TempDir()
	root, err := clustertest.Root()
	s.must(err)
	s.must(os.CopyFS(filepath.Join(dir, "config"), os.DirFS(filepath.Join(root, "config"))))
	for _, command := range commandsOf(t, "backup.md", "Back up") {
		s.shell(dir, command)
	}
	lost.shell(dir, lost.script("Back up Deployments"))
	older.releaseAll("v3")
	history := len(failed.release("web").Status.History)
	stop()
	moved := older.w.Writes("ReplicaSet", v1alpha1.ManagerRollout)
	s.deleteTranche(dir)
	lost.loseDeployment()
	before := map[*env]map[string]int32{s: s.sizes("web"), failed: failed.sizes("web"), lost: {"v1": 8, "v2": 2}, older: {"v3": 10}}

	for _, command := range commandsOf(t, "backup.md", "Restore") {
		s.shell(dir, command)
		if s.asked() != "" && !strings.Contains(command, "--replicas=2") {
			t.Errorf("the controller is to run after %s", command)
		}
	}
	lost.shell(dir, lost.script("Restore Deployments"))
	s.process()
	s.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	failed.waitFor("web", "RolledBack", 2, map[string]int32{"v1": 10})
	lost.waitFor("web", "WaitingForApproval", 0, before[lost])
	older.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v3": 10})
	if n := older.w.Writes("ReplicaSet", v1alpha1.ManagerRollout) - moved; n > 0 {
		t.Errorf("%d sizes were written of a Deployment whose release is complete\n%s", n, older.w.Timeline())
	}
	for _, s := range []*env{s, failed, lost, older} {
		clustertest.Wait(t, "the source to be looked at", func() error {
			if at := s.source().Status; at.ObservedCommit != s.run(s.clone, "git", "rev-parse", "HEAD") || s.ready() == nil || s.ready().Status != metav1.ConditionTrue {
				return fmt.Errorf("observed %s: %+v", at.ObservedCommit, at.Conditions)
			}
			return nil
		})
		if got := s.sizes("web"); fmt.Sprint(got) != fmt.Sprint(before[s]) {
			t.Errorf("sizes %v, before %v", got, before[s])
		}
	}
	if n := len(failed.release("web").Status.History); n != history {
		t.Errorf("%d releases in the history, before %d", n, history)
	}
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	s.untouched("web")
	s.releaseAll("v3")
	lost.approve(".", "web", 0)
	lost.waitFor("web", "WaitingForApproval", 1, map[string]int32{"v1": 5, "v2": 5})
	failed.replace("release.yaml", "progressDeadlineSeconds: 3", "progressDeadlineSeconds: 600") // three seconds may be too short for v2
	failed.replace("deployment.yaml", "web:broken", "web:v2")
	failed.push("web: v2")
	failed.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
}

// asked returns how many replicas the controller has been asked to have: nothing for none.
func (s *env) asked() string {
	s.Helper()
	var d appsv1.Deployment
	s.must(client.IgnoreNotFound(s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: "tranche-system", Name: "tranche-controller"}, &d)))
	if d.Spec.Replicas == nil || *d.Spec.Replicas == 0 && d.Generation == 1 { // it never had any
		return ""
	}
	return fmt.Sprint(*d.Spec.Replicas)
}

// releaseAll releases a tag through all its gates.
func (s *env) releaseAll(tag string) {
	s.Helper()
	file := s.run(s.clone, "git", "grep", "-h", "-o", "web:v[0-9]", "--", "deployment.yaml")
	s.replace("deployment.yaml", file, "web:"+tag)
	s.push("web: " + tag)
	s.waitFor("web", "WaitingForApproval", 0, nil)
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{tag: 10})
}

// script returns the commands below a heading of docs/backup.md, as one script for the
// namespace.
func (s *env) script(heading string) string {
	s.Helper()
	return "set -e\n" + strings.ReplaceAll(strings.Join(commandsOf(s, "backup.md", heading), "\n"), "-n shop", "-n "+s.ns)
}

// loseDeployment deletes the Deployment, and waits for the garbage collector.
func (s *env) loseDeployment() {
	s.Helper()
	s.must(s.c.Client.Delete(s.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "web"}}))
	clustertest.Wait(s, "the garbage collector", func() error {
		var sets appsv1.ReplicaSetList
		var records appsv1.ControllerRevisionList
		s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
		s.must(s.c.Client.List(s.Context(), &records, client.InNamespace(s.ns)))
		if len(sets.Items)+len(records.Items) > 0 {
			return fmt.Errorf("%d ReplicaSets and %d ControllerRevisions", len(sets.Items), len(records.Items))
		}
		return nil
	})
}

// sizes are those of a Deployment's ReplicaSets that are to have pods, by tag.
func (s *env) sizes(deployment string) map[string]int32 {
	s.Helper()
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
	sizes := map[string]int32{}
	for _, rs := range sets.Items {
		if owner := metav1.GetControllerOf(&rs); owner != nil && owner.Name == deployment && rs.Spec.Replicas != nil && *rs.Spec.Replicas > 0 {
			image := rs.Spec.Template.Spec.Containers[0].Image
			sizes[image[strings.LastIndex(image, ":")+1:]] += *rs.Spec.Replicas
		}
	}
	return sizes
}

// deleteTranche deletes all that config/default and the users of Tranche have made, as
// a disaster does: no finalizer is waited for.
func (s *env) deleteTranche(dir string) {
	s.Helper()
	for _, kind := range []string{"gitsources", "batchreleases"} {
		out := s.shell(dir, "kubectl get "+kind+` -A -o jsonpath='{range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}'`)
		for line := range strings.Lines(out) {
			at := strings.Fields(line)
			s.shell(dir, fmt.Sprintf(`kubectl patch %s %s -n %s --type=merge -p '{"metadata":{"finalizers":null}}' --as=%s`, kind, at[1], at[0], s.c.Controller.Impersonate.UserName))
		}
	}
	s.shell(dir, "kubectl delete -k config/policy --wait=false")
	s.shell(dir, "kubectl delete -k config/crd --timeout=4m")
	s.shell(dir, "kubectl delete -k config/rbac --wait=false")
	s.shell(dir, "kubectl delete namespace tranche-system --timeout=4m")
	clustertest.Wait(s, "the CRDs to be gone", func() error {
		if out, err := s.c.Kubectl(s, "get", "crd", "-o", "name"); err != nil || strings.Contains(out, "tranche.dev") {
			return errors.Join(err, errors.New(out))
		}
		return nil
	})
}
