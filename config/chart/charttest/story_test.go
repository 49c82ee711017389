package charttest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// run runs a program in a folder, and returns what it prints.
func run(t testing.TB, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = os.Environ()
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		cmd.Env = append(cmd.Env, "GIT_"+who+"_NAME=a", "GIT_"+who+"_EMAIL=a@example.org")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// installed is a cluster in which the chart is installed, and namespace shop, which
// follows a repository.
type installed struct {
	testing.TB
	c           *clustertest.Cluster
	helm        Helm
	kubelet     *Kubelet
	values      string // of the chart
	bare, clone string
}

func (s *installed) kubectl(args ...string) string {
	s.Helper()
	out, err := s.c.Kubectl(s, args...)
	if err != nil {
		s.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (s *installed) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// repository makes a repository with examples/web.
func (s *installed) repository() {
	s.Helper()
	dir := s.TempDir()
	s.bare, s.clone = filepath.Join(dir, "shop.git"), filepath.Join(dir, "clone")
	run(s, dir, "git", "init", "--quiet", "--bare", "--initial-branch=main", s.bare)
	run(s, dir, "git", "clone", "--quiet", s.bare, s.clone)
	run(s, s.clone, "git", "checkout", "--quiet", "-b", "main")
	s.must(os.CopyFS(s.clone, os.DirFS(filepath.Join(Root(s), "examples", "web"))))
	s.push("first commit")
}

func (s *installed) push(message string) {
	s.Helper()
	run(s, s.clone, "git", "add", ".")
	run(s, s.clone, "git", "commit", "--quiet", "-m", message)
	run(s, s.clone, "git", "push", "--quiet", "origin", "main")
}

// image commits another image tag.
func (s *installed) image(from, to string) {
	s.Helper()
	file := filepath.Join(s.clone, "deployment.yaml")
	text, err := os.ReadFile(file)
	s.must(err)
	s.must(os.WriteFile(file, []byte(strings.Replace(string(text), "web:"+from, "web:"+to, 1)), 0o600))
	s.push("web: " + to)
}

// tenant makes namespace shop, with the commands of docs/install.md.
func (s *installed) tenant() {
	s.Helper()
	s.kubectl("create", "namespace", "shop")
	s.kubectl("create", "serviceaccount", "deployer", "-n", "shop")
	s.kubectl("create", "rolebinding", "deployer", "-n", "shop", "--clusterrole=admin", "--serviceaccount=shop:deployer")
}

// follow makes the source of namespace shop.
func (s *installed) follow() {
	s.Helper()
	source := fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: GitSource\nmetadata: {name: shop, namespace: shop}\n"+
		"spec: {url: 'file://%s', ref: {branch: main}, path: ., interval: 2s, prune: true, serviceAccountName: deployer}\n", s.bare)
	if out, err := s.c.KubectlWith(s, source, "apply", "-f", "-"); err != nil {
		s.Fatalf("%v: %s", err, out)
	}
}

// pods waits until pods run these images, and none is there besides.
func (s *installed) pods(want map[string]int) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("the pods %v", want), func() error {
		var list corev1.PodList
		if err := s.c.Client.List(s.Context(), &list, client.InNamespace("shop")); err != nil {
			return err
		}
		got := map[string]int{}
		for _, p := range list.Items {
			_, tag, _ := strings.Cut(p.Spec.Containers[0].Image, ":")
			got[tag]++
		}
		if !maps.Equal(got, want) {
			at, _ := s.c.Kubectl(s, "get", "gitsources,batchreleases", "-n", "shop", "-o", "wide") // the kinds may be gone
			return fmt.Errorf("pods %v\n%s", got, at)
		}
		return nil
	})
}

// reason waits until the release has a reason.
func (s *installed) reason(reason string, step string) {
	s.Helper()
	clustertest.Wait(s, reason, func() error {
		got, err := s.c.Kubectl(s, "get", "batchrelease", "web", "-n", "shop", "-o", "jsonpath={.status.reason} {.status.currentStepIndex}")
		if err != nil || got != reason+" "+step {
			return fmt.Errorf("%w: %s", err, got)
		}
		return nil
	})
}

// approve commits the approval of README.md.
func (s *installed) approve(step int) {
	s.Helper()
	revision := s.kubectl("get", "batchrelease", "web", "-n", "shop", "-o", "jsonpath={.status.updateRevision}")
	commit := s.kubectl("get", "batchrelease", "web", "-n", "shop", "-o", "jsonpath={.spec.commit}")
	s.must(os.MkdirAll(filepath.Join(s.clone, "approvals"), 0o755))
	text := fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: shop}\n"+
		"spec: {revision: %q, commit: %q, step: %d}\n", revision, commit, step)
	s.must(os.WriteFile(filepath.Join(s.clone, "approvals", "web.yaml"), []byte(text), 0o600))
	s.push(fmt.Sprintf("Approve step %d of web", step))
}

// leads waits until another process of the release leads than the one before.
func (s *installed) leads(not string) string {
	s.Helper()
	var now string
	clustertest.Wait(s, "another leader than "+not, func() error {
		out, err := s.c.Kubectl(s, "get", "lease", "tranche-controller", "-n", s.helm.Namespace, "-o", "jsonpath={.spec.holderIdentity}")
		if now = out; err != nil || now == "" || now == not {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return now
}

// held fails unless kubectl rollout resume is refused.
func (s *installed) held() {
	s.Helper()
	out, err := s.c.Kubectl(s, "rollout", "resume", "deployment/web", "-n", "shop")
	if err == nil || !strings.Contains(out, "is held for a release in batches") {
		s.Fatalf("kubectl rollout resume: %v: %s", err, out)
	}
}

// everything is each object of the cluster that tells of Tranche, except for events. An object that a
// GitSource has applied and that stays keeps the labels of its origin, and the field manager.
func (s *installed) everything() []string {
	s.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(s.c.Config)
	s.must(err)
	kinds, err := d.ServerPreferredResources()
	s.must(err)
	var found []string
	for _, group := range kinds {
		for _, r := range group.APIResources {
			if r.Kind == "Event" || r.Kind == "Endpoints" || !slices.Contains(r.Verbs, "list") {
				continue
			}
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(group.GroupVersion)
			list.SetKind(r.Kind + "List")
			s.must(client.IgnoreNotFound(s.c.Client.List(s.Context(), list)))
			for i := range list.Items {
				if name := tells(&list.Items[i]); name != "" {
					found = append(found, name)
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// tells returns the name of an object that tells of Tranche.
func tells(o *unstructured.Unstructured) string {
	o.SetManagedFields(nil)
	labels := o.GetLabels()
	delete(labels, "tranche.dev/source")
	delete(labels, "tranche.dev/source-namespace")
	o.SetLabels(labels)
	text, err := o.MarshalJSON()
	if err == nil && !strings.Contains(strings.ToLower(string(text)), "tranche") {
		return ""
	}
	return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
}

// program builds the program, and packages the chart as make release does.
func program(t testing.TB) (binary, chart string) {
	t.Helper()
	dir := t.TempDir()
	binary = filepath.Join(dir, "tranche")
	run(t, Root(t), "go", "build", "-o", binary, "./cmd/tranche")
	run(t, filepath.Join(Root(t), "cmd", "release"), "go", "run", "-buildvcs=false", ".", "chart", "--out", dir, "--version", "v1.2.3",
		"--image", "registry.example.org/tranche", "--chart", filepath.Join(Root(t), "config", "chart", "tranche"))
	return binary, filepath.Join(dir, "tranche-1.2.3.tgz")
}

// From an empty cluster: a chart is installed, upgraded, rolled back and uninstalled in the middle of a
// release. Release, namespace and account have other names than those of config.
func TestStory(t *testing.T) {
	binary, chart := program(t)
	c := clustertest.StartEmpty(t)
	s := &installed{TB: t, c: c, helm: Helm{TB: t, Cluster: c, Namespace: "ops"}}
	s.repository()
	s.values = NoNode + "replicas: 1\nserviceAccount: {name: releaser}\nfileRoots: [" + filepath.Dir(s.bare) + "]\n"
	s.must(s.helm.Install("batches", chart, s.values))
	s.kubelet = NewKubelet(t, c, "ops", binary)
	s.tenant()
	s.follow()
	s.pods(map[string]int{"v1": 10})
	s.reason("ReleaseCompleted", "2")
	s.image("v1", "v2")
	s.reason("WaitingForApproval", "0")
	s.pods(map[string]int{"v1": 8, "v2": 2})
	s.held()
	s.upgrades(chart)
	s.refused(chart)

	// The controller hands back, and the rollout goes to its end without gates.
	s.must(s.helm.Uninstall("batches"))
	if out := s.kubelet.Output("tranche-uninstall"); !strings.Contains(out, "Deployment shop/web is under release") {
		t.Errorf("the hook has printed %s", out)
	}
	s.leaves("APIService /v1alpha1.tranche.dev",
		"CustomResourceDefinition /batchreleases.tranche.dev", "CustomResourceDefinition /gitsources.tranche.dev")
	s.pods(map[string]int{"v2": 10})
	s.kubectl("set", "image", "deployment/web", "web=registry.example.org/web:v3", "-n", "shop")
	s.kubectl("rollout", "status", "deployment/web", "-n", "shop", "--timeout=2m")
	s.pods(map[string]int{"v3": 10})

	s.badDay(chart)
	s.takesOver(chart)
}

// upgrades the chart and rolls it back in the middle of a release, which moves nothing.
func (s *installed) upgrades(chart string) {
	s.Helper()
	w := s.c.Watch(s, "shop")
	gate := map[string]int{"v1": 8, "v2": 2}
	leader := s.leads("")
	s.must(s.helm.Upgrade("batches", chart, "rights: tenants\nlogLevel: debug"))
	leader = s.leads(leader)
	s.reason("WaitingForApproval", "0")
	s.pods(gate)
	s.must(s.helm.Rollback("batches", 1))
	s.leads(leader)
	s.pods(gate)
	s.keepsCRDs(chart)
	s.pods(gate)
	s.approve(0)
	s.reason("WaitingForApproval", "1")
	s.pods(map[string]int{"v1": 5, "v2": 5})
	if n := w.Fights(); n != 0 {
		s.Errorf("the native controller wrote %d times", n)
	}
}

// keepsCRDs goes through revisions with and without the CustomResourceDefinitions. The last rollback is to one without them, from one
// that keeps them by no value. Helm renders nothing for a rollback, and deletes what the revision does not have.
func (s *installed) keepsCRDs(chart string) {
	s.Helper()
	uids := func() string {
		return s.kubectl("get", "crd", "gitsources.tranche.dev", "batchreleases.tranche.dev", "-o",
			"jsonpath={range .items[*]}{.metadata.uid}{.metadata.deletionTimestamp} {end}")
	}
	before := uids()
	s.must(s.helm.Upgrade("batches", chart, "crds: {install: false}"))
	s.must(s.helm.Upgrade("batches", chart, "crds: {install: true, keep: false}"))
	s.must(s.helm.Rollback("batches", 4))
	if after := uids(); after != before {
		s.Fatalf("the CustomResourceDefinitions were %s, and are %s", before, after)
	}
	s.must(s.helm.Rollback("batches", 1))
	s.reason("WaitingForApproval", "0")
}

// badDay installs the chart again. Then the controller is dead, and the user uninstalls without hooks.
func (s *installed) badDay(chart string) {
	s.Helper()
	s.must(s.helm.Install("batches", chart, s.values))
	s.follow()
	s.reason("WaitingForApproval", "0")
	s.pods(map[string]int{"v3": 8, "v2": 2})
	s.uninstallsWithoutController(chart)
	s.uninstallsWithoutHooks(chart)
	s.must(s.helm.Upgrade("batches", chart, "crds: {keep: false}"))
	s.must(s.helm.Uninstall("batches"))
	s.leaves()
	s.pods(map[string]int{"v2": 10})
}

// takesOver what kustomize has installed.
func (s *installed) takesOver(chart string) {
	s.Helper()
	s.kubectl("apply", "--server-side", "-k", filepath.Join(Root(s), "config", "default"))
	here := Helm{TB: s.TB, Cluster: s.c, Namespace: "tranche-system"}
	err := s.helm.Install("batches", chart, s.values)
	if err == nil || !strings.Contains(err.Error(), "--namespace tranche-system --take-ownership") {
		s.Errorf("another namespace than that of kustomize: %v", err)
	}
	if err := here.Install("batches", chart, ""); err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
		s.Errorf("without --take-ownership: %v", err)
	}
	s.must(here.Install("batches", chart, "", func(a *action.Install) { a.TakeOwnership, a.ForceConflicts = true, true }))
	image := s.kubectl("get", "deployment", "tranche-controller", "-n", "tranche-system",
		"-o", "jsonpath={.spec.template.spec.containers[*].image}")
	if image != "registry.example.org/tranche:v1.2.3" {
		s.Errorf("the controller runs %s", image)
	}
}

// refused are a second installation, and another tool's.
func (s *installed) refused(chart string) {
	s.Helper()
	other := Helm{TB: s.TB, Cluster: s.c, Namespace: "second"}
	for name, err := range map[string]error{
		"a second release":  s.helm.Install("second", chart, NoNode),
		"another namespace": other.Install("batches", chart, NoNode, func(a *action.Install) { a.TakeOwnership = true }),
	} {
		if err == nil || !strings.Contains(err.Error(), "installed already, by release batches in namespace ops") {
			s.Errorf("%s: %v", name, err)
		}
	}
}

// uninstallsWithoutController fails with what holds it, and deletes neither policies nor rights.
func (s *installed) uninstallsWithoutController(chart string) {
	s.Helper()
	s.must(s.helm.Upgrade("batches", chart, "uninstall: {timeoutSeconds: 10}"))
	s.kubelet.Break()
	if err := s.helm.Uninstall("batches"); err == nil {
		s.Fatal("without a controller, helm uninstall succeeds")
	}
	out := s.kubelet.Output("tranche-uninstall")
	if !strings.Contains(out, "after 10s these are left: GitSource shop/shop") || !strings.Contains(out, "kubectl -n ops logs") ||
		!strings.Contains(out, "set spec.suspend of each to true") {
		s.Errorf("the hook has printed %s", out)
	}
	s.held()
	for _, left := range []string{"clusterrole/tranche-uninstall", "clusterrolebinding/tranche-uninstall"} {
		if out, err := s.c.Kubectl(s, "get", left); err == nil {
			s.Errorf("the hook has failed and leaves %s", out)
		}
	}
	if err := s.helm.Upgrade("batches", chart, ""); err == nil {
		s.Error("Helm upgrades a release whose removal has failed: docs/install.md says that it does not")
	}
	s.takesBack()
}

// takesBack the removal that has failed, with the commands of docs/install.md. The release stays at its gate.
func (s *installed) takesBack() {
	s.Helper()
	s.kubectl("patch", "gitsource", "shop", "-n", "shop", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
	s.must(s.helm.Rollback("batches", 2))
	if got := s.helm.Status("batches"); got != "deployed" {
		s.Errorf("the release is %s", got)
	}
	s.kubelet.Repair()
	s.kubectl("wait", "--for=delete", "gitsource/shop", "-n", "shop", "--timeout=4m")
	s.follow()
	s.kubectl("wait", "--for=condition=Ready", "gitsource/shop", "-n", "shop", "--timeout=4m")
	s.reason("WaitingForApproval", "0")
	s.pods(map[string]int{"v3": 8, "v2": 2})
}

// uninstallsWithoutHooks leaves Deployments held. The policies protect them until the
// chart is installed again.
func (s *installed) uninstallsWithoutHooks(chart string) {
	s.Helper()
	s.must(s.helm.Uninstall("batches", func(a *action.Uninstall) { a.DisableHooks = true }))
	clustertest.Wait(s, "the controller to be gone", func() error {
		if out, err := s.c.Kubectl(s, "get", "deployments", "-n", "ops", "-o", "name"); err != nil || out != "" {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.held()
	s.must(s.helm.Install("batches", chart, s.values))
	s.leads("")
	s.reason("WaitingForApproval", "0")
	s.pods(map[string]int{"v3": 8, "v2": 2})
}

// leaves waits until nothing in the cluster tells of Tranche, but these.
func (s *installed) leaves(want ...string) {
	s.Helper()
	clustertest.WaitAtEnd(s, "nothing to be left", func() error {
		if got := s.everything(); !slices.Equal(got, want) {
			return fmt.Errorf("left are %q, want %q", got, want)
		}
		return nil
	})
}
