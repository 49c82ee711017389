package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Called kubectl-tranche and on the PATH it is a plugin of kubectl, and calls
// itself by that name.
func TestPlugin(t *testing.T) {
	s := envOf(t, "web")
	s.withController()
	root, err := clustertest.Root()
	s.must(err)
	dir := t.TempDir()
	s.must(os.Symlink(os.Args[0], filepath.Join(dir, "kubectl-tranche")))
	kubectl := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(root, "bin", "kubectl"), append([]string{"tranche"}, args...)...)
		cmd.Env = append(s.environment(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl tranche %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	if got, want := kubectl("get", "-n", s.ns), "No BatchReleases in namespace "+s.ns+".\n"; got != want {
		t.Errorf("kubectl tranche get says %q, want %q", got, want)
	}
	s.has(kubectl("status", "--help"), "Usage:\n  kubectl tranche status NAME [flags]\n")
	s.has(kubectl("--help"), "Usage:\n  kubectl tranche [command]\n", `Use "kubectl tranche [command] --help"`)
	s.has(kubectl("--version"), "kubectl tranche version ")

	var out string
	clustertest.Wait(t, "an answer of the cluster", func() error { // for which version waits five seconds
		if out = kubectl("version"); strings.Contains(out, "unknown: ") {
			return errors.New(out)
		}
		return nil
	})
	client, rest, _ := strings.Cut(out, "\n")
	if client != "client:     "+cli.VersionString() {
		t.Errorf("%q", client)
	}
	clitest.Golden(t, filepath.Join("testdata", "version.txt"), strings.ReplaceAll(rest, s.ns, "tranche-system"))
	if got := kubectl("version", "--client"); got != client+"\n" {
		t.Errorf("with --client %q", got)
	}
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	s.has(kubectl("version", "--context", "none"), "controller: unknown: ")
}

// Names are completed with what they wait for or how they ended: releases, sources,
// namespaces, revisions, steps and commits.
func TestCompletion(t *testing.T) {
	s := newEnv(t, "web", ".")
	s.waitFor("web", "ReleaseCompleted", 2, nil)
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, nil)
	s.approve(".", "web", 2)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	first := s.release("web").Status.History[0].Revision
	s.replace("deployment.yaml", "web:v2", "web:v3")
	began := s.push("web: v3")
	s.waitFor("web", "WaitingForApproval", 0, nil)
	for command, want := range map[string]string{
		"__complete status -n " + s.ns + " ":       "web\tWaitingForApproval\n",
		"__complete approve -n " + s.ns + " w":     "web\tWaitingForApproval\n",
		"__complete status -n " + s.ns + " web ":   ":4\n",
		"__complete get -n nowhere ":               ":4\n",
		"__complete rollback -n " + s.ns + " web ": ":4\n",

		"__complete get -n " + s.ns:                                 s.ns + "\n",
		"__complete history -n " + s.ns + " --source s":             "source\tApplied\n:4\n",
		"__complete sync -n " + s.ns + " ":                          "source\tApplied\n:4\n",
		"__complete get sources -n " + s.ns + " ":                   "source\tApplied\n:4\n",
		"__complete rollback web -n " + s.ns + " --to " + first[:3]: first + "\tCompleted ",
		"__complete approve web -n " + s.ns + " --step ":            "0\t20%\n1\t50%\n2\t100%\n:4\n",
		"__complete approve -n " + s.ns + " --commit ":              began[:7] + "\tweb\n:4\n",
		"__complete reject -n " + s.ns + " --reason slow --with ":   "web\tWaitingForApproval\n",
	} {
		args := strings.Split(command, " ")
		clustertest.Wait(t, "completion", func() error { // which gives up soon on a busy machine
			cmd := exec.Command(os.Args[0], args...)
			cmd.Env = s.environment()
			out, err := cmd.Output()
			if err == nil && !strings.HasPrefix(string(out), want) {
				err = fmt.Errorf("%s: %q, want %q", command, out, want)
			}
			return err
		})
	}
}

// withController lets a Deployment stand that looks like the controller's, and
// waits until it is the only one.
func (s *env) withController() {
	s.Helper()
	labels := map[string]string{"app.kubernetes.io/name": "tranche"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "tranche-controller", Namespace: s.ns, Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "controller", Image: "registry.example.org/tranche:v1.2.3"}}},
		}},
	}
	s.must(s.c.Client.Create(s.Context(), d))
	s.Cleanup(func() {
		if err := s.c.Client.Delete(context.Background(), d); err != nil {
			s.Error(err)
		}
	})
	clustertest.Wait(s, "the controller's Deployment alone", func() error {
		var list appsv1.DeploymentList
		s.must(s.c.Client.List(s.Context(), &list, client.MatchingLabels(labels)))
		if n := len(list.Items); n != 1 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// has fails unless the output has all of the texts.
func (s *env) has(out string, texts ...string) {
	s.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			s.Errorf("without %q:\n%s", text, out)
		}
	}
}
