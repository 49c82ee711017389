package gitsync_test

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
func newRelease(t *testing.T, edit ...func(*v1alpha1.GitSource)) *env {
	t.Helper()
	s := newEnv(t, andRollout)
	s.beginRelease(edit...)
	return s
}

func (s *env) beginRelease(edit ...func(*v1alpha1.GitSource)) {
	s.Helper()
	s.applied2(s.repo.CommitAndPush(manifests("v1"), "web: v1"), edit...)
	s.isAt("web", "ReleaseCompleted", 1)
	s.repo.CommitAndPush(manifests("v2"), "web: v2")
	s.lookNow()
	s.isAt("web", "WaitingForApproval", 0)
}

func (s *env) applied2(commit string, edit ...func(*v1alpha1.GitSource)) {
	s.Helper()
	s.source(edit...)
	s.applied(commit)
}

// isAt waits until a release is at a step for a reason.
func (s *env) isAt(name, reason string, step int32) {
	s.Helper()
	clustertest.Wait(s, fmt.Sprintf("%s of %s at step %d", reason, name, step), func() error {
		br := &v1alpha1.BatchRelease{}
		if err := s.c.Client.Get(s.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, br); err != nil {
			return err
		}
		if br.Status.Reason != reason || br.Status.CurrentStepIndex != step || br.Status.ObservedGeneration != br.Generation {
			return withSource(s, fmt.Errorf("%s at step %d: %s", br.Status.Reason, br.Status.CurrentStepIndex, br.Status.Message))
		}
		return nil
	})
}

// approve completes the step in the status, as kubectl patch does.
func (s *env) approve(name string) {
	s.Helper()
	out, err := s.c.Kubectl(s, "patch", "batchrelease", name, "-n", s.ns, "--subresource=status", "--type=merge", "-p", `{"status":{"currentStepState":"Completed"}}`)
	if err != nil {
		s.Fatalf("%v: %s", err, out)
	}
}

func (s *env) rollBack(name string) {
	s.Helper()
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}}
	s.must(s.c.Client.Patch(s.Context(), br, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"tranche.dev/rollback":"true"}}}`))))
}

// inBare runs git in the bare repository.
func (s *env) inBare(args ...string) string {
	s.Helper()
	return gittest.Git(s, s.repo.Bare, args...)
}

// subjects of a branch, newest first.
func (s *env) subjects(branch string) []string {
	s.Helper()
	return strings.Split(s.inBare("log", "--format=%s", branch), "\n")
}

// has waits until the branch has exactly these subjects, newest first, and is
// applied.
func (s *env) has(subjects ...string) {
	s.Helper()
	clustertest.Wait(s, "the branch to say so", func() error {
		if diff := cmp.Diff(subjects, s.subjects("main")); diff != "" {
			return withSource(s, fmt.Errorf("subjects (-want +got):\n%s", diff))
		}
		return nil
	})
	s.applied(s.inBare("rev-parse", "main"))
}

// ends waits until the branch has exactly these subjects, newest first, and
// makes sure that it stays so for some looks.
func (s *env) ends(subjects ...string) {
	s.Helper()
	s.has(subjects...)
	for range 3 {
		s.lookNow()
	}
	if diff := cmp.Diff(subjects, s.subjects("main")); diff != "" {
		s.Errorf("some looks later, subjects (-want +got):\n%s", diff)
	}
	s.inBare("fsck", "--strict", "--no-dangling")
}

// inSync returns the condition.
func (s *env) inSync() *metav1.Condition {
	s.Helper()
	c := meta.FindStatusCondition(s.gs().Status.Conditions, "InSync")
	if c == nil {
		return &metav1.Condition{}
	}
	return c
}

// differs waits until InSync is False for a reason, and returns its message.
func (s *env) differs(reason string) string {
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
func (s *env) rolledBack(name string) {
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
	t.Parallel()
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

// The folder of the approvals may be written in any way that names one.
func TestWriteBackApproval_FolderInAnyForm(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack, approvalsIn("./deploy//given/"))
	s.approve("web")
	s.isAt("web", "ReleaseCompleted", 1)
	s.ends("Approve step 0 of web", "web: v2", "web: v1")
	if changed := s.inBare("diff", "--name-only", "main~1", "main"); changed != "deploy/given/web.yaml" {
		t.Errorf("changed %s", changed)
	}
}

// The branches of a GitSource have names that git lets a branch have.
func TestBranchNames(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	for _, name := range []string{
		"main", "release/1.2", "v1.0-rc.1", "über", "a@b", "x.locks", "HEADS", "head", "a.lock/b", "a./b",
		"HEAD", "-f", "x..y", "a.lock", "x/.y", "/x", "x/", "x//y", "x.", "x@{1}", "a b", "a\\b", "a~1", "a^", "a:b", "a?",
		"a*", "a[b", "a\tb", "a\vb", "a\x7fb", "a\x01",
	} {
		good := exec.Command("git", "check-ref-format", "--branch", name).Run() == nil
		for field, set := range map[string]func(*v1alpha1.GitSource){
			"spec.ref.branch":       func(gs *v1alpha1.GitSource) { gs.Spec.Ref.Branch = name },
			"spec.writeBack.branch": func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack = &v1alpha1.WriteBack{Branch: name} },
		} {
			old := s.gs()
			gs := old.DeepCopy()
			set(gs)
			err := s.c.Client.Patch(s.Context(), gs, client.MergeFrom(old), client.DryRunAll)
			if refused := apierrors.IsInvalid(err) && strings.Contains(err.Error(), field); refused == good || err != nil && !refused {
				t.Errorf("%s %q, which git takes: %t, gets %v", field, name, good, err)
			}
		}
	}
}

func approvalsIn(path string) func(*v1alpha1.GitSource) {
	return func(gs *v1alpha1.GitSource) { gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Path: path} }
}

// A link in the folder of one source makes no approval for another one.
func TestWriteBackApproval_NotThroughALink(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.repo.Commit(map[string]string{"prod/approvals/README.md": "of another source"}, "prod")
	s.link("../prod/approvals", "deploy/approvals")
	s.beginRelease(writesBack)
	s.approve("web")
	message := s.differs("WriteBackConflict")
	if !strings.Contains(message, "a link leads to prod/approvals/web.yaml") || !strings.Contains(message, "replace the link") {
		t.Errorf("the message is %q", message)
	}
	s.has("web: v2", "web: v1", "prod")

	s.must(os.Remove(filepath.Join(s.repo.Work, "deploy/approvals")))
	s.repo.Git("rm", "-q", "--cached", "deploy/approvals")
	s.repo.CommitAndPush(map[string]string{"deploy/approvals/README.md": "of this one"}, "no link")
	s.lookNow()
	s.has("Approve step 0 of web", "no link", "web: v2", "web: v1", "prod")
	if files := s.inBare("ls-tree", "-r", "--name-only", "main", "prod"); files != "prod/approvals/README.md" {
		t.Errorf("prod has %s", files)
	}
}

// Git clones no branch that has a .git, or what a file system takes for it.
func TestWriteBackApproval_NotIntoDotGit(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack, approvalsIn("deploy/git~1"))
	s.approve("web")
	message := s.differs("WriteBackConflict")
	if !strings.Contains(message, "deploy/git~1/web.yaml") || !strings.Contains(message, "correct spec.approvals.path") {
		t.Errorf("the message is %q", message)
	}
	s.has("web: v2", "web: v1")
	let := func(path string) error {
		old := s.gs()
		gs := old.DeepCopy()
		approvalsIn(path)(gs)
		return s.c.Client.Patch(s.Context(), gs, client.MergeFrom(old))
	}
	for _, path := range []string{".git/hooks", "deploy/.Git", ".git"} {
		err := let(path)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.approvals.path") {
			t.Errorf("approvals in %s: %v", path, err)
		}
	}
	s.must(let("deploy/.github"))
	s.ends("Approve step 0 of web", "web: v2", "web: v1")
	s.inBare("cat-file", "-e", "main:deploy/.github/web.yaml")
}

// An empty commit that has the trailers of a write-back takes none of them away: what
// counts is what a commit does.
func TestWriteBackInSpiteOfTrailers(t *testing.T) {
	t.Parallel()
	forge := func(s *env, step string) {
		br := s.release("web")
		text := fmt.Sprintf("Nothing\n\nTranche-Release: %s/web\nTranche-Revision: %s\nTranche-Commit: %s\n", s.ns, br.Status.UpdateRevision, br.Spec.Commit)
		s.repo.CommitAndPush(nil, strings.TrimSpace(text+step))
		s.applied(s.repo.Head())
	}
	t.Run("a rollback", func(t *testing.T) {
		t.Parallel()
		s := newRelease(t, writesBack)
		forge(s, "")
		s.rollBack("web")
		s.rolledBack("web")
		s.ends("Revert \"web: v2\"", "Nothing", "web: v2", "web: v1")
	})
	t.Run("an approval", func(t *testing.T) {
		t.Parallel()
		s := newRelease(t, writesBack)
		forge(s, "Tranche-Step: 0")
		s.approve("web")
		s.isAt("web", "ReleaseCompleted", 1)
		s.ends("Approve step 0 of web", "Nothing", "web: v2", "web: v1")
	})
}

// A rollback asked for in the cluster is a revert on the branch, of the
// release's own change and of nothing else.
func TestWriteBackRollback(t *testing.T) {
	t.Parallel()
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
	s.told("WrittenBack", `Revert "web: v2"`)
}

// A step that misses its deadline is a revert, too, and the revert says why.
func TestWriteBackDeadline(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	plan := strings.Replace(webPlan, "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 1\n    onFailure: Rollback\n", 1)
	s.applied2(s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v1"), "deploy/plan.yaml": plan}, "web: v1"), writesBack)
	s.isAt("web", "ReleaseCompleted", 1)
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("broken")}, "web: a broken one")
	s.ends("Revert \"web: a broken one\"", "web: a broken one", "web: v1")
	s.rolledBack("web")
	if body := s.inBare("log", "-1", "--format=%b", "main"); !strings.Contains(body, "made no progress in time") {
		t.Errorf("the message does not say why:\n%s", body)
	}
}

// Changes since then in other lines of the same file stay.
func TestWriteBackThreeWay(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack)
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v2", "team: shop", "team: toys", "replicas: 2", "replicas: 3")}, "More of it")
	s.applied(s.repo.Head())
	s.rollBack("web")
	s.ends("Revert \"web: v2\"", "More of it", "web: v2", "web: v1")
	s.rolledBack("web")
	if diff := cmp.Diff(strings.TrimSpace(web("v1", "team: shop", "team: toys", "replicas: 2", "replicas: 3")), s.inBare("show", "main:deploy/web.yaml")); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
}

// A file that was renamed since is taken back where it is now. If its content changed as
// well, the condition says that it was renamed.
func TestWriteBackOfARenamedFile(t *testing.T) {
	t.Parallel()
	t.Run("renamed", func(t *testing.T) {
		t.Parallel()
		s := newRelease(t, writesBack)
		s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": "", "deploy/app.yaml": web("v2")}, "Rename")
		s.applied(s.repo.Head())
		s.rollBack("web")
		s.ends("Revert \"web: v2\"", "Rename", "web: v2", "web: v1")
		s.rolledBack("web")
		if diff := cmp.Diff(strings.TrimSpace(web("v1")), s.inBare("show", "main:deploy/app.yaml")); diff != "" {
			t.Errorf("the file (-want +got):\n%s", diff)
		}
		if changed := s.inBare("diff", "--name-only", "main~1", "main"); changed != "deploy/app.yaml" {
			t.Errorf("the revert changes %s", changed)
		}
	})
	t.Run("renamed and changed", func(t *testing.T) {
		t.Parallel()
		s := newRelease(t, writesBack)
		s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": "", "deploy/app.yaml": web("v2", "team: shop", "team: toys")}, "Rename")
		s.applied(s.repo.Head())
		s.rollBack("web")
		mentions(t, s.differs("WriteBackConflict"), "later commits removed or renamed deploy/web.yaml")
		s.has("Rename", "web: v2", "web: v1")
	})
}

// A revert that cannot be made is not pushed: the cluster's rollback stands, and the
// condition says what is in the way.
func TestWriteBackConflict(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack)
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v2", "web:v2\n", "web:v2 # as ordered\n")}, "A comment")
	s.applied(s.repo.Head())
	s.rollBack("web")
	message := s.differs("WriteBackConflict")
	for _, want := range []string{"BatchRelease " + s.ns + "/web", "deploy/web.yaml changed since in the same lines", "by hand"} {
		if !strings.Contains(message, want) {
			t.Errorf("the message is without %q", want)
		}
	}
	s.has("A comment", "web: v2", "web: v1")
	s.isAt("web", "RolledBack", 1)
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v1")}, "By hand")
	s.rolledBack("web")
	s.ends("By hand", "A comment", "web: v2", "web: v1")
	if c := s.inSync(); c.Status != metav1.ConditionTrue {
		t.Errorf("InSync is %s: %s", c.Status, c.Message)
	}
}

// A release that had superseded another goes back to what was stable before
// both: both are reverted.
func TestWriteBackSuperseded(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack)
	s.repo.CommitAndPush(map[string]string{"README.md": "docs\n"}, "Docs")
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v3")}, "web: v3")
	s.applied(s.repo.Head())
	s.isAt("web", "WaitingForApproval", 0)
	s.rollBack("web")
	s.rolledBack("web")
	s.ends("Revert web to "+s.release("web").Status.StableRevision, "web: v3", "Docs", "web: v2", "web: v1")
	if diff := s.inBare("diff", "--name-only", "main", "main~4"); diff != "README.md" {
		t.Errorf("to v1 the branch differs in %s", diff)
	}
	body := s.inBare("log", "-1", "--format=%b", "main")
	for _, c := range []string{"main~1", "main~3"} {
		if want := "This reverts commit " + s.inBare("rev-parse", c) + "."; !strings.Contains(body, want) {
			t.Errorf("the message is without %q:\n%s", want, body)
		}
	}
}

// api is web under another name.
func api(version string) map[string]string {
	return map[string]string{
		"deploy/api.yaml":      strings.ReplaceAll(web(version), "web", "api"),
		"deploy/api-plan.yaml": strings.ReplaceAll(webPlan, "web", "api"),
	}
}

// beginBoth has v1 of web and api in the cluster, and v2 of both at its first gate, by one
// commit.
func (s *env) beginBoth() {
	s.Helper()
	both := func(version string) map[string]string {
		files := manifests(version)
		for name, text := range api(version) {
			files[name] = text
		}
		return files
	}
	s.applied2(s.repo.CommitAndPush(both("v1"), "Both: v1"), writesBack)
	s.isAt("web", "ReleaseCompleted", 1)
	s.isAt("api", "ReleaseCompleted", 1)
	s.repo.CommitAndPush(both("v2"), "Both: v2")
	s.isAt("web", "WaitingForApproval", 0)
	s.isAt("api", "WaitingForApproval", 0)
}

// Two decisions that no sync has committed yet are two commits of one push, the one on the
// other. The branch gets both.
func TestWriteBackOfTwoDecisionsAtOnce(t *testing.T) {
	t.Parallel()
	for name, decide := range map[string]func(s *env) (what, subject string){
		"two approvals": func(s *env) (what, subject string) {
			s.approve("api")
			return "approval of step 0 of " + s.ns + "/api", "Approve step 0 of api"
		},
		"an approval and a rollback": func(s *env) (what, subject string) {
			s.rollBack("api")
			return "rollback of " + s.ns + "/api", "Revert \"Both: v2\""
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, andRollout)
			s.beginBoth()
			accept := s.hook("pre-receive", "echo 'not now' >&2; exit 1")
			s.approve("web")
			what, subject := decide(s)
			clustertest.Wait(t, "a push of both to be refused", func() error {
				s.lookNow()
				m := s.inSync().Message
				if !strings.Contains(m, what) || !strings.Contains(m, "approval of step 0 of "+s.ns+"/web") {
					return errors.New(m)
				}
				return nil
			})
			accept()
			s.lookNow()
			clustertest.Wait(t, "both commits", func() error {
				got := s.subjects("main")
				for _, want := range []string{"Approve step 0 of web", subject} {
					if len(got) != 4 || !slices.Contains(got[:2], want) {
						return withSource(s, fmt.Errorf("the branch has %q, want %q", got, want))
					}
				}
				return nil
			})
			clustertest.Wait(t, "an event for each commit", func() error {
				want := strings.Split(s.inBare("log", "-2", "--abbrev=12", "--format=main@%h: %s", "main"), "\n")
				got := s.events("WrittenBack")
				slices.Sort(want)
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					return fmt.Errorf("(-want +got):\n%s", diff)
				}
				return nil
			})
			s.inBare("fsck", "--strict", "--no-dangling")
			s.isAt("web", "ReleaseCompleted", 1)
		})
	}
}

// One commit that brings two releases: where one goes back, the other stays;
// where both do, one revert takes both back.
func TestWriteBackOfTwo(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.beginBoth()
	s.rollBack("web")
	s.ends("Revert \"Both: v2\"", "Both: v2", "Both: v1")
	s.rolledBack("web")
	if diff := s.inBare("diff", "--name-only", "main~1", "main"); diff != "deploy/web.yaml" {
		t.Errorf("the revert changes %s", diff)
	}
	s.isAt("api", "WaitingForApproval", 0)
	s.rollBack("api")
	s.has("Revert \"Both: v2\"", "Revert \"Both: v2\"", "Both: v2", "Both: v1")
	s.rolledBack("api")
}

// hook puts a hook into the bare repository.
func (s *env) hook(name, script string) (remove func()) {
	s.Helper()
	file := filepath.Join(s.repo.Bare, "hooks", name)
	s.must(os.MkdirAll(filepath.Dir(file), 0o755))
	s.must(os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755))
	return func() { s.must(os.Remove(file)) }
}

// A user takes our revert back in the very moment in which it is pushed, so that the
// branch never shows it as its tip. The change is released again, from the commit that
// brought it again, and waits for an approval of its own.
func TestWriteBackTakenBack(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack)
	failed := s.release("web").Spec.Commit
	s.hook("post-receive", `
test -e taken-back && exit 0
touch taken-back
export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@example.org GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@example.org
git update-ref refs/heads/main $(git commit-tree -p main -m 'Reapply "web: v2"' 'main~1^{tree}')
`)
	s.rollBack("web")
	s.has("Reapply \"web: v2\"", "Revert \"web: v2\"", "web: v2", "web: v1")
	s.isAt("web", "WaitingForApproval", 0)
	br := s.release("web")
	if tip := s.inBare("rev-parse", "main"); br.Spec.Commit != tip || br.Spec.Commit == failed {
		t.Errorf("released from %s, and the commit that brought it again is %s", br.Spec.Commit, tip)
	}
	if h := br.Status.History; len(h) == 0 || h[0].Outcome != v1alpha1.OutcomeRolledBack || h[0].Commit != failed {
		t.Errorf("history %+v", h)
	}
}

// A server refuses the push. The cluster's rollback stands, the failed revision is not
// tried again, and the condition has the server's own words. Once the server takes it,
// the commit is there.
func TestWriteBackRejected(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack)
	remove := s.hook("pre-receive", `echo "only signed commits, please; not from https://bot:hush@git.example.org" >&2; exit 1`)
	s.rollBack("web")
	message := s.differs("PushRejected")
	for _, want := range []string{"main", "pre-receive hook declined", "only signed commits, please", "https://git.example.org", "rollback of " + s.ns + "/web", "spec.writeBack.branch"} {
		if !strings.Contains(message, want) {
			t.Errorf("the message is without %q: %s", want, message)
		}
	}
	if strings.Contains(message, "hush") {
		t.Errorf("the message has a password in it: %s", message)
	}
	s.isAt("web", "RolledBack", 1)
	if ready := meta.FindStatusCondition(s.gs().Status.Conditions, "Ready"); ready.Status != metav1.ConditionTrue {
		t.Errorf("Ready is %s: %s", ready.Status, ready.Message)
	}
	s.has("web: v2", "web: v1")
	remove()
	s.ends("Revert \"web: v2\"", "web: v2", "web: v1")
	s.rolledBack("web")
}

// Credentials that may only read are said to be just that.
func TestWriteBackReadOnly(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.String(), "git-receive-pack") {
				http.Error(w, "read only", http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	s.beginRelease(writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.URL = server.URL + "/" + filepath.Base(s.repo.Bare) })
	s.approve("web")
	if message := s.differs("PushRejected"); !strings.Contains(message, "read, but not push") || !strings.Contains(message, "approval of step 0 of "+s.ns+"/web") {
		t.Errorf("the message is %s", message)
	}
}

// Without write-back the condition says what Git says differently.
func TestWriteBackOff(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	plan := strings.Replace(webPlan, "    - replicas: 100%", "    - replicas: 1\n    - replicas: 100%", 1)
	s.applied2(s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v1"), "deploy/plan.yaml": plan}, "web: v1"))
	s.isAt("web", "ReleaseCompleted", 2)
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v2")}, "web: v2")
	s.isAt("web", "WaitingForApproval", 0)
	s.approve("web")
	s.isAt("web", "WaitingForApproval", 1)
	if message := s.differs("ApprovedInCluster"); !strings.Contains(message, "step 0") || !strings.Contains(message, "commit the approval to deploy/approvals/web.yaml") {
		t.Errorf("the message is %s", message)
	}
	s.rollBack("web")
	message := s.differs("RolledBackInCluster")
	for _, want := range []string{"went back from", "main@" + s.repo.Head()[:12] + " still says", "git revert"} {
		if !strings.Contains(message, want) {
			t.Errorf("the message is without %q", want)
		}
	}
	s.isAt("web", "RolledBack", 2)
	s.repo.Revert("HEAD")
	s.repo.Push()
	s.rolledBack("web")
	s.has("Revert \"web: v2\"", "web: v2", "web: v1")
	if c := s.inSync(); c.Status != metav1.ConditionTrue {
		t.Errorf("InSync is %s: %s", c.Status, c.Message)
	}
}

// A branch for review has the revert, and the watched one does not move until a user
// merges it.
func TestWriteBackReview(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack.Branch = "tranche/review" })
	s.rollBack("web")
	if message := s.differs("WaitingForReview"); !strings.Contains(message, "branch tranche/review does; merge it into main") {
		t.Errorf("the message is %s", message)
	}
	for range 2 {
		s.lookNow()
	}
	if got := s.subjects("tranche/review"); !slices.Equal(got, []string{"Revert \"web: v2\"", "web: v2", "web: v1"}) {
		t.Errorf("for review: %q", got)
	}
	s.has("web: v2", "web: v1")
	s.isAt("web", "RolledBack", 1)
	s.repo.CommitAndPush(map[string]string{"README.md": "docs\n"}, "Docs")
	s.applied(s.repo.Head())
	s.repo.Git("fetch", "-q", "origin")
	s.repo.Git("merge", "-q", "--no-ff", "-m", "Merge the revert", "origin/tranche/review")
	s.repo.Push()
	s.rolledBack("web")
	s.applied(s.repo.Head())

	// The next time it moves forward from where it was left.
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": web("v3")}, "web: v3")
	s.isAt("web", "WaitingForApproval", 0)
	s.rollBack("web")
	s.differs("WaitingForReview")
	if got := s.subjects("tranche/review")[0]; got != "Revert \"web: v3\"" {
		t.Errorf("for review: %s", got)
	}
	if base := s.inBare("merge-base", "main", "tranche/review"); base != s.repo.Head() {
		t.Errorf("it is on top of %s", base)
	}
}

// With a branch for review, an approval given in the cluster opens no gate
// until it is merged.
func TestWriteBackReviewOfApproval(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack.Branch = "tranche/review" })
	s.approve("web")
	s.isAt("web", "WaitingForReview", 0)
	s.differs("WaitingForReview")
	s.lookNow()
	s.isAt("web", "WaitingForReview", 0)
	if got := s.subjects("tranche/review"); !slices.Equal(got, []string{"Approve step 0 of web", "web: v2", "web: v1"}) {
		t.Errorf("for review: %q", got)
	}
	s.repo.Git("fetch", "-q", "origin")
	s.repo.Git("merge", "-q", "--ff-only", "origin/tranche/review")
	s.repo.Push()
	s.isAt("web", "ReleaseCompleted", 1)
	s.ends("Approve step 0 of web", "web: v2", "web: v1")
	if by := s.release("web").Status.History[0].Approvals[0]; by.By != "tranche <noreply@tranche.dev>" || by.Commit != s.inBare("rev-parse", "main") {
		t.Errorf("approved by %+v", by)
	}
}

// Two releases of one file cannot be distinguished. If one goes back, nothing is
// pushed, and if both do, one revert says so of both.
func TestWriteBackOfTwoInOneFile(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	kustomization := func(version string) map[string]string {
		return map[string]string{"deploy/kustomization.yaml": "resources: [web.yaml, plan.yaml, api.yaml, api-plan.yaml]\nconfigMapGenerator:\n- name: settings\n  literals: [version=" + version + "]\n"}
	}
	files := kustomization("v1")
	for name, text := range map[string]string{"deploy/web.yaml": web("v1"), "deploy/plan.yaml": webPlan} {
		text = strings.ReplaceAll(text, "        env:\n", "        envFrom: [{configMapRef: {name: settings}}]\n        env:\n")
		files[name] = text
		files[strings.NewReplacer("web", "api", "plan", "api-plan").Replace(name)] = strings.ReplaceAll(text, "web", "api")
	}
	s.applied2(s.repo.CommitAndPush(files, "Both: v1"), writesBack)
	s.isAt("web", "ReleaseCompleted", 1)
	s.isAt("api", "ReleaseCompleted", 1)
	s.repo.CommitAndPush(kustomization("v2"), "Settings: v2")
	s.isAt("web", "WaitingForApproval", 0)
	s.isAt("api", "WaitingForApproval", 0)
	s.rollBack("web")
	if message := s.differs("WriteBackConflict"); !strings.Contains(message, "it would move "+s.ns+"/api, too") {
		t.Errorf("the message is %s", message)
	}
	s.rollBack("api")
	s.rolledBack("web")
	s.rolledBack("api")
	s.ends("Revert \"Settings: v2\"", "Settings: v2", "Both: v1")
	if diff := s.inBare("diff", "--name-only", "main", "main~2"); diff != "" {
		t.Errorf("to v1 the branch differs in %s", diff)
	}
	if got := strings.Count(s.inBare("log", "-1", "--format=%b", "main"), "Tranche-Release: "); got != 2 {
		t.Errorf("the message names %d releases", got)
	}
}

// The commits are by whom, and signed with what, the source says; without the
// key nothing is pushed.
func TestWriteBackSigned(t *testing.T) {
	t.Parallel()
	s := newRelease(t, writesBack, func(gs *v1alpha1.GitSource) {
		gs.Spec.WriteBack.Author = &v1alpha1.Signature{Name: "Release robot", Email: "robot@example.org"}
		gs.Spec.WriteBack.Committer = &v1alpha1.Signature{Name: "tranche", Email: "tranche@example.org"}
		gs.Spec.WriteBack.SigningKey = &v1alpha1.LocalObjectReference{Name: "signing"}
	})
	s.rollBack("web")
	if message := s.differs("SecretNotFound"); !strings.Contains(message, "spec.writeBack.signingKey: there is no Secret "+s.ns+"/signing") {
		t.Errorf("the message is %s", message)
	}
	s.has("web: v2", "web: v1")
	block, err := ssh.MarshalPrivateKey(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), "")
	s.must(err)
	signer, err := ssh.ParsePrivateKey(pem.EncodeToMemory(block))
	s.must(err)
	s.must(s.c.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "signing"}, Data: map[string][]byte{"identity": pem.EncodeToMemory(block)},
	}))
	s.ends("Revert \"web: v2\"", "web: v2", "web: v1")
	allowed := filepath.Join(t.TempDir(), "allowed_signers")
	s.must(os.WriteFile(allowed, append([]byte("tranche@example.org "), ssh.MarshalAuthorizedKey(signer.PublicKey())...), 0o600))
	if got := s.inBare("-c", "gpg.ssh.allowedSignersFile="+allowed, "log", "-1", "--format=%G? %GS, %an <%ae>, %cn <%ce>", "main"); got != "G tranche@example.org, Release robot <robot@example.org>, tranche <tranche@example.org>" {
		t.Errorf("git says %s", got)
	}
}

// A push whose answer is lost was made, and is not made again; one that the
// server is not there for is made later.
func TestWriteBackUnanswered(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	var lost atomic.Int32
	s := newEnv(t, andRollout)
	server := gittest.Serve(t, filepath.Dir(s.repo.Bare), gittest.ServeOptions{Wrap: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch push := strings.Contains(r.URL.String(), "git-receive-pack"); {
			case push && down.Load():
				http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
			case push && r.Method == http.MethodPost && lost.Add(1) == 1:
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}})
	down.Store(true)
	s.beginRelease(writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.URL = server.URL + "/" + filepath.Base(s.repo.Bare) })
	s.rollBack("web")
	if message := s.differs("WriteBackFailed"); !strings.Contains(message, "503") || !strings.Contains(message, "not written back: rollback of "+s.ns+"/web") {
		t.Errorf("the message is %s", message)
	}
	s.has("web: v2", "web: v1")
	down.Store(false)
	s.ends("Revert \"web: v2\"", "web: v2", "web: v1")
	s.rolledBack("web")
	if n := lost.Load(); n != 1 {
		t.Errorf("pushed %d times", n)
	}
}

// An approval that is to be reviewed is for the steps that the plan has. Neither an
// approval on the watched branch nor one on the branch for review covers it that is
// for other steps: it is committed again.
func TestReviewOfAnApprovalForOtherSteps(t *testing.T) {
	t.Parallel()
	s := newIdleEnv(t)
	stop := s.startController(andRollout)
	t.Cleanup(func() { stop() })
	s.applied2(s.push(map[string]string{"deploy/web.yaml": four("v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")}),
		writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.WriteBack.Branch = "tranche/review" })
	s.isAt("web", "ReleaseCompleted", 2)
	r := s.recordSizes("v2")
	v2 := s.push(map[string]string{"deploy/web.yaml": four("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	revision := s.release("web").Status.UpdateRevision

	// On the watched branch there is one for 50 %, and the step has 3 pods by now.
	stop()
	s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", revision, v2, "0")})
	s.applyNext(func() { stop = s.startController(andRollout) }, planOf("web", "1", "3", "100%"))
	s.isAt("web", "WaitingForApproval", 0)
	s.asks(1)

	// On the branch for review there is one for 3 pods, and the step has 2 again.
	s.applyNext(func() {}, planOf("web", "1", "2", "100%"))
	s.isAt("web", "WaitingForApproval", 0)
	s.asks(2)
	r.atMost(1)

	s.repo.Git("fetch", "-q", "origin", "tranche/review")
	s.repo.Git("merge", "-q", "--ff-only", "FETCH_HEAD")
	s.repo.Push()
	s.isAt("web", "WaitingForApproval", 1)
	r.atMost(2)
	s.says("True InSync")
}

// A gate that was opened in the cluster led to 2 pods. Git could not have it before a
// commit raises that step. The approval is none of the step that the branch has by now.
func TestWriteBackApproval_OtherSteps(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	s.applied2(s.push(map[string]string{"deploy/web.yaml": four("v1"), "deploy/release.yaml": planOf("web", "1", "50%", "100%")}), writesBack)
	s.isAt("web", "ReleaseCompleted", 2)
	r := s.recordSizes("v2")
	s.repo.CommitAndPush(map[string]string{"deploy/web.yaml": four("v2")}, "web: v2")
	s.isAt("web", "WaitingForApproval", 0)
	remove := s.hook("pre-receive", `while read -r _ new _; do test "$(git log -1 --format=%an "$new")" != tranche || exit 1; done`)
	s.approve("web")
	s.isAt("web", "WaitingForApproval", 1)
	s.differs("PushRejected")
	raised := s.repo.CommitAndPush(map[string]string{"deploy/release.yaml": planOf("web", "1", "3", "100%")}, "web: 3 pods")
	s.applied(raised)
	s.isAt("web", "WaitingForApproval", 0)
	remove()
	for range 3 {
		s.lookNow()
	}
	s.isAt("web", "WaitingForApproval", 0)
	s.runs("web", map[string]int32{"v1": 2, "v2": 2})
	r.atMost(2)
	if tip := s.inBare("rev-parse", "main"); tip != raised {
		t.Errorf("it is committed: %q", s.subjects("main"))
	}
	s.says("True InSync")
	s.approve("web")
	s.isAt("web", "WaitingForApproval", 1)
	s.runs("web", map[string]int32{"v1": 1, "v2": 3})
}

// applyNext pushes a plan and waits until it is applied.
func (s *env) applyNext(start func(), plan string) {
	s.Helper()
	c := s.push(map[string]string{"deploy/release.yaml": plan})
	start()
	s.applied(c)
}

// asks approves a step in the cluster, and waits until the branch for review has as
// many approvals of it that main does not have.
func (s *env) asks(times int) {
	s.Helper()
	s.approve("web")
	clustertest.Wait(s, fmt.Sprintf("%d approvals on the branch for review", times), func() error {
		if s.inBare("for-each-ref", "refs/heads/tranche/review") == "" {
			return fmt.Errorf("there is no such branch\n%s", said(s.gs()))
		}
		if n := strings.Count(s.inBare("log", "--format=%s", "tranche/review", "^main"), "Approve step 0 of web"); n != times {
			return withSource(s, fmt.Errorf("there are %d", n))
		}
		return nil
	})
	s.differs("WaitingForReview")
}
