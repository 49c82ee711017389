package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// bootstrap makes neither GitSource nor Secret before all that they need is there. Then
// it makes both, and the branch is applied. Run again, it changes only what flags say.
func TestBootstrap(t *testing.T) {
	s := controlledEnv(t, "web")
	url := gittest.Serve(t, filepath.Dir(s.bare), gittest.ServeOptions{Username: "ada", Password: "s3cret"}).URL + "/" + filepath.Base(s.bare)
	wrong, right := filepath.Join(t.TempDir(), "wrong"), filepath.Join(t.TempDir(), "right")
	s.must(os.WriteFile(wrong, []byte("guess\n"), 0o600))
	s.must(os.WriteFile(right, []byte("s3cret\n"), 0o600))
	name := "source --url " + url
	s.says(1, "bootstrap "+name, "a repository that is not public needs a Secret", "nothing was written")
	s.says(1, "bootstrap "+name+" --from-literal username=ada --from-file password="+wrong, "does not accept the credentials", "nothing was written")
	s.says(1, "bootstrap "+name+" --from-file password", "must be KEY=FILE")
	s.says(1, "bootstrap "+name+" --from-file password="+right+"x", "no such file")
	ok := name + " --from-literal username=ada --from-file password=" + right
	s.says(1, "bootstrap "+ok+" --path elsewhere", "elsewhere", "nothing was written")
	s.says(1, "bootstrap "+ok+" --branch other", "there is no branch other; there is main", "nothing was written")
	s.says(1, "bootstrap "+ok+" --as nobody", "you may not create gitsources", "--export")
	s.says(1, "bootstrap "+ok+" --service-account poor", "system:serviceaccount:"+s.ns+":poor may not: get services in "+s.ns, "bind a role", "nothing was written")
	s.says(1, "bootstrap "+ok+" --service-account deployer", "system:serviceaccount:"+s.ns+":deployer may not: get services in "+s.ns)
	s.says(1, "bootstrap "+ok+" --role view", "system:serviceaccount:"+s.ns+":deployer may not: create services in "+s.ns, "nothing was written")
	s.says(1, "bootstrap "+ok+" --role missing", `"missing" not found`, "nothing was written")
	s.says(0, "bootstrap "+ok+" --prune --dry-run", "you may write ServiceAccount "+s.ns+"/deployer with the ClusterRole admin, Secret", "system:serviceaccount:"+s.ns+":deployer may apply all of it")
	// One who may write GitSources gives away no more than he has.
	for _, role := range []string{"view", "tranche-edit"} {
		s.kubectl("create", "rolebinding", "poor-"+role, "--clusterrole="+role, "--user=poor", "-n", s.ns)
	}
	s.kubectl("create", "role", "poor", "--verb=create,patch", "--resource=serviceaccounts,secrets,rolebindings.rbac.authorization.k8s.io", "-n", s.ns)
	s.kubectl("create", "rolebinding", "poor", "--role=poor", "--user=poor", "-n", s.ns)
	allows(s, "poor", authorizationv1.ResourceAttributes{Verb: "create", Resource: "serviceaccounts"})
	s.says(1, "bootstrap "+ok+" --as poor", "making ServiceAccount "+s.ns+"/deployer with the ClusterRole admin", "attempting to grant RBAC permissions not currently held", "nothing was written")
	if out, err := s.c.KubectlWith(t, strings.NewReplacer("team-a", s.ns, "deployer", "narrow").Replace(fenced(t, "../../docs/tenancy.md")[0]), "apply", "-f", "-"); err != nil {
		t.Fatalf("docs/tenancy.md: %v: %s", err, out)
	}
	allows(s, "system:serviceaccount:"+s.ns+":narrow", authorizationv1.ResourceAttributes{Verb: "get", Resource: "services"})
	s.says(0, "bootstrap "+ok+" --service-account narrow --prune --dry-run", "system:serviceaccount:"+s.ns+":narrow may apply all of it")
	s.says(1, "bootstrap "+ok+" --service-account narrow --target-namespace default --dry-run", "system:serviceaccount:"+s.ns+":narrow may not: get services in default")
	s.says(0, "bootstrap "+ok+" --dry-run", "nothing is missing, and nothing was written")
	s.says(1, "bootstrap "+ok, "give --yes")
	s.says(1, "bootstrap "+name+" --secret missing --yes", `"missing" not found`, "--from-file")
	for _, o := range []client.Object{&v1alpha1.GitSource{}, &corev1.Secret{}, &corev1.ServiceAccount{}, &rbacv1.RoleBinding{}} {
		for _, name := range []string{"source", "source-git", "deployer"} {
			if err := s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, o); !apierrors.IsNotFound(err) {
				t.Errorf("%T %s: %v", o, name, err)
			}
		}
	}
	clitest.Golden(t, "testdata/bootstrap/export.yaml", strings.ReplaceAll(strings.ReplaceAll(s.says(0, "bootstrap "+ok+" --prune --export"), s.ns, "NAMESPACE"), url, "URL"))
	out := s.says(0, "bootstrap "+ok+" --prune --yes --wait 4m")
	if strings.Contains(out, "s3cret") {
		t.Errorf("the password is told:\n%s", out)
	}
	clitest.Golden(t, "testdata/bootstrap/done.txt", strings.ReplaceAll(s.masked(out), url, "URL"))
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	before := s.source()
	s.says(0, "bootstrap "+name+" --yes --wait 4m", "Applied")
	if now := s.source(); now.Generation != before.Generation || now.Spec.SecretRef == nil || !now.Spec.Prune {
		t.Errorf("a second run has changed the source: %+v", now.Spec)
	}
	s.says(0, "bootstrap "+name+" --yes --wait 4m --interval 5m", "Applied")
	if now := s.source(); now.Spec.Interval.Minutes() != 5 || !now.Spec.Prune {
		t.Errorf("a third run has made of the source: %+v", now.Spec)
	}
	s.says(1, "bootstrap "+name+" --from-file password="+wrong+" --yes", "does not accept the credentials", "nothing was written")
	var secret corev1.Secret
	s.must(s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "source-git"}, &secret))
	if string(secret.Data["username"]) != "ada" || string(secret.Data["password"]) != "s3cret" {
		t.Errorf("the Secret has %d entries, or others than given", len(secret.Data))
	}
}

// The key of an SSH host that the user has not confirmed is shown, and only taken
// when the user agrees.
func TestBootstrapSSH(t *testing.T) {
	s := controlledEnv(t, "web")
	server := gittest.ServeSSH(t)
	key := server.Key("client", "ed25519", "")
	server.Let(key)
	command := "bootstrap source --wait 0s --url " + server.URL(s.bare) + " --from-file identity=" + key
	out := s.says(1, command+" --yes", "known_hosts is missing", "ssh-keyscan", "nothing was written")
	var fingerprint string
	for _, kind := range gittest.KeyTypes {
		if print := server.Fingerprint(kind); strings.Contains(out, print) {
			fingerprint = print
		}
	}
	if fingerprint == "" {
		t.Fatalf("none of the host's fingerprints is shown:\n%s", out)
	}
	screen := s.terminal(command + " --yes")
	screen.shows(fingerprint, "Is that what its owner publishes?")
	screen.types("n")
	screen.shows("known_hosts is missing", "exit code 1")
	screen = s.terminal(command)
	screen.shows("Is that what its owner publishes?")
	screen.types("y")
	screen.shows("main is at", "Create or change ServiceAccount")
	screen.types("y")
	screen.shows("GitSource "+s.ns+"/source is there", "exit code 0")
	var secret corev1.Secret
	s.must(s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "source-git"}, &secret))
	file := filepath.Join(t.TempDir(), "known_hosts")
	s.must(os.WriteFile(file, secret.Data["known_hosts"], 0o600))
	if out, err := exec.Command("ssh-keygen", "-l", "-f", file).CombinedOutput(); err != nil || !strings.Contains(string(out), fingerprint) {
		t.Errorf("known_hosts is %s: %v: %s", secret.Data["known_hosts"], err, out)
	}
}
