package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A user deletes Tranche, and has to choose what becomes of what was applied and of the
// release under way. Until then nothing is deleted. Afterwards nothing of Tranche is left.
func TestUninstall(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	s := &env{TB: t, c: c, ns: c.Namespace(t)}
	s.repository("web")
	s.installs()
	stop := s.process()
	s.follow("source", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	gate := map[string]int32{"v1": 8, "v2": 2}
	s.waitFor("web", "WaitingForApproval", 0, gate)

	mislabelled := labelled(s)
	s.uninstalls(1, "", "give --yes")
	s.uninstalls(1, "--yes", s.ns+"/source  true ", "are deleted",
		"spec.prune: true delete what they applied: "+s.ns+"/source; give --keep to keep it, or --prune to delete it")
	s.uninstalls(1, "--keep --yes", "  stay\n", "under release: "+s.ns+"/web; ", "or give --complete")
	s.uninstalls(1, "--keep --prune --yes", "[keep prune]")
	s.uninstalls(1, "--keep --complete --delete-crds --yes", "--delete-crds is for the hook of Helm")
	if gs := s.source(); gs.DeletionTimestamp != nil || !gs.Spec.Prune {
		t.Errorf("GitSource: spec.prune %t, deleted %v", gs.Spec.Prune, gs.DeletionTimestamp)
	}
	s.waitFor("web", "WaitingForApproval", 0, gate)

	web := s.deployment()
	s.uninstalls(0, "--keep --complete --yes", "Deployment "+s.ns+"/web is under release. It goes to 100 % without its gates.",
		"Deleted 1 GitSources and ")
	stop()
	s.must(s.c.Client.Delete(s.Context(), mislabelled))
	s.hasNothingLeft()
	if now := s.deployment(); now == nil || now.UID != web.UID {
		t.Fatalf("the Deployment is %v", now)
	}
	s.untouched("web")
	clustertest.Wait(t, "an ordinary rollout", func() error {
		if got := s.pods("web"); fmt.Sprint(got) != "map[v2:10]" {
			return fmt.Errorf("pods %v", got)
		}
		return nil
	})
	s.uninstalls(0, "--yes", "Deleted 0 GitSources and 0 objects")

	s.installs()
	stop = s.process()
	s.follow("source", ".")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	stop()
	s.uninstalls(3, "--prune --yes --timeout 1s", "these are left: GitSource "+s.ns+"/source; does the controller run?")
	if s.deployment() == nil {
		t.Error("without a controller the Deployment was deleted")
	}
	stop = s.process()
	s.uninstalls(0, "--prune --yes", "GitSources and ") // the controller may have ended it before the program looked
	stop()
	s.hasNothingLeft()
	clustertest.Wait(t, "the Deployment to be gone", func() error {
		if s.deployment() != nil {
			return errors.New("it is there")
		}
		return nil
	})
}

// installs applies what `tranche install --with cluster-admin` prints.
func (s *env) installs() {
	s.Helper()
	text, err := manifests("", "cluster-admin")
	s.must(err)
	if out, err := s.c.KubectlWith(s, string(text), "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		s.Fatalf("installing: %v: %s", err, out)
	}
	s.kubectl("wait", "--for=condition=Established", "--timeout=4m", "crd/gitsources.tranche.dev", "crd/batchreleases.tranche.dev")
}

// uninstalls runs tranche uninstall, and fails unless it ends with the code and prints all
// of the texts.
func (s *env) uninstalls(code int, flags string, texts ...string) {
	s.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"uninstall"}, strings.Fields(flags)...)...)
	cmd.Env = s.environment()
	out, err := cmd.CombinedOutput()
	got := cmd.ProcessState.ExitCode()
	if got != code {
		s.Fatalf("tranche uninstall %s: exit code %d, want %d: %v:\n%s", flags, got, code, err, out)
	}
	s.has(string(out), texts...)
}

// labelled creates a Deployment that a user has labelled as held. It is not held, and does not
// keep an admin from removing Tranche.
func labelled(s *env) *appsv1.Deployment {
	s.Helper()
	app := map[string]string{"app": "labelled"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "labelled", Labels: map[string]string{v1alpha1.LabelHeld: "true"}},
		Spec:       *s.deployment().Spec.DeepCopy(),
	}
	d.Spec.Selector.MatchLabels, d.Spec.Template.Labels = app, app
	d.Spec.Paused, d.Spec.Replicas = true, ptr.To[int32](0)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}
	s.must(s.c.Client.Create(s.Context(), d))
	return d
}

// deployment reads Deployment web; nil: there is none.
func (s *env) deployment() *appsv1.Deployment {
	s.Helper()
	var d appsv1.Deployment
	err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: "web"}, &d)
	s.must(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return &d
}

// hasNothingLeft waits until nothing that an installation brings is in the cluster.
func (s *env) hasNothingLeft() {
	s.Helper()
	clustertest.Wait(s, "the installation to be gone", func() error {
		out, err := s.c.Kubectl(s, "get",
			"crd,namespaces,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, "tranche") && !strings.Contains(line, s.ns) {
				return errors.New(line)
			}
		}
		out, err = s.c.Kubectl(s, "get", "controllerrevisions", "-A", "-o", "name", "-l", plan.LabelManagedBy+"="+plan.ManagedBy)
		if err != nil || strings.Contains(out, "/") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// Rights and policies go last, in the namespace of the installation. That one stays where it is
// not the one of config. Helm deletes all but the policies.
func TestUninstall_Order(t *testing.T) {
	kinds := func(u *uninstall) string {
		objects, err := u.installation()
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, o := range objects {
			if ns := o.GetNamespace(); ns != "" && ns != u.installed.namespace {
				t.Errorf("%s %s/%s, in an installation in %s", o.GetKind(), ns, o.GetName(), u.installed.namespace)
			}
			list = append(list, o.GetKind())
		}
		return strings.Join(slices.Compact(list), " ")
	}
	const first = "NetworkPolicy Deployment Service CustomResourceDefinition ClusterRoleBinding RoleBinding ClusterRole Role ServiceAccount "
	const policies = "ValidatingAdmissionPolicyBinding ValidatingAdmissionPolicy"
	for name, c := range map[string]struct {
		u    uninstall
		want string
	}{
		"kustomize":                      {uninstall{installed: installation{namespace: defaultNamespace}}, first + policies + " Namespace"},
		"kustomize in another namespace": {uninstall{installed: installation{namespace: "ops"}}, first + policies},
		"Helm":                           {uninstall{helmRelease: "a", installed: installation{namespace: "ops"}}, policies},
		"Helm, with crds.keep=false": {
			uninstall{helmRelease: "a", deleteCRDs: true, installed: installation{namespace: "ops"}}, "CustomResourceDefinition " + policies,
		},
	} {
		if got := kinds(&c.u); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

// The tool that has installed Tranche removes it.
func TestUninstall_OtherTool(t *testing.T) {
	helm := installation{found: true, helmRelease: "a", helmNamespace: "ops"}
	for name, c := range map[string]struct {
		is   installation
		hook string // the release that the hook is of
		want string
	}{
		"by hand, of kustomize":          {is: installation{found: true}},
		"by hand, of Helm":               {is: helm, want: "run helm uninstall a --namespace ops"},
		"the hook":                       {is: helm, hook: "a"},
		"the hook of another release":    {is: helm, hook: "b", want: "by Helm release a in namespace ops"},
		"the hook, applied by kubectl":   {is: installation{found: true}, hook: "a", want: "Helm has not installed Tranche"},
		"the hook, where little is left": {hook: "a"},
	} {
		err := c.is.checkHelm(c.hook)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A hook whose rights do not come says which are missing.
func TestUninstall_Forbidden(t *testing.T) {
	t.Parallel()
	s := &env{TB: t, c: clustertest.Start(t)}
	s.uninstalls(1, "--keep --complete --yes --helm-release=a --as=mallory", `User "mallory" cannot `)
}

// A finalizer of another program keeps an object, and the message names it.
func TestUninstall_KeptBy(t *testing.T) {
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{v1alpha1.Group + "/prune"}}}
	if got := keptBy(gs); got != "" {
		t.Errorf("by its own finalizer: %q", got)
	}
	gs.Finalizers = append(gs.Finalizers, "backup.example.org/hold")
	if got, want := keptBy(gs), " (kept by the finalizers backup.example.org/hold)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
