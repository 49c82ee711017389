package gitsync_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// newSharedBase has two namespaces, each with a GitSource that renders base: j of the
// env's namespace, and k of the other one.
func newSharedBase(t *testing.T, more map[string]string) (j, k *env) {
	t.Helper()
	j = newIdleEnv(t)
	other := *j
	k = &other
	k.ns = j.c.Namespace(t)
	j.c.Watch(t, k.ns)
	t.Cleanup(j.startManager(j.c.Controller, func(mgr ctrl.Manager) error {
		j.must(rollout.Add(mgr, rollout.Options{Concurrent: 2}))
		return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: j.TempDir(), Concurrent: 2, NoCrossNamespaceRefs: true, NoRemoteBases: true, FileRoots: []string{os.TempDir()}, FileWriteRoots: []string{os.TempDir()}})
	}, k.ns))
	files := map[string]string{
		"base/web.yaml": web("v1"), "base/plan.yaml": webPlan, "base/kustomization.yaml": "resources: [web.yaml, plan.yaml]\n",
		"j/kustomization.yaml": "resources: [../base]\n", "k/kustomization.yaml": "resources: [../base]\n",
	}
	for name, text := range more {
		files[name] = text
	}
	v1 := j.repo.CommitAndPush(files, "v1")
	for path, s := range map[string]*env{"j": j, "k": k} {
		s.source(writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.Path = path })
		s.applied(v1)
		s.isAt("web", "ReleaseCompleted", 1)
	}
	return j, k
}

// runsSize waits until the Deployment has the image of a version, and so many replicas in the
// ReplicaSet of that version.
func (s *env) runsSize(name, version string, replicas int32) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%s/%s to run %d of %s", s.ns, name, replicas, version), func() error {
		d := &appsv1.Deployment{}
		if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, d); err != nil {
			return err
		}
		if image := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":"+version) {
			return fmt.Errorf("the Deployment has %s", image)
		}
		var list appsv1.ReplicaSetList
		if err := s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)); err != nil {
			return err
		}
		for _, rs := range list.Items {
			if !strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":"+version) || metav1.GetControllerOf(&rs).Name != name {
				continue
			}
			if *rs.Spec.Replicas != replicas {
				return fmt.Errorf("ReplicaSet %s has %d", rs.Name, *rs.Spec.Replicas)
			}
			return nil
		}
		return fmt.Errorf("%s has no ReplicaSet", version)
	})
}

// mentions fails the test where a message lacks a text.
func mentions(t *testing.T, message string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(message, want) {
			t.Errorf("the message is without %q: %s", want, message)
		}
	}
}

// A rollback in one namespace is not written back while that would take back the release
// of another GitSource. Once the cluster rolled that one back as well, one revert is
// pushed for both.
func TestWriteBackOnASharedBase(t *testing.T) {
	t.Parallel()
	j, k := newSharedBase(t, nil)
	v2 := j.repo.CommitAndPush(map[string]string{"base/web.yaml": web("v2")}, "v2")
	for _, s := range []*env{j, k} {
		s.applied(v2)
		s.isAt("web", "WaitingForApproval", 0)
	}
	j.rollBack("web")
	message := j.differs("WriteBackConflict")
	mentions(t, message, "it would move releases of 1 GitSource in another namespace, too", "--with")
	if strings.Contains(message, k.ns) {
		t.Errorf("the message names the other namespace: %s", message)
	}
	j.runsSize("web", "v1", 2)
	j.lookNow()
	k.runsSize("web", "v2", 1)
	if diff := cmp.Diff([]string{"v2", "v1"}, j.subjects("main")); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}

	k.rollBack("web")
	j.has(`Revert "v2"`, "v2", "v1")
	for _, s := range []*env{j, k} {
		s.rolledBack("web")
		s.runsSize("web", "v1", 2)
	}
	j.ends(`Revert "v2"`, "v2", "v1")
}

// The other release of the base has completed. It stays as it was approved. If the
// overlay has its own image, only that is taken back.
func TestWriteBackOnASharedBase_Completed(t *testing.T) {
	t.Parallel()
	tag := func(v string) string {
		return "resources: [../base]\nimages: [{name: registry.example.org/web, newTag: " + v + "}]\n"
	}
	j, k := newSharedBase(t, map[string]string{"j/kustomization.yaml": tag("v1")})
	v3 := j.repo.CommitAndPush(map[string]string{"base/web.yaml": web("v3"), "j/kustomization.yaml": tag("v3")}, "v3")
	for _, s := range []*env{j, k} {
		s.applied(v3)
		s.isAt("web", "WaitingForApproval", 0)
	}
	k.approve("web")
	k.isAt("web", "ReleaseCompleted", 1)
	j.has("Approve step 0 of web", "v3", "v1")
	j.rollBack("web")
	j.has(`Revert "v3"`, "Approve step 0 of web", "v3", "v1")
	if diff := j.inBare("diff", "--name-only", "main~1", "main"); diff != "j/kustomization.yaml" {
		t.Errorf("the revert changes %s", diff)
	}
	j.rolledBack("web")
	k.applied(j.inBare("rev-parse", "main"))
	k.runsSize("web", "v3", 2)
}

// Two sources share a folder of approvals. Each takes its own, and an approval of the
// other one's release is no difference. One that names no release of either is.
func TestApprovalsOfTwoSourcesInOneFolder(t *testing.T) {
	t.Parallel()
	j, k := newSharedBase(t, nil)
	for _, s := range []*env{j, k} {
		gs := s.gs()
		gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Path: "approvals"}
		s.write(gs)
	}
	j.repo.CommitAndPush(map[string]string{"base/web.yaml": web("v2")}, "v2")
	files := map[string]string{}
	for path, s := range map[string]*env{"j": j, "k": k} {
		s.isAt("web", "WaitingForApproval", 0)
		br := s.release("web")
		files["approvals/"+path+".yaml"] = fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: %s}\nspec: {revision: %q, commit: %q, step: 0}\n",
			s.ns, br.Status.UpdateRevision, br.Spec.Commit)
	}
	approved := j.repo.CommitAndPush(files, "Approve")
	for _, s := range []*env{j, k} {
		s.applied(approved)
		s.runsSize("web", "v2", 2)
		clustertest.Wait(s, "InSync", func() error {
			if c := s.inSync(); c.Status != metav1.ConditionTrue {
				return fmt.Errorf("InSync is %s %s: %s", c.Status, c.Reason, c.Message)
			}
			return nil
		})
	}
	j.repo.CommitAndPush(map[string]string{"approvals/l.yaml": strings.ReplaceAll(files["approvals/k.yaml"], "name: web", "name: api")}, "Approve nothing")
	for _, s := range []*env{j, k} {
		mentions(t, s.differs("ApprovalIgnored"), k.ns+"/api: names no BatchRelease")
	}
}

// unplanned makes a GitSource in the env's namespace.
func (s *env) unplanned(name string) {
	s.Helper()
	gs := &v1alpha1.GitSource{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.ns},
		Spec:       v1alpha1.GitSourceSpec{URL: s.repo.URL(), Path: name, Ref: v1alpha1.GitReference{Branch: "main"}},
	}
	gs.Spec.Interval.Duration, gs.Spec.Timeout.Duration = s.gs().Spec.Interval.Duration, s.gs().Spec.Timeout.Duration
	s.must(s.c.Client.Create(s.Context(), gs))
	s.Cleanup(func() { s.end(name) })
}

// A Deployment without a plan of another GitSource would roll at once. A GitSource whose
// path does not render keeps back only what changes the files that it read.
func TestWriteBackBesideOtherSources(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	v1 := map[string]string{
		"base/web.yaml": web("v1"), "base/kustomization.yaml": "resources: [web.yaml]\n",
		"deploy/plan.yaml": webPlan, "deploy/kustomization.yaml": "resources: [../base, plan.yaml]\n",
		"other/kustomization.yaml":   "resources: [../base]\nnamePrefix: other-\nlabels: [{pairs: {app: other}, includeSelectors: true}]\n",
		"reading/kustomization.yaml": "resources: [../base, missing.yaml]\n",
		"broken/kustomization.yaml":  "resources: [missing.yaml]\n",
	}
	s.applied2(s.repo.CommitAndPush(v1, "v1"), writesBack)
	s.isAt("web", "ReleaseCompleted", 1)
	for _, name := range []string{"other", "reading", "broken"} {
		s.unplanned(name)
	}
	s.runsSize("other-web", "v1", 2)
	s.repo.CommitAndPush(map[string]string{"base/web.yaml": web("v2")}, "v2")
	s.isAt("web", "WaitingForApproval", 0)
	s.runsSize("other-web", "v2", 2)
	for _, name := range []string{"reading", "broken"} {
		clustertest.Wait(s, "GitSource "+name+" to read the branch", func() error {
			if gs := get(s, name, &v1alpha1.GitSource{}); gs.Status.ObservedCommit != s.repo.Head() {
				return fmt.Errorf("it has read %s", gs.Status.ObservedCommit)
			}
			return nil
		})
	}

	s.rollBack("web")
	message := s.differs("WriteBackConflict")
	mentions(t, message, "it would move Deployment "+s.ns+"/other-web of GitSource "+s.ns+"/other, too",
		"it changes files that GitSource "+s.ns+"/reading read and cannot render", "--with")
	if strings.Contains(message, "broken") {
		t.Errorf("the message names a source of other files: %s", message)
	}
	s.runsSize("web", "v1", 2)
	s.runsSize("other-web", "v2", 2)
	if diff := cmp.Diff([]string{"v2", "v1"}, s.subjects("main")); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}

	s.must(s.c.Client.Delete(context.Background(), &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: s.ns}}))
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "reading", Namespace: s.ns}}
	s.must(s.c.Client.Patch(s.Context(), gs, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"path":"broken"}}`))))
	s.ends(`Revert "v2"`, "v2", "v1")
	s.rolledBack("web")
}
