package status

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// waiting is a release of 10 pods that waits for an approval of its step 1.
func waiting() *releaseView {
	template := func(image string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.org/web:" + image}}}}
	}
	br := clitest.Release()
	set := func(hash, image string, n int32, age time.Duration) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: "web-" + hash, Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}, CreationTimestamp: *clitest.Before(age)},
			Spec:       appsv1.ReplicaSetSpec{Replicas: &n, Template: template(image)},
			Status:     appsv1.ReplicaSetStatus{Replicas: n, AvailableReplicas: n},
		}
	}
	return &releaseView{view.Facts{
		Now: clitest.Noon, Release: br,
		Source:     clitest.Source(),
		Deployment: &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{v1alpha1.LabelHeld: "web"}}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](10)}},
		Sets:       []*appsv1.ReplicaSet{set("5584f4c7df", "v2", 5, 7*time.Minute), set("58d874c89d", "v1", 5, 26*time.Hour)},
	}}
}

// views are the same release in other states.
func views() map[string]func(*releaseView) {
	at := func(edit func(*releaseView, *v1alpha1.BatchReleaseStatus)) func(*releaseView) {
		return func(s *releaseView) { edit(s, &s.Release.Status) }
	}
	verified := func(s *releaseView) { s.Source.Spec.Verify = &v1alpha1.CommitVerification{} }
	return map[string]func(*releaseView){
		"waiting": func(*releaseView) {},
		"upgrading": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			at.CurrentStepState, at.UpdatedAvailableReplicas = v1alpha1.StepUpgrade, 3
			at.Reason, at.Message = "Upgrading", "3 of 5 pods of 5584f4c7df are available"
			s.Sets[0].Status.AvailableReplicas = 3
		}),
		"pause": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			at.CurrentStepIndex, at.UpdatedReplicas, at.UpdatedAvailableReplicas = 2, 8, 8
			at.Reason, at.Message = "WaitingForPause", "8 of 10 pods run 5584f4c7df; goes on at 12:08"
		}),
		"paused": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			s.Release.Spec.Paused = true
			at.Reason, at.Message = "ReleasePaused", "the plan is paused; 5 of 10 pods run 5584f4c7df"
		}),
		"pausedapproved": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			s.Release.Spec.Paused = true
			s.Release.Spec.Approval = &v1alpha1.Approval{Revision: at.UpdateRevision, Commit: s.Release.Spec.Commit, Step: 1, ApprovedBy: "grace@example.org", ApprovedIn: "90f3b1d00aa0c28d103508da1c5c8a4b7f1c1f6e"}
			at.UpdateCommit = s.Release.Spec.Commit
			at.Reason, at.Message = "ReleasePaused", "the plan is paused; 5 of 10 pods run 5584f4c7df"
		}),
		"deleted": func(s *releaseView) {
			s.Release.Annotations = map[string]string{v1alpha1.AnnotationReturns: "90f3b1d00aa0c28d103508da1c5c8a4b7f1c1f6e"}
			s.Release.DeletionTimestamp, s.Release.Finalizers = clitest.Before(time.Minute), []string{"example.org/hostage"}
		},
		"signed":           func(s *releaseView) { s.Release.Spec.RequireSignedApprovals = true },
		"verified":         verified,
		"verifieddeadline": func(s *releaseView) { verified(s); s.Release.Status.Reason = "ProgressDeadlineExceeded" },
		"verifiedpaused":   func(s *releaseView) { verified(s); s.Release.Status.Reason = "ReleasePaused" },
		"back": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			at.RollingBack, at.Reason, at.Message = true, "RollingBack", "10 of 10 pods run 58d874c89d, 8 of them available"
			at.UpdateRevision, at.CurrentStepState, at.Approvals = at.StableRevision, v1alpha1.StepUpgrade, nil
			at.UpdatedReplicas, at.UpdatedReadyReplicas, at.UpdatedAvailableReplicas = 10, 8, 8
			s.Release.Spec.Template = &s.Sets[1].Spec.Template
			s.Sets = s.Sets[1:]
			*s.Sets[0].Spec.Replicas, s.Sets[0].Status = 10, appsv1.ReplicaSetStatus{Replicas: 10, AvailableReplicas: 8}
		}),
		"rolledback": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			at.Phase, at.FailedRevision, at.FailedCommit = v1alpha1.PhaseCompleted, "5584f4c7df", s.Release.Spec.Commit
			at.UpdateRevision, at.CurrentStepIndex, at.UpdatedReplicas, at.UpdatedAvailableReplicas = "58d874c89d", 3, 10, 10
			at.Reason, at.Message = "RolledBack", "back at 58d874c89d; 5584f4c7df is not tried again"
		}),
		"deadline": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			at.CurrentStepState, at.UpdatedAvailableReplicas = v1alpha1.StepUpgrade, 2
			at.Reason, at.Message = "ProgressDeadlineExceeded", "2 of 5 pods are available after 600s"
		}),
		"completed": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			at.Phase, at.CurrentStepIndex, at.CurrentStepState, at.UpdatedReplicas, at.UpdatedAvailableReplicas = v1alpha1.PhaseCompleted, 3, v1alpha1.StepCompleted, 10, 10
			at.StableRevision, at.Reason, at.Message = at.UpdateRevision, "ReleaseCompleted", "10 of 10 pods run 5584f4c7df"
			at.History = append([]v1alpha1.ReleaseRecord{{Revision: at.UpdateRevision, Outcome: v1alpha1.OutcomeCompleted, EndTime: *clitest.Before(0), Approvals: at.Approvals}}, at.History...)
			at.Approvals = nil
			delete(s.Deployment.Labels, v1alpha1.LabelHeld)
			s.Sets = s.Sets[:1]
			*s.Sets[0].Spec.Replicas, s.Sets[0].Status = 10, appsv1.ReplicaSetStatus{Replicas: 10, AvailableReplicas: 10}
		}),
		"nosource": func(s *releaseView) { s.Source, s.Release.Spec.Commit = nil, "" },
		"refused": func(s *releaseView) {
			s.Source.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "InvalidManifest", Message: "apps/web/service.yaml: Service shop/web: spec.ports[0].port: must be a number"}}
		},
		"unbegun": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) { // as the engine leaves it
			at.Phase, at.CurrentStepIndex, at.CurrentStepState, at.UpdateCommit = v1alpha1.PhaseInitial, 0, v1alpha1.StepInitial, s.Release.Spec.Commit
			at.UpdatedReplicas, at.UpdatedReadyReplicas, at.UpdatedAvailableReplicas, at.Approvals = 0, 0, 0, nil
			at.Reason, at.Message = "UnsupportedStrategy", "Deployment web: spec.strategy.type: Recreate cannot be released in batches; use RollingUpdate, or remove the plan"
			delete(s.Deployment.Labels, v1alpha1.LabelHeld)
			s.Sets = s.Sets[1:]
			*s.Sets[0].Spec.Replicas, s.Sets[0].Status = 10, appsv1.ReplicaSetStatus{Replicas: 10, AvailableReplicas: 10}
		}),
		"newer": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			at.UpdateCommit, s.Release.Spec.Commit = s.Release.Spec.Commit, "7d1e0c2f90a1"
			s.Release.Spec.Template = s.Release.Spec.Template.DeepCopy()
			s.Release.Spec.Template.Spec.Containers[0].Image = "registry.example.org/web:v3"
			at.Reason, at.Message = "UnsupportedStrategy", "Deployment web: spec.strategy.type: Recreate cannot be released in batches; use RollingUpdate, or remove the plan"
		}),
		"missing": at(func(s *releaseView, at *v1alpha1.BatchReleaseStatus) {
			s.Deployment, s.Sets = nil, nil
			at.Reason, at.Message = "DeploymentNotFound", "there is no Deployment web"
		}),
	}
}

// status prints the file in testdata/status for each state.
func TestStatus(t *testing.T) {
	for name, edit := range views() {
		t.Run(name, func(t *testing.T) {
			s := waiting()
			edit(s)
			clitest.Golden(t, filepath.Join("testdata", "status", name+".txt"), s.text(terminal.Style{}))
		})
	}
	clitest.Golden(t, filepath.Join("testdata", "status", "picture.svg"), view.NewRelease(&waiting().Facts).SVG())
	measured := waiting()
	clitest.Measure(measured.Release)
	clitest.Golden(t, filepath.Join("testdata", "status", "measured.txt"), measured.text(terminal.Style{}))
	clitest.Golden(t, filepath.Join("testdata", "status", "measured.svg"), view.NewRelease(&measured.Facts).SVG())
	clitest.Golden(t, filepath.Join("testdata", "status", "colour.txt"), waiting().text(terminal.Style{Colour: true}))
}

func TestGet(t *testing.T) {
	list := func() []v1alpha1.BatchRelease {
		back, done, young := waiting(), waiting(), waiting()
		views()["back"](back)
		views()["completed"](done)
		done.Release.Name = "done"
		back.Release.Name, back.Release.Namespace = "api", "other"
		young.Release.Name, young.Release.Status = "young", v1alpha1.BatchReleaseStatus{}
		return []v1alpha1.BatchRelease{*back.Release, *done.Release, *waiting().Release, *young.Release}
	}
	for name, tc := range map[string]struct {
		output     string
		namespaces bool
	}{"table": {"table", false}, "all": {"table", true}, "wide": {"wide", false}, "name": {"name", false}, "yaml": {"yaml", false}, "json": {"json", false}} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := printReleases(&out, list(), tc.output, tc.namespaces, false, clitest.Noon); err != nil {
				t.Fatal(err)
			}
			clitest.Golden(t, filepath.Join("testdata", "get", name+".txt"), out.String())
		})
	}
}

func TestHistory(t *testing.T) {
	api := waiting().Release.DeepCopy()
	api.Name, api.Spec.WorkloadRef.Name, api.Spec.Commit = "api", "api", "0011223344556677"
	api.Status.Phase, api.Status.History = v1alpha1.PhaseCompleted, api.Status.History[2:]
	api.Status.History[0].EndTime = *clitest.Before(25*time.Hour + time.Minute)
	h := historyOf([]v1alpha1.BatchRelease{*waiting().Release, *api}, time.Time{})
	for i := range h.Items { // as read from a clone
		if h.Items[i].Commit == "0011223344556677" {
			h.Items[i].Author, h.Items[i].Subject = "Bea <bea@example.org>", "web: v1"
		}
	}
	h.Items[2].Rejected = &Rejection{Commit: "ddccbbaa00112233", By: "Ada <ada@example.org>", Reason: "5 % of the requests fail"}
	clitest.Golden(t, filepath.Join("testdata", "history", "table.txt"), h.table(true, false))
	clitest.Golden(t, filepath.Join("testdata", "history", "all.txt"), h.table(true, true))
	for _, output := range []string{cli.OutputJSON, cli.OutputYAML} {
		var out bytes.Buffer
		if err := cli.PrintValue(&out, output, h); err != nil {
			t.Fatal(err)
		}
		clitest.Golden(t, filepath.Join("testdata", "history", output+".txt"), out.String())
	}
	measured := waiting().Release
	clitest.Measure(measured)
	table := historyOf([]v1alpha1.BatchRelease{*measured}, time.Time{}).table(false, false)
	clitest.Golden(t, filepath.Join("testdata", "history", "measured.txt"), table)
	one := historyOf([]v1alpha1.BatchRelease{*waiting().Release}, clitest.Noon.Add(-27*time.Hour))
	clitest.Golden(t, filepath.Join("testdata", "history", "since.txt"), one.table(false, false))
}

// Answers of providers are in messages. They do not act on the terminal.
func TestStatus_IsPrintable(t *testing.T) {
	s := waiting()
	clitest.Measure(s.Release)
	at := &s.Release.Status
	at.Message, at.Analysis.Metrics[0].Update = "the provider says \x1b[2J", "\x1b]0;x\a/1"
	if text := s.text(terminal.Style{}); strings.ContainsAny(text, "\x1b\a") {
		t.Errorf("%q", text)
	}
}

// The author of a commit is the one that the cluster has recorded, else the one of the
// commit itself, and else unknown. A replacement object of the clone does not count.
func TestHistoryAuthor(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-c", "user.name=Bea", "-c", "user.email=bea@example.org", "-c", "init.defaultBranch=main"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "--quiet")
	git("commit", "--quiet", "--allow-empty", "-m", "web: v1")
	released := git("rev-parse", "HEAD")
	git("commit", "--quiet", "--allow-empty", "--amend", "--author=Mallory <m@example.org>", "-m", "web: v0")
	git("replace", released, "HEAD")
	br := waiting().Release
	br.Status.UpdateCommit = br.Spec.Commit
	br.Annotations = map[string]string{v1alpha1.AnnotationCommitAuthor: "Ada\x1b[2J <ada@example.org>"}
	br.Status.History[0].Commit = released
	h := historyOf([]v1alpha1.BatchRelease{*br}, time.Time{})
	h.readCommits(t.Context())
	var got []string
	for i := range h.Items {
		got = append(got, h.Items[i].author())
	}
	if want := []string{"Ada\ufffd[2J <ada@example.org>", "Bea <bea@example.org>", authorUnknown}; !slices.Equal(got[:3], want) {
		t.Errorf("authors are %q, want %q", got, want)
	}
}

// An output that is not a terminal gets a line per change, and none for times that only
// grow.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	show := lines(&out)
	s := waiting()
	for range 2 {
		s.Now = s.Now.Add(time.Minute)
		if err := show(s, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := show(nil, errors.New("no\nanswer")); err != nil {
		t.Fatal(err)
	}
	views()["upgrading"](s)
	if err := show(s, nil); err != nil {
		t.Fatal(err)
	}
	clitest.Golden(t, filepath.Join("testdata", "status", "lines.txt"), out.String())
}

// native is a rollout of the native controller that is stuck, or not.
func native(stalled metav1.ConditionStatus) func(*releaseView) {
	return func(s *releaseView) {
		s.Release.Status.Phase, s.Release.Status.Reason = "", "NativeRollout"
		s.Release.Status.Conditions = []metav1.Condition{{Type: "Stalled", Status: stalled}}
	}
}

// applies has the source apply these commits, one in each view.
func applies(commits ...string) func(*releaseView) {
	at := 0
	return func(s *releaseView) {
		s.Source.Status.AppliedCommit = commits[min(at, len(commits)-1)]
		at++
	}
}

// The source says since when its commit holds: the controller writes none for a later commit
// that touches nothing of the source.
func TestSourceLine_SinceWhen(t *testing.T) {
	s := waiting()
	s.Source.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: v1alpha1.ManagerGitSync, Time: clitest.Before(time.Minute)},
		{Manager: v1alpha1.ManagerGitSync, Subresource: "status", Time: clitest.Before(3 * time.Hour)},
	}
	if line := s.sourceLine(terminal.Style{}); !strings.Contains(line, "applied 90f3b1d, as of 3h ago") {
		t.Error(line)
	}
}

// The message names the end of the time, though the client would rather not begin a request
// that it has to put off beyond it.
func TestWatchEndsInTime(t *testing.T) {
	limiter := flowcontrol.NewTokenBucketRateLimiter(0.001, 1)
	limiter.Accept()
	var out bytes.Buffer
	err := watchStatus(t.Context(), &out, statusOptions{timeout: 200 * time.Millisecond}, func(ctx context.Context) (*releaseView, error) {
		return nil, fmt.Errorf("client rate limiter: %w", limiter.Wait(ctx))
	})
	if cli.ExitCode(err) != cli.ExitTimeout || !strings.Contains(err.Error(), "the release is not over after 200ms") || out.Len() > 0 {
		t.Errorf("%v with %q", err, out.String())
	}
}

// When a release that is watched is over, and with which exit code.
func TestVerdict(t *testing.T) {
	commit := waiting().Release.Spec.Commit
	for _, tc := range []struct {
		reason, commit string
		seen           []string // names of views
		edit           func(*releaseView)
		over           bool
		code           int // 0: no error
	}{
		{"a gate is not the end", "", []string{"waiting"}, nil, false, 0},
		{"nor is a pause", "", []string{"pause", "paused"}, nil, false, 0},
		{"complete", "", []string{"waiting", "completed"}, nil, true, 0},
		{"complete already", "", []string{"completed"}, nil, true, 0},
		{"a status about another spec tells nothing", "", []string{"completed"}, func(s *releaseView) { s.Release.Generation++ }, false, 0},
		{"rolled back by itself", "", []string{"rolledback"}, nil, true, cli.ExitFailed},
		{"complete after a way back that was seen: reverted", "", []string{"back", "completed"}, nil, true, cli.ExitFailed},
		{"and one too quick to be seen", "", []string{"waiting", "completed"}, func(s *releaseView) { s.Release.Status.History[0].Outcome = v1alpha1.OutcomeRolledBack }, true, cli.ExitFailed},
		{"what was rolled back before the watch is no matter", "", []string{"completed"}, func(s *releaseView) { s.Release.Status.History[0].Outcome = v1alpha1.OutcomeRolledBack }, true, 0},
		{"a missed deadline", "", []string{"deadline"}, nil, true, cli.ExitFailed},
		{"no Deployment", "", []string{"missing"}, nil, true, cli.ExitFailed},
		{"a first install on its way", "", []string{"completed"}, native(metav1.ConditionFalse), false, 0},
		{"a first install that the native controller has given up", "", []string{"completed"}, native(metav1.ConditionTrue), true, cli.ExitFailed},
		{"of the commit asked for", commit[:10], []string{"completed"}, nil, true, 0},
		{"the last release, while the commit is on its way", "ffffffff", []string{"completed"}, nil, false, 0},
		{"a commit that changes no template", "90f3b1d", []string{"completed"}, nil, true, 0},
		{"a commit that changed nothing of the release, and was seen applied before the next one", "ffffffff", []string{"waiting", "completed"}, applies("ffffffffffff", "90f3b1d000"), true, 0},
		{"one that was applied together with the next one", "ccccccc", []string{"completed"}, applies("90f3b1d000"), true, 0},
		{"the same, while the release goes on", "ccccccc", []string{"waiting"}, applies("90f3b1d000"), false, 0},
		{"one that the branch does not have yet", "ddddddd", []string{"completed"}, applies("90f3b1d000"), false, 0},
		{"a commit that is refused", "ffffffff", []string{"completed"}, func(s *releaseView) {
			s.Source.Status.ObservedCommit = "ffffffffffff"
			s.Source.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "InvalidManifest"}}
		}, true, cli.ExitFailed},
		{"a commit that the API server refuses, which the source tries again", "ffffffff", []string{"completed"}, func(s *releaseView) {
			s.Source.Status.ObservedCommit = "ffffffffffff"
			s.Source.Status.Conditions = []metav1.Condition{
				{Type: "Ready", Status: metav1.ConditionFalse, Reason: "DryRunFailed"}, {Type: "Reconciling", Status: metav1.ConditionTrue, Reason: "Progressing"}, {Type: "Stalled", Status: metav1.ConditionFalse, Reason: "Idle"},
			}
		}, true, cli.ExitFailed},
		{"another commit that is refused", "ffffffff", []string{"completed"}, func(s *releaseView) {
			s.Source.Status.ObservedCommit = "eeeeeeeeeeee"
			s.Source.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "DryRunFailed"}}
		}, false, 0},
		{"a server of Git that does not answer after the commit was seen", "ffffffff", []string{"completed"}, func(s *releaseView) {
			s.Source.Status.ObservedCommit = "ffffffffffff"
			s.Source.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Timeout"}}
		}, false, 0},
		{"a commit that reverts, asked for by its own name", commit[:10], []string{"back", "completed"}, nil, true, 0},
		{"a commit that was reverted", "8899aab", []string{"waiting"}, nil, true, cli.ExitFailed},
		{"a commit that was released, then another one", "0011223", []string{"waiting"}, nil, true, 0},
		{"a commit that was released, and rolled back since", "0011223", []string{"waiting"}, func(s *releaseView) {
			s.Release.Status.History = append([]v1alpha1.ReleaseRecord{{Revision: "7cb9898744", Commit: "a1b2c3d4e5f60718", Outcome: v1alpha1.OutcomeCompleted, Rollback: true}}, s.Release.Status.History...)
		}, true, cli.ExitFailed},
	} {
		v := verdict{commit: tc.commit, contains: func(_, _, tip string) bool { return tc.commit == "ccccccc" && tip == "90f3b1d000" }}
		var over bool
		var err error
		for _, name := range tc.seen {
			s := waiting()
			views()[name](s)
			if tc.edit != nil {
				tc.edit(s)
			}
			over, err = v.see(s)
		}
		code := 0
		if err != nil {
			code = cli.ExitCode(fmt.Errorf("wrapped: %w", err))
		}
		if over != tc.over || code != tc.code {
			t.Errorf("%s: over %t with %d (%v), want %t with %d", tc.reason, over, code, err, tc.over, tc.code)
		}
	}
}

// A commit that is refused is a failure, though its approval or its rollback of the
// release counts: the error says so.
func TestVerdict_RefusedAndCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*releaseView)
		want string
	}{
		"nothing counts": {func(*releaseView) {}, ""},
		"a rollback":     {func(s *releaseView) { s.Release.Spec.Commit = "ffffffffffff" }, "; its rollback of shop/web counts all the same: WaitingForApproval: "},
		"an approval": {func(s *releaseView) { s.Release.Spec.Approval = &v1alpha1.Approval{ApprovedIn: "ffffffffffff"} },
			"; its approval of shop/web counts all the same: WaitingForApproval: "},
	} {
		s := waiting()
		tc.edit(s)
		s.Source.Status.ObservedCommit = "ffffffffffff"
		s.Source.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "DryRunFailed", Message: "a port"}}
		v := verdict{commit: "ffffffff"}
		over, err := v.see(s)
		if !over || cli.ExitCode(err) != cli.ExitFailed || !strings.Contains(err.Error(), "DryRunFailed: a port"+tc.want) || tc.want == "" && strings.Contains(err.Error(), "counts") {
			t.Errorf("%s: over %t, %v", name, over, err)
		}
	}
}

// Whether a commit that is to bring a release first still may.
func TestComes(t *testing.T) {
	source := func(observed, applied, reason string) v1alpha1.GitSource {
		gs := v1alpha1.GitSource{Status: v1alpha1.GitSourceStatus{ObservedCommit: observed, AppliedCommit: applied}}
		gs.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: reason, Message: "service.yaml: port"}}
		if reason == "Applied" {
			gs.Status.Conditions[0].Status = metav1.ConditionTrue
		}
		return gs
	}
	for _, tc := range []struct {
		reason  string
		sources []v1alpha1.GitSource
		over    bool
		code    int
	}{
		{"no source", nil, true, 0},
		{"the commit is on its way", []v1alpha1.GitSource{source("1111111111", "", "Timeout")}, false, 0},
		{"another source refuses another commit", []v1alpha1.GitSource{source("1111111111", "", "DryRunFailed")}, false, 0},
		{"it is refused", []v1alpha1.GitSource{source("1111111111", "1111111111", "Applied"), source("ffffffffff", "", "DryRunFailed")}, true, cli.ExitFailed},
		{"it is applied with the next one, and brings no such release", []v1alpha1.GitSource{source("2222222222", "2222222222", "Applied")}, true, 0},
		{"it is applied, and brings no such release", []v1alpha1.GitSource{source("ffffffffff", "ffffffffff", "Applied")}, true, 0},
	} {
		over, err := comes(tc.sources, "fffffff", func(_, _, tip string) bool { return tip == "2222222222" })
		code := 0
		if err != nil {
			code = cli.ExitCode(err)
		}
		if over != tc.over || code != tc.code {
			t.Errorf("%s: over %t with %d (%v), want %t with %d", tc.reason, over, code, err, tc.over, tc.code)
		}
	}
}
