package gitsync_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// writesBack lets a source commit what the cluster decides.
func writesBack(gs *v1alpha1.GitSource) {
	gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true}
}

// manifests are a Deployment of one version and its plan.
func manifests(version string) map[string]string {
	return map[string]string{"deploy/web.yaml": web(version), "deploy/plan.yaml": webPlan}
}

// newRelease has v1 in the cluster and v2 at its first gate.
func newRelease(t *testing.T, edit ...func(*v1alpha1.GitSource)) *shop {
	t.Helper()
	s := newShop(t, andRollout)
	s.beginRelease(edit...)
	return s
}

func (s *shop) beginRelease(edit ...func(*v1alpha1.GitSource)) {
	s.Helper()
	s.applied2(s.repo.CommitAndPush(manifests("v1"), "web: v1"), edit...)
	s.isAt("web", "ReleaseCompleted", 1)
	s.repo.CommitAndPush(manifests("v2"), "web: v2")
	s.isAt("web", "WaitingForApproval", 0)
}

func (s *shop) applied2(commit string, edit ...func(*v1alpha1.GitSource)) {
	s.Helper()
	s.source(edit...)
	s.applied(commit)
}

// isAt waits until a release is at a step for a reason.
func (s *shop) isAt(name, reason string, step int32) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%s of %s at step %d", reason, name, step), func() error {
		br := &v1alpha1.BatchRelease{}
		if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, br); err != nil {
			return err
		}
		if br.Status.Reason != reason || br.Status.CurrentStepIndex != step || br.Status.ObservedGeneration != br.Generation {
			return fmt.Errorf("%s at step %d: %s\n%s", br.Status.Reason, br.Status.CurrentStepIndex, br.Status.Message, said(s.gs()))
		}
		return nil
	})
}

// approve completes the step in the status, as kubectl patch does.
func (s *shop) approve(name string) {
	s.Helper()
	out, err := s.c.Kubectl(s, "patch", "batchrelease", name, "-n", s.ns, "--subresource=status", "--type=merge", "-p", `{"status":{"currentStepState":"Completed"}}`)
	if err != nil {
		s.Fatalf("%v: %s", err, out)
	}
}

func (s *shop) rollBack(name string) {
	s.Helper()
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	s.must(s.c.Client.Patch(s.Context(), br, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tranche.dev/rollback":"true"}}}`))))
}

// inBare runs git in the bare repository.
func (s *shop) inBare(args ...string) string {
	s.Helper()
	return gittest.Git(s, s.repo.Bare, args...)
}

// subjects of a branch, newest first.
func (s *shop) subjects(branch string) []string {
	s.Helper()
	return strings.Split(s.inBare("log", "--format=%s", branch), "\n")
}

// ends waits until the branch has exactly these subjects, newest first, the
// cluster is in sync with it, and stays so for some looks.
func (s *shop) ends(subjects ...string) {
	s.Helper()
	clustertest.Wait(s, "the branch to say so", func() error {
		if diff := cmp.Diff(subjects, s.subjects("main")); diff != "" {
			return fmt.Errorf("subjects (-want +got):\n%s\n%s", diff, said(s.gs()))
		}
		return nil
	})
	tip := s.inBare("rev-parse", "main")
	s.applied(tip)
	for range 3 {
		s.lookNow()
	}
	if diff := cmp.Diff(subjects, s.subjects("main")); diff != "" {
		s.Errorf("some looks later, subjects (-want +got):\n%s", diff)
	}
	s.inBare("fsck", "--strict", "--no-dangling")
}

// inSync returns the condition.
func (s *shop) inSync() *metav1.Condition {
	s.Helper()
	c := meta.FindStatusCondition(s.gs().Status.Conditions, "InSync")
	if c == nil {
		return &metav1.Condition{}
	}
	return c
}

// differs waits until InSync is False for a reason, and returns its message.
func (s *shop) differs(reason string) string {
	s.Helper()
	message := ""
	clustertest.Wait(s, "InSync to be False for "+reason, func() error {
		c := s.inSync()
		if c.Status != metav1.ConditionFalse || c.Reason != reason {
			return fmt.Errorf("%s\n%s", said(s.gs()), s.release("web").Status.Message)
		}
		message = c.Message
		return nil
	})
	s.Log(message)
	return message
}

// outcome of the last release, and whether the failed revision is forgotten.
func (s *shop) rolledBack(name string) {
	s.Helper()
	clustertest.Wait(s, "the release to be at rest, rolled back", func() error {
		br := s.release(name)
		if st := br.Status; st.Phase != v1alpha1.PhaseCompleted || st.FailedRevision != "" || len(st.History) == 0 || st.History[0].Outcome != v1alpha1.OutcomeRolledBack || st.ObservedGeneration != br.Generation {
			return fmt.Errorf("phase %s, failed %q, history %+v", st.Phase, st.FailedRevision, st.History)
		}
		return nil
	})
	if image := s.deployment(name).Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v1") {
		s.Errorf("what runs is %s", image)
	}
}

// An approval given in the cluster is a file on the branch, and the release
// goes on to its end without another.
func TestWriteBackApproval(t *testing.T) {
	s := newRelease(t, writesBack)
	s.approve("web")
	s.isAt("web", "ReleaseCompleted", 1)
	s.ends("Approve step 0 of web", "web: v2", "web: v1")
	br := s.release("web")
	want := fmt.Sprintf(`apiVersion: tranche.dev/v1alpha1
kind: BatchApproval
metadata:
  name: web
  namespace: %s
spec:
  revision: %q
  commit: %q
  step: 0
`, s.ns, br.Status.History[0].Revision, br.Spec.Commit)
	if diff := cmp.Diff(strings.TrimSpace(want), s.inBare("show", "main:deploy/approvals/web.yaml")); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
	want = fmt.Sprintf("Tranche-Release: %s/web\nTranche-Revision: %s\nTranche-Commit: %s\nTranche-Step: 0", s.ns, br.Status.History[0].Revision, br.Spec.Commit)
	if got := s.inBare("log", "-1", "--format=%(trailers:only,unfold)", "main"); got != want {
		t.Errorf("trailers\n%s\nwant\n%s", got, want)
	}
	if c := s.inSync(); c.Status != metav1.ConditionTrue {
		t.Errorf("InSync is %s: %s", c.Status, c.Message)
	}
	if got := s.inBare("log", "-1", "--format=%an <%ae> %cn <%ce>", "main"); got != "tranche <noreply@tranche.dev> tranche <noreply@tranche.dev>" {
		t.Errorf("author and committer are %s", got)
	}
	if changed := s.inBare("diff", "--name-only", "main~1", "main"); changed != "deploy/approvals/web.yaml" {
		t.Errorf("changed %s", changed)
	}
}

// A rollback asked for in the cluster is a revert on the branch, of the
// release's own change and of nothing else.
func TestWriteBackRollback(t *testing.T) {
	s := newRelease(t, writesBack)
	s.repo.CommitAndPush(map[string]string{"README.md": "docs\n", "deploy/more.yaml": configMap("more", "one")}, "More")
	s.applied(s.repo.Head())
	s.rollBack("web")
	s.rolledBack("web")
	s.ends("Revert \"web: v2\"", "More", "web: v2", "web: v1")
	if diff := s.inBare("diff", "--name-only", "main", "main~3"); diff != "README.md\ndeploy/more.yaml" {
		t.Errorf("to v1 the branch differs in %s", diff)
	}
	body := s.inBare("log", "-1", "--format=%b", "main")
	for _, want := range []string{"This reverts commit " + s.inBare("rev-parse", "main~2") + ".", "asked for in the cluster", "Tranche-Release: " + s.ns + "/web", "Tranche-Revision: " + s.release("web").Status.History[0].Revision} {
		if !strings.Contains(body, want) {
			t.Errorf("the message is without %q:\n%s", want, body)
		}
	}
	if got := s.release("web").Spec.Commit; got != s.inBare("rev-parse", "main") {
		t.Errorf("the release comes from %s", got)
	}
	if c := s.inSync(); c.Status != metav1.ConditionTrue {
		t.Errorf("InSync is %s: %s", c.Status, c.Message)
	}
	if events := s.events("WrittenBack"); !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, `Revert "web: v2"`) }) {
		t.Errorf("events: %q", events)
	}
}
