package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// config/tenants installs; its rights, without the applier's binding, are enough
// for a controller that impersonates a tenant, and those of docs/tenancy.md for
// the tenant, whose own rights bound what is applied.
func TestInstallWithLeastPrivilege(t *testing.T) {
	s := shopOf(t, "web")
	s.c.Guard(t, s.ns)
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := s.c.Kubectl(t, args...)
		if err != nil {
			t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(out)
	}
	kubectl("delete", "clusterrolebinding", "tranche-applier")
	t.Cleanup(func() { kubectl("apply", "--server-side", "-f", "../../config/rbac/applier_role.yaml") }) // tests to come need it
	kubectl("apply", "--server-side", "-k", "../../config/tenants")
	t.Cleanup(func() { kubectl("delete", "namespace", "tranche-system", "--wait=false") })
	if out := kubectl("get", "clusterrolebindings", "-o", "name"); strings.Contains(out, "tranche-applier") {
		t.Errorf("config/tenants makes the controller cluster-admin: %s", out)
	}
	if args := kubectl("get", "deployment/tranche-controller", "-n", "tranche-system", "-o", "jsonpath={.spec.template.spec.containers[0].args}"); !strings.Contains(args, `"controller","--leader-elect"`) || !strings.Contains(args, tenantsFlag) {
		t.Errorf("config/tenants starts the controller with %s", args)
	}
	kubectl("scale", "deployment/tranche-controller", "-n", "tranche-system", "--replicas=0") // this test is the controller
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
	probes, metrics := freeAddress(t), freeAddress(t)
	s.control("--leader-elect", "--leader-election-namespace=tranche-system", "--health-probe-bind-address="+probes, "--metrics-bind-address="+metrics, tenantsFlag)
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
	for _, name := range documentedMetrics(t) {
		if name != "tranche_git_exchange_errors_total" && !strings.Contains(exposed, "\n"+name) { // there were no errors
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

// tenantsFlag is what config/tenants starts the controller with.
const tenantsFlag = "--default-service-account=default"

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

// freeAddress is one that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
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

// `tranche install` prints what kubectl makes of config/default.
func TestInstallManifests(t *testing.T) {
	want, err := clustertest.Shared(t).Kubectl(t, "kustomize", "../../config/default")
	if err != nil {
		t.Fatal(err)
	}
	got, err := manifests("")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimSpace(want), strings.TrimSpace(string(got))); diff != "" {
		t.Errorf("manifests (-kubectl +tranche):\n%s", diff)
	}
}

// With --image, only the image of the manifests differs.
func TestInstallImage(t *testing.T) {
	plain, err := manifests("")
	if err != nil {
		t.Fatal(err)
	}
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, image := range []string{"registry.example.org:5000/ops/tranche:v1.2.3", "registry.example.org/tranche@" + digest} {
		got, err := manifests(image)
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
