package gitsync_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// waits makes a release that is at its first gate, and pushes a commit on top that
// waits for another source. It returns the commit of the release.
func (s *env) waits(edit ...func(*v1alpha1.GitSource)) string {
	s.Helper()
	s.push(map[string]string{"base/b.yaml": configMap("b", "one"), "deploy/a.yaml": configMap("a", "one")})
	s.another("base", "base")
	s.beginRelease(append(edit, after("base"))...)
	release := s.repo.Head()
	s.applied(release)
	s.suspend("base")
	toy := "apiVersion: " + s.ns + ".example.org/v1\nkind: Toy\nmetadata: {name: ball}\nspec: {size: 1}\n"
	s.repo.CommitAndPush(map[string]string{"deploy/a.yaml": configMap("a", "two"), "deploy/toy.yaml": toy, "base/crd.yaml": strings.ReplaceAll(toyCRD, "GROUP", s.ns+".example.org")}, "More")
	m := s.ready("shop", metav1.ConditionFalse, "DependencyNotReady")
	if !strings.Contains(m, "GitSource "+s.ns+"/base has not applied it yet and is suspended; set its spec.suspend to false, or take it out of spec.dependsOn") {
		s.Error(m)
	}
	return release
}

// resume ends a suspension.
func (s *env) resume(source string) {
	s.Helper()
	gs := get(s, source, &v1alpha1.GitSource{})
	gs.Spec.Suspend = false
	s.write(gs)
}

// byHand changes ConfigMap a, and waits until that is undone.
func (s *env) byHand(commit string) {
	s.Helper()
	s.kubectl("patch", "configmap/a", "--type=merge", "-p", `{"data":{"value":"by hand"}}`, "--field-manager=somebody")
	s.lookNow()
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "one" {
		s.Errorf("a is %q: %s", v, said(s.gs()))
	}
	s.told("DriftUndone", "ConfigMap "+s.ns+"/a: data.value was changed by somebody, and is again as main@"+commit[:12]+" says")
}

// branch waits until the branch has exactly these subjects, newest first.
func (s *env) branch(subjects ...string) {
	s.Helper()
	clustertest.Wait(s, "the branch to say so", func() error {
		if got := s.subjects("main"); !slices.Equal(got, subjects) {
			return withSource(s, fmt.Errorf("%q", got))
		}
		return nil
	})
}

// A commit waits for another source, for ever if need be. Meanwhile the controller
// commits on top of it what the cluster decides, and keeps what is applied. A
// controller that was started since does so as well. Nothing of the commit is applied
// before its time.
func TestMaintainApplied(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() })
	release := s.waits(writesBack)
	s.byHand(release)
	s.rollBack("web")
	s.branch(`Revert "web: v2"`, "More", "web: v2", "web: v1", "Change")
	stop()
	stop = s.startController(andRollout)
	s.kubectl("delete", "configmap/a")
	s.lookNow()
	s.told("DriftUndone", "ConfigMap "+s.ns+"/a was deleted")
	s.byHand(release)
	if out, err := s.c.Kubectl(t, "get", "crd", "toys."+s.ns+".example.org"); err == nil {
		t.Error(out)
	}
	if gs := s.gs(); gs.Status.AppliedCommit != release || gs.Status.ObservedCommit != s.inBare("rev-parse", "main") {
		t.Errorf("%+v", gs.Status)
	}
	s.branch(`Revert "web: v2"`, "More", "web: v2", "web: v1", "Change")
	s.isAt("web", "RolledBack", 1)

	s.resume("base")
	s.ends(`Revert "web: v2"`, "More", "web: v2", "web: v1", "Change")
	s.rolledBack("web")
	if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != "two" {
		t.Errorf("a is %q", v)
	}
	s.kubectl("get", "toys."+s.ns+".example.org/ball")
}

// An approval that is given while a commit waits is committed, too; and what
// cannot be committed is said beside the wait.
func TestApprovedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.waits(writesBack)
	remove := s.hook("pre-receive", "echo 'closed for today' >&2; exit 1")
	s.approve("web")
	if m := s.differs("PushRejected"); !strings.Contains(m, "closed for today") {
		t.Error(m)
	}
	s.ready("shop", metav1.ConditionFalse, "DependencyNotReady")
	remove()
	s.isAt("web", "ReleaseCompleted", 1)
	s.lookNow()
	s.branch("Approve step 0 of web", "More", "web: v2", "web: v1", "Change")
	if c := s.inSync(); c.Reason != "DependencyNotReady" {
		t.Errorf("%+v", c)
	}
}

// Two failures are reported together with what is waited for: a commit that does not
// render, and an object that can no longer be applied.
func TestAmissMeanwhile(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "one"), "deploy/web.yaml": service("web"), "base/b.yaml": configMap("b", "one")})
	s.another("base", "base")
	s.source(after("base"))
	s.applied(s.repo.Head())
	s.suspend("base")
	waits := func(says ...string) {
		t.Helper()
		s.lookNow()
		m := s.ready("shop", metav1.ConditionFalse, "DependencyNotReady")
		for _, want := range append(says, "base has not applied it yet") {
			if !strings.Contains(m, want) {
				t.Errorf("%q is not in %q", want, m)
			}
		}
	}
	first := s.repo.Head()
	s.push(map[string]string{"deploy/a.yaml": "a: [\n"})
	waits("; deploy/a.yaml: ")
	s.told("InvalidManifest", "deploy/a.yaml: ")
	s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	s.quota()
	s.kubectl("delete", "service/web")
	waits("; main@"+first[:12]+": deploy/web.yaml: Service "+s.ns+"/web: ", "exceeded quota")
	s.kubectl("delete", "quota/no-services")
	clustertest.Wait(t, "the Service", func() error {
		s.lookNow()
		return s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "web"}, &corev1.Service{})
	})
	if m := s.ready("shop", metav1.ConditionFalse, "DependencyNotReady"); strings.Contains(m, "Service") {
		t.Error(m)
	}
}
