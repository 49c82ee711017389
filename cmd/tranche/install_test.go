package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// comeLater are metrics that are exposed with the first error, or the first measurement.
var comeLater = regexp.MustCompile(`^tranche_(git_exchange_errors_total|analysis_measurement)`)

// config/tenants installs. Its rights, without the applier's binding, are enough for a
// controller that impersonates a tenant. Those of docs/tenancy.md are enough for the
// tenant, whose own rights bound what is applied.
func TestInstallWithLeastPrivilege(t *testing.T) {
	s := envOf(t, "web")
	s.c.Guard(t, s.ns)
	kubectl := s.kubectl
	installed := s.install("tenants")
	if out := kubectl("get", "clusterrolebindings", "-o", "name"); strings.Contains(out, "tranche-applier") {
		t.Errorf("config/tenants makes the controller cluster-admin: %s", out)
	}
	for _, want := range []string{"--leader-elect", "--default-service-account=default", "--no-cross-namespace-refs=true", "--no-remote-bases=true", "--max-objects=1000"} {
		if !slices.Contains(installed, want) {
			t.Errorf("config/tenants starts the controller with %q, without %s", installed, want)
		}
	}
	apply := func(manifest string, flags ...string) {
		t.Helper()
		manifest = strings.NewReplacer("https://git.example.org/team-a/web.git", "file://"+s.bare, "name: web", "name: source", "team-a", s.ns).Replace(manifest)
		if out, err := s.c.KubectlWith(t, manifest, append([]string{"apply", "--server-side", "--validate=strict", "-f", "-"}, flags...)...); err != nil {
			t.Fatalf("docs/tenancy.md: %v: %s\n%s", err, out, manifest)
		}
	}
	examples := fenced(t, "../../docs/tenancy.md")
	account, source, sharded := examples[0], examples[1], examples[2]
	apply(account)

	t.Setenv("KUBECONFIG", tokenKubeconfig(t, s.c, kubectl("create", "token", "tranche-controller", "-n", "tranche-system")))
	probes, metrics := gittest.FreeAddress(t), gittest.FreeAddress(t)
	s.control(append(bounding(installed), "--leader-elect", "--leader-election-namespace=tranche-system", "--health-probe-bind-address="+probes, "--metrics-bind-address="+metrics)...)
	apply(source)
	apply(sharded, "--dry-run=server")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})

	for _, path := range []string{"/healthz", "/readyz"} {
		if code, got := get(t, "http://"+probes+path, ""); code != http.StatusOK || got != "ok" {
			t.Errorf("%s says %d %s", path, code, got)
		}
	}

	// The leader's Role lets it write when each source was synced.
	clustertest.Wait(t, "the times of syncs", func() error {
		out, err := s.c.Kubectl(t, "get", "configmap", "tranche-controller-syncs", "-n", "tranche-system", "-o", "jsonpath={.data.syncs}")
		if err != nil || !strings.Contains(out, s.ns+"/source ") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})

	// Metrics are for whom the ClusterRole tranche-metrics-reader is given to.
	url := "https://" + metrics + "/metrics"
	kubectl("create", "serviceaccount", "prometheus", "-n", s.ns)
	reader := kubectl("create", "token", "prometheus", "-n", s.ns)
	if code, _ := get(t, url, ""); code != http.StatusUnauthorized {
		t.Errorf("metrics, without a token: %d", code)
	}
	if code, _ := get(t, url, reader); code != http.StatusForbidden {
		t.Errorf("metrics, without the right: %d", code)
	}
	kubectl("create", "clusterrolebinding", s.ns+"-metrics", "--clusterrole=tranche-metrics-reader", "--serviceaccount="+s.ns+":prometheus")
	t.Cleanup(func() { kubectl("delete", "clusterrolebinding", s.ns+"-metrics") })
	other := kubectl("create", "token", "prometheus", "-n", s.ns) // the refusal of a token is kept for a while
	var exposed string
	clustertest.Wait(t, "the metrics", func() error {
		code, text := get(t, url, other)
		if exposed = text; code != http.StatusOK {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	if want := `controller_runtime_reconcile_total{controller="batchrelease"`; !strings.Contains(exposed, want) {
		t.Errorf("%s does not say %s: %s", url, want, exposed)
	}
	// So are they for the token that a PodMonitor names, from the commands of docs/metrics.md.
	documented := indentedBlock(t, "../../docs/metrics.md", "kubectl create serviceaccount tranche-metrics")
	sh := exec.CommandContext(t.Context(), "sh", "-e", "-c", documented)
	sh.Env = append(os.Environ(), "PATH="+absolutePath(t, "../../bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+s.c.Kubeconfig)
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("docs/metrics.md: %v: %s\n%s", err, out, documented)
	}
	t.Cleanup(func() { kubectl("delete", "clusterrolebinding", "tranche-metrics") })
	secret, key := podMonitorToken(t)
	clustertest.Wait(t, "the metrics with the token of the PodMonitor", func() error {
		encoded := kubectl("get", "secret", secret, "-n", "tranche-system", "-o", "jsonpath={.data['"+key+"']}")
		token, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return fmt.Errorf("decoding %s of Secret %s: %w", key, secret, err)
		}
		if len(token) == 0 {
			return fmt.Errorf("Secret %s has no %s yet", secret, key)
		}
		if code, text := get(t, url, string(token)); code != http.StatusOK || !strings.Contains(text, "\ntranche_") {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	for _, name := range documentedMetrics(t) {
		if !strings.Contains(exposed, "\n"+name) && !comeLater.MatchString(name) {
			t.Errorf("docs/metrics.md has %s, and /metrics has not", name)
		}
	}

	// A tenant gains nothing: what its account may not write is not written.
	s.write("role.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "+s.ns+"-everything}\nrules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]\n")
	s.push("more rights for me")
	clustertest.Wait(t, "the commit to be refused", func() error {
		if c := s.ready(); c == nil || c.Status != metav1.ConditionFalse || c.Reason != "Forbidden" || !strings.Contains(c.Message, "role.yaml") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if out, err := s.c.Kubectl(t, "get", "clusterrole", s.ns+"-everything"); err == nil {
		t.Errorf("the role was made: %s", out)
	}
}

// kubectl runs a command that succeeds.
func (s *env) kubectl(args ...string) string {
	s.Helper()
	out, err := s.c.Kubectl(s, args...)
	if err != nil {
		s.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// install installs a folder of config in place of what the cluster has, and returns the
// arguments of the controller. The test itself is the controller.
func (s *env) install(folder string) []string {
	s.Helper()
	s.kubectl("delete", "clusterrolebinding", "tranche-applier")
	s.Cleanup(func() { // as it was, for the tests to come
		s.kubectl("apply", "--server-side", "-f", "../../config/cluster-admin/applier_role.yaml")
		s.kubectl("delete", "deployment/tranche-controller", "-n", "tranche-system")
	})
	s.kubectl("apply", "--server-side", "-k", "../../config/"+folder)
	var args []string
	s.must(json.Unmarshal([]byte(s.kubectl("get", "deployment/tranche-controller", "-n", "tranche-system", "-o", "jsonpath={.spec.template.spec.containers[0].args}")), &args))
	s.kubectl("scale", "deployment/tranche-controller", "-n", "tranche-system", "--replicas=0")
	return args
}

// bounding are the arguments of a controller that bound what is applied.
func bounding(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		return !strings.HasPrefix(arg, "--default-service-account") && !strings.HasPrefix(arg, "--no-") && !strings.HasPrefix(arg, "--max-")
	})
}

// A user who has the ClusterRole admin in one namespace gains nothing in the cluster by a
// GitSource, whatever account it names. There it applies what the account may.
func TestInstallBoundsTheAdminOfANamespace(t *testing.T) {
	s := envOf(t, "web")
	s.c.Guard(t, s.ns)
	installed := s.install("default")
	user := "admin-of-" + s.ns
	s.kubectl("create", "rolebinding", "admin", "--clusterrole=admin", "--user="+user, "-n", s.ns)
	as := func(manifest string, args ...string) (string, error) {
		return s.c.KubectlWith(t, manifest, append([]string{"--as=" + user, "-n", s.ns}, args...)...)
	}
	clustertest.Wait(t, "the admin's rights", func() error {
		_, err := as("", "auth", "can-i", "create", "gitsources")
		return err
	})
	t.Setenv("KUBECONFIG", tokenKubeconfig(t, s.c, s.kubectl("create", "token", "tranche-controller", "-n", "tranche-system")))
	s.control(bounding(installed)...)

	clone := filepath.Join(t.TempDir(), "attack")
	s.run(t.TempDir(), "git", "clone", "--quiet", s.bare, clone)
	s.must(os.MkdirAll(filepath.Join(clone, "attack"), 0o755))
	binding := fmt.Sprintf("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: %s}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}]\n", user, user)
	s.must(os.WriteFile(filepath.Join(clone, "attack", "binding.yaml"), []byte(binding), 0o600))
	s.run(clone, "git", "add", ".")
	s.run(clone, "git", "commit", "--quiet", "-m", "all rights for me")
	s.run(clone, "git", "push", "--quiet", "origin", "HEAD:main")
	source := func(name, path, account string) string {
		return fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: GitSource\nmetadata: {name: %s}\nspec: {url: 'file://%s', path: %s, prune: true, serviceAccountName: '%s'}\n", name, s.bare, path, account)
	}
	for name, account := range map[string]string{"attack-none": "", "attack-deployer": "deployer", "attack-controller": "tranche-controller"} {
		if out, err := as(source(name, "attack", account), "apply", "-f", "-"); err != nil {
			t.Fatalf("GitSource %s: %v: %s", name, err, out)
		}
	}
	if out, err := as(binding, "apply", "-f", "-"); err == nil {
		t.Fatalf("the admin of a namespace may bind cluster-admin by kubectl: %s", out)
	}

	// The honest way, as README has it.
	for _, command := range [][]string{
		{"create", "serviceaccount", "deployer"},
		{"create", "rolebinding", "deployer", "--clusterrole=admin", "--serviceaccount=" + s.ns + ":deployer"},
	} {
		if out, err := as("", command...); err != nil {
			t.Fatalf("kubectl %q: %v: %s", command, err, out)
		}
	}
	if out, err := as(source("source", ".", "deployer"), "apply", "-f", "-"); err != nil {
		t.Fatalf("GitSource: %v: %s", err, out)
	}
	s.run(clone, "git", "rm", "-r", "--quiet", "attack") // it does not belong to what is honest
	s.run(clone, "git", "commit", "--quiet", "-m", "as it was")
	clustertest.Wait(t, "the attacks to be refused", func() error {
		for _, name := range []string{"attack-none", "attack-deployer", "attack-controller"} {
			out, err := as("", "get", "gitsource", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`)
			if err != nil || !strings.Contains(out, `"reason":"Forbidden"`) {
				return fmt.Errorf("%s: %w: %s", name, err, out)
			}
		}
		return nil
	})
	s.run(clone, "git", "push", "--quiet", "origin", "HEAD:main")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	if out, err := s.c.Kubectl(t, "get", "clusterrolebinding", user); err == nil {
		t.Errorf("the admin of a namespace has become cluster-admin: %s", out)
	}
}

// config/cluster-admin is the choice by name: the controller's own account applies, with
// all rights.
func TestInstallWithClusterAdmin(t *testing.T) {
	s := envOf(t, "web")
	installed := s.install("cluster-admin")
	if i := slices.IndexFunc(installed, func(arg string) bool { return strings.HasPrefix(arg, "--default-service-account") }); i >= 0 {
		t.Errorf("config/cluster-admin starts the controller with %s", installed[i])
	}
	t.Setenv("KUBECONFIG", tokenKubeconfig(t, s.c, s.kubectl("create", "token", "tranche-controller", "-n", "tranche-system")))
	s.write("role.yaml", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "+s.ns+"-everything}\nrules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]\n")
	s.push("a role of the cluster")
	s.control(bounding(installed)...)
	s.must(s.c.Client.Create(t.Context(), &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: "source", Namespace: s.ns},
		Spec:       v1alpha1.GitSourceSpec{URL: "file://" + s.bare, Path: "."},
	}))
	t.Cleanup(func() { s.kubectl("delete", "clusterrole", s.ns+"-everything") })
	clustertest.Wait(t, "the role", func() error {
		_, err := s.c.Kubectl(t, "get", "clusterrole", s.ns+"-everything")
		return err
	})
}

// fenced are the YAML examples of a document.
func fenced(t testing.TB, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var examples []string
	for _, part := range strings.Split(string(text), "\n```yaml\n")[1:] {
		example, _, closed := strings.Cut(part, "\n```\n")
		if !closed {
			t.Fatalf("%s: an example has no end:\n%s", file, part)
		}
		examples = append(examples, example)
	}
	return examples
}

// indentedBlock is the block of commands in a document that begins with a text.
func indentedBlock(t *testing.T, file, begins string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var block strings.Builder
	for line := range strings.Lines(string(text)) {
		command, ok := strings.CutPrefix(line, "    ")
		if block.Len() > 0 && !ok {
			break
		}
		if ok && (block.Len() > 0 || strings.HasPrefix(command, begins)) {
			block.WriteString(command)
		}
	}
	if block.Len() == 0 {
		t.Fatalf("%s has no %q", file, begins)
	}
	return block.String()
}

func absolutePath(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}

// podMonitorToken is the Secret, and the key in it, that the PodMonitor names.
func podMonitorToken(t *testing.T) (name, key string) {
	t.Helper()
	var monitor struct {
		Spec struct {
			PodMetricsEndpoints []struct {
				Authorization struct{ Credentials struct{ Name, Key string } }
			}
		}
	}
	text, err := os.ReadFile("../../config/monitoring/pod_monitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &monitor); err != nil || len(monitor.Spec.PodMetricsEndpoints) != 1 {
		t.Fatalf("%v: %+v", err, monitor)
	}
	c := monitor.Spec.PodMetricsEndpoints[0].Authorization.Credentials
	return c.Name, c.Key
}

// get asks for a page, with a token where there is one, of whatever certificate.
func get(t testing.TB, url, token string) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	anyCertificate := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer anyCertificate.CloseIdleConnections()
	response, err := anyCertificate.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// tokenKubeconfig writes a kubeconfig that logs in with a token.
func tokenKubeconfig(t *testing.T, c *clustertest.Cluster, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
	config.AuthInfos["c"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// The command line refuses what it does not understand, and says what it wants.
func TestFlags(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	for args, want := range map[string]string{
		"controller --log-level=loud":             "--log-level",
		"controller --log-encoding=xml":           "--log-encoding",
		"controller --watch-label-selector=a==b=": "--watch-label-selector",
		"controller":       "KUBECONFIG",
		"controller extra": "extra",
		"nothing":          "nothing",
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		root.SetOut(os.Stderr)
		if err := root.ExecuteContext(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("tranche %s: %v, want an error that names %s", args, err, want)
		}
	}
}

// `tranche install` prints what kubectl makes of config/default, or of what --with names.
func TestInstallManifests(t *testing.T) {
	c := clustertest.Shared(t)
	for folder, args := range map[string][]string{"default": {"install"}, "cluster-admin": {"install", "--with", "cluster-admin"}, "tenants": {"install", "--with=tenants"}} {
		want, err := c.Kubectl(t, "kustomize", "../../config/"+folder)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		root := newRoot()
		root.SetArgs(args)
		root.SetOut(&got)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(got.String())); diff != "" {
			t.Errorf("%s: manifests (-kubectl +tranche):\n%s", folder, diff)
		}
	}
	root := newRoot()
	root.SetArgs([]string{"install", "--with", "root"})
	if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "cluster-admin or tenants") {
		t.Errorf("--with root: %v", err)
	}
}

// With --image, only the image of the manifests differs.
func TestInstallImage(t *testing.T) {
	plain, err := manifests("", "")
	if err != nil {
		t.Fatal(err)
	}
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, image := range []string{"registry.example.org:5000/ops/tranche:v1.2.3", "registry.example.org/tranche@" + digest} {
		got, err := manifests(image, "")
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Replace(string(plain), "image: tranche:dev", "image: "+image, 1); want != string(got) {
			t.Errorf("%s: (-want +got):\n%s", image, cmp.Diff(want, string(got)))
		}
	}
	for image, want := range map[string]string{
		"": "must be REPOSITORY:TAG", "a b:c": "must be REPOSITORY:TAG", "registry.example.org:5000/tranche": "the tag or the digest is missing", "tranche:": "write tranche:v1.2.3", "tranche@": "the tag or the digest is missing",
	} {
		if err := checkImage(image); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--image %q: %v, want %q", image, err, want)
		}
	}
}
