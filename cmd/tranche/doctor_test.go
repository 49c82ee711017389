//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// doctor runs tranche doctor, and fails unless it ends with the code and prints all of the
// texts.
func (u *upgrades) doctor(code int, kubeconfig, flags string, texts ...string) string {
	u.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"doctor"}, strings.Fields(flags)...)...)
	cmd.Env = append(os.Environ(), asTranche+"=1", "NO_COLOR=1", "KUBECONFIG="+kubeconfig)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		u.Errorf("tranche doctor %s: exit code %d, want %d: %v:\n%s", flags, got, code, err, out)
	}
	u.has(string(out), texts...)
	return string(out)
}

// examine runs tranche doctor on an installation that works, and then with one fault after
// another. The API server has defaulted what was installed: only this test knows whether
// that counts as a difference.
func (u *upgrades) examine(v trancheVersion) {
	u.Helper()
	admin := u.c.Kubeconfig
	clustertest.Wait(u, "the pods of the controller", func() error {
		_, err := u.c.Kubectl(u, "rollout", "status", "deployment/tranche-controller", "-n", "tranche-system", "--timeout=5s")
		return err
	})
	u.doctor(0, admin, "", "ok       policy      tranche-held-deployments: current, and bound with Deny", " holds it, renewed ")

	// A user who may read the objects of one namespace: all else is Unknown, and nothing of it OK.
	u.kubectl("create", "serviceaccount", "reader", "-n", u.ns)
	u.kubectl("create", "rolebinding", "reader", "-n", u.ns, "--clusterrole=view", "--serviceaccount="+u.ns+":reader")
	reader := u.loggedIn(u.kubectl("create", "token", "reader", "-n", u.ns))
	out := u.doctor(1, reader, "-n "+u.ns, "unknown  crd", "unknown  policy", "unknown  leader", "is forbidden", "checks could not be made")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "problem") || strings.HasPrefix(line, "ok       policy") || strings.HasPrefix(line, "ok       crd") {
			u.Errorf("a reader is shown %s", line)
		}
	}

	for _, fault := range []struct{ command, flags, text string }{
		{"", "--controller-account=root", "run the controller as that account"},
		{"delete validatingadmissionpolicybinding tranche-held-replicasets", "", "its binding is not there, so nothing is refused"},
		{"delete validatingadmissionpolicy tranche-replicaset-templates", "", "tranche-replicaset-templates: it is not there"},
		{`patch validatingadmissionpolicybinding tranche-batchreleases --type=merge -p ` +
			`{"spec":{"validationActions":["Warn"]}}`, "", "does not deny"},
		{`patch validatingadmissionpolicy tranche-batchrelease-status --type=merge -p ` +
			`{"spec":{"failurePolicy":"Ignore"}}`, "", "spec.failurePolicy"},
		{`patch validatingadmissionpolicybinding tranche-batchreleases-of-git --type=merge -p ` +
			`{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"a":"b"}}}}}`, "", "the binding's spec.matchResources"},
		{"scale deployment tranche-controller -n tranche-system --replicas=0", "", "it has 0 replicas"},
	} {
		if fault.command != "" {
			u.kubectl(strings.Fields(fault.command)...)
		}
		u.doctor(2, admin, fault.flags, fault.text, "problem")
	}
	before := u.holder()
	u.without("gitsources", "spec/properties/dependsOn")
	u.doctor(2, admin, "", "gitsources.tranche.dev: it is older than this program, and lacks spec.dependsOn")
	u.kubectl("delete", "--ignore-not-found", "-k", filepath.Join(v.config, "policy")) // no apply takes away what kubectl patch has set
	u.kubectl("apply", "--server-side", "--force-conflicts", "-k", filepath.Join(v.config, "default"))
	clustertest.Wait(u, "the pods of the controller", func() error {
		_, err := u.c.Kubectl(u, "rollout", "status", "deployment/tranche-controller", "-n", "tranche-system", "--timeout=5s")
		return err
	})
	anotherLeads(u, before) // the controller has ended, to read all objects again
	u.doctor(0, admin, "")
	u.stop(syscall.SIGTERM)
	clustertest.Wait(u, "the controllers to have had the time of a lease", func() error {
		var pods corev1.PodList
		u.must(u.c.Client.List(u.Context(), &pods, client.InNamespace("tranche-system")))
		for _, pod := range pods.Items {
			for _, c := range pod.Status.ContainerStatuses {
				if c.State.Running == nil || time.Since(c.State.Running.StartedAt.Time) < 20*time.Second {
					return fmt.Errorf("%s has just started", pod.Name)
				}
			}
		}
		return nil
	})
	u.doctor(2, admin, "", "no controller holds it", "1 problem found")
}

// loggedIn writes a kubeconfig that logs in with a token.
func (u *upgrades) loggedIn(token string) string {
	u.Helper()
	text := u.kubectl("config", "view", "--raw", "-o", "json", "--minify")
	file := filepath.Join(u.TempDir(), "kubeconfig")
	u.must(os.WriteFile(file, []byte(text), 0o600))
	u.kubectl("--kubeconfig="+file, "config", "set-credentials", "token", "--token="+token)
	u.kubectl("--kubeconfig="+file, "config", "set-context", "--current", "--user=token")
	return file
}
