package commit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// commandIn makes a clone in which each commit writes a file, and a release
// that comes from the last of them. No cluster is there. A text "a => b" replaces
// a in the file, and is the content of a file that is named beside it.
func commandIn(t *testing.T, commits ...[2]string) (*commitCommand, []string) {
	t.Helper()
	dir := t.TempDir()
	s := clitest.Clone{TB: t, Dir: filepath.Join(dir, "clone")}
	for k, v := range map[string]string{"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org"} {
		t.Setenv(k, v)
	}
	clitest.Run(t, dir, "git", "init", "--quiet", "--initial-branch=main", s.Dir)
	if err := os.CopyFS(s.Dir, os.DirFS("../../../examples/web")); err != nil {
		t.Fatal(err)
	}
	var hashes []string
	for i, c := range append([][2]string{{"README.md", "the first\n"}}, commits...) {
		file, beside, _ := strings.Cut(c[0], " ")
		if beside != "" {
			s.Write(beside, c[1])
		}
		if from, to, ok := strings.Cut(c[1], " => "); ok {
			s.Replace(file, from, to)
		} else {
			s.Write(c[0], c[1])
		}
		s.Run("git", "add", ".")
		s.Run("git", "commit", "--quiet", "-m", fmt.Sprintf("commit %d", i))
		hashes = append(hashes, s.Run("git", "rev-parse", "HEAD"))
	}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&bytes.Buffer{})
	return &commitCommand{
		commitOptions: commitOptions{yes: true}, cmd: cmd, clone: &clone.Clone{Dir: s.Dir, Remote: "origin"},
		source: &v1alpha1.GitSource{
			ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "shop"},
			Spec:       v1alpha1.GitSourceSpec{Path: ".", Ref: v1alpha1.GitReference{Branch: "main"}},
		},
		release: &v1alpha1.BatchRelease{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"},
			Spec:       v1alpha1.BatchReleaseSpec{Commit: hashes[len(hashes)-1], WorkloadRef: v1alpha1.WorkloadReference{Name: "web"}},
			Status:     v1alpha1.BatchReleaseStatus{UpdateRevision: "5584f4c7df"},
		},
	}, hashes
}

// Each case is a history, and the file that a rollback leaves or the reason why it does
// not.
func TestRollback(t *testing.T) {
	image := func(from, to string) [2]string { return [2]string{"deployment.yaml", "web:" + from + " => web:" + to} }
	for _, tc := range []struct {
		reason  string
		commits [][2]string
		edit    func(br *v1alpha1.BatchRelease, commits []string)
		to      string
		want    string // the tag afterwards
		subject string
		err     string
	}{
		{"the release is reverted", [][2]string{image("v1", "v2")}, nil, "", "v1", `Revert "commit 1"`, ""},
		{"what came after it stays", [][2]string{image("v1", "v2"), {"deployment.yaml", "replicas: 10 => replicas: 12"}},
			func(br *v1alpha1.BatchRelease, c []string) { br.Spec.Commit = c[1] }, "", "v1", `Revert "commit 1"`, ""},
		{"what it superseded on its way is reverted, too", [][2]string{image("v1", "v2"), image("v2", "v3")}, func(br *v1alpha1.BatchRelease, c []string) {
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: "b", Commit: c[1], Outcome: v1alpha1.OutcomeSuperseded}, {Revision: "a", Commit: c[0], Outcome: v1alpha1.OutcomeCompleted}}
		}, "", "v1", `Revert "commit 2" and 1 more`, ""},
		{"to an earlier release", [][2]string{image("v1", "v2"), image("v2", "v3"), image("v3", "v4")}, func(br *v1alpha1.BatchRelease, c []string) {
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: "c", Commit: c[3]}, {Revision: "b", Commit: c[2]}, {Revision: "a1", Commit: c[1]}}
		}, "a", "v2", `Revert "commit 3" and 1 more`, ""},
		{"gone back already", [][2]string{image("v1", "v2"), image("v2", "v1")}, func(br *v1alpha1.BatchRelease, c []string) { br.Spec.Commit = c[1] }, "", "v1", "commit 2", ""},
		{"the release was taken back: the way back is not", [][2]string{image("v1", "v2"), image("v2", "v1")}, func(br *v1alpha1.BatchRelease, c []string) {
			br.Spec.Commit, br.Status.Phase = c[2], v1alpha1.PhaseCompleted
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: "b", Commit: c[1], Outcome: v1alpha1.OutcomeRolledBack}}
		}, "", "v1", "commit 2", ""},
		{"the same after it was complete", [][2]string{image("v1", "v2"), image("v2", "v1")}, func(br *v1alpha1.BatchRelease, c []string) {
			br.Spec.Commit, br.Status.Phase = c[2], v1alpha1.PhaseCompleted
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: "a", Commit: c[2], Outcome: v1alpha1.OutcomeCompleted, Rollback: true}, {Revision: "b", Commit: c[1], Outcome: v1alpha1.OutcomeCompleted}}
		}, "", "v1", "commit 2", ""},
		{"the same on the way back", [][2]string{image("v1", "v2"), image("v2", "v1")}, func(br *v1alpha1.BatchRelease, c []string) {
			br.Spec.Commit, br.Status.Phase, br.Status.RollingBack = c[2], v1alpha1.PhaseRollingUpdate, true
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: "b", Commit: c[1], Outcome: v1alpha1.OutcomeCompleted}}
		}, "", "v1", "commit 2", ""},
		{"and a revision may be named then", [][2]string{image("v1", "v2"), image("v2", "v3"), image("v3", "v2")}, func(br *v1alpha1.BatchRelease, c []string) {
			br.Spec.Commit, br.Status.Phase = c[3], v1alpha1.PhaseCompleted
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: "c", Commit: c[2], Outcome: v1alpha1.OutcomeRolledBack}, {Revision: "b", Commit: c[1]}, {Revision: "a", Commit: c[0]}}
		}, "a", "v1", `Revert "commit 3" and 2 more`, ""},
		{"the cluster has gone back, and the branch has not", [][2]string{image("v1", "v2")}, func(br *v1alpha1.BatchRelease, c []string) {
			br.Spec.Commit, br.Status.Phase = c[1], v1alpha1.PhaseCompleted
			br.Status.FailedRevision, br.Status.FailedCommit = "b", c[1]
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: "b", Commit: c[1], Outcome: v1alpha1.OutcomeRolledBack}}
		}, "", "v1", `Revert "commit 1"`, ""},
		{"a release after one that was taken back", [][2]string{image("v1", "v2"), image("v2", "v1"), image("v1", "v3")}, func(br *v1alpha1.BatchRelease, c []string) {
			br.Status.Phase = v1alpha1.PhaseRollingUpdate
			br.Status.History = []v1alpha1.ReleaseRecord{{Revision: "b", Commit: c[1], Outcome: v1alpha1.OutcomeRolledBack}}
		}, "", "v1", `Revert "commit 3"`, ""},
		{"lines beside it changed since, which git has for a conflict", [][2]string{image("v1", "v2"), {"deployment.yaml", "        ports: =>         # one port\n        ports:"}},
			func(br *v1alpha1.BatchRelease, c []string) { br.Spec.Commit = c[1] }, "", "v1", `Revert "commit 1"`, ""},
		{"a file beside the manifests has a conflict", [][2]string{{"deployment.yaml NOTES", "web:v1 => web:v2"}, {"NOTES", "of later\n"}},
			func(br *v1alpha1.BatchRelease, c []string) { br.Spec.Commit = c[1] }, "", "v1", `Revert "commit 1"`, ""},
		{"a conflict", [][2]string{image("v1", "v2"), {"deployment.yaml", "        image: registry.example.org/web:v2 =>         image: registry.example.org/web:v2 # kept"}},
			func(br *v1alpha1.BatchRelease, c []string) { br.Spec.Commit = c[1] }, "", "v2 # kept", "commit 2", "nothing was changed"},
		{"no such revision", [][2]string{image("v1", "v2")}, nil, "x", "v2", "commit 1", "tranche history web"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			st, commits := commandIn(t, tc.commits...)
			if tc.edit != nil {
				tc.edit(st.release, commits)
			}
			err := st.rollback(tc.to, nil)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v, want %q", err, tc.err)
			}
			text, err := os.ReadFile(filepath.Join(st.clone.Dir, "deployment.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			_, after, _ := strings.Cut(string(text), "web:v")
			tag, _, _ := strings.Cut(after, "\n")
			subject, err := st.clone.Git(t.Context(), "log", "-1", "--format=%s")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{tc.want, tc.subject}, []string{"v" + tag, subject}); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
			if dirty, err := st.clone.Git(t.Context(), "status", "--porcelain"); err != nil || dirty != "" {
				t.Errorf("the clone is not clean: %s %v", dirty, err)
			}
		})
	}
}

// The rollback of a paused plan waits, and the command says so.
func TestRollback_Paused(t *testing.T) {
	for _, paused := range []bool{true, false} {
		st, _ := commandIn(t, [2]string{"deployment.yaml", "web:v1 => web:v2"})
		st.release.Spec.Paused = paused
		err := st.rollback("", nil)
		if said := strings.Contains(st.said(), "tranche resume web"); err != nil || said != paused {
			t.Errorf("paused is %t: %q, %v", paused, st.said(), err)
		}
	}
}

// A commit changed a Deployment without a plan, too. It stays if the files allow it, and the
// command names it.
func TestRollback_BesideOneWithoutAPlan(t *testing.T) {
	for name, tc := range map[string]struct {
		image func(tag string) map[string]string // of both
		says  string
		err   string
	}{
		"files of their own": {func(tag string) map[string]string {
			return map[string]string{"web.tag": tag, "api.yaml": strings.ReplaceAll(unplanned, "api:v1", "api:"+tag)}
		}, "Deployment shop/api was released by the same change, and stays", ""},
		"one line": {func(tag string) map[string]string {
			return map[string]string{"api.yaml": unplanned, "kustomization.yaml": tags(tag)}
		}, "", "the same lines released Deployment shop/api (registry.example.org/api:v2 → registry.example.org/api:v1), " +
			"which would go back, too; nothing was changed. To roll back all of them, give --with shop/api"},
	} {
		t.Run(name, func(t *testing.T) {
			st, _ := commandIn(t)
			s := clitest.Clone{TB: t, Dir: st.clone.Dir}
			commit := func(tag string) {
				for file, text := range tc.image(tag) {
					s.Write(file, text)
				}
				if tag == "v2" {
					s.Replace("deployment.yaml", "web:v1", "web:v2")
				}
				s.Run("git", "add", ".")
				s.Run("git", "commit", "--quiet", "-m", tag)
			}
			commit("v1")
			commit("v2")
			st.release.Spec.Commit = s.Run("git", "rev-parse", "HEAD")
			err := st.rollback("", nil)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v, want %q", err, tc.err)
			}
			if said := st.said(); !strings.Contains(said, tc.says) {
				t.Errorf("it says %q, not %q", said, tc.says)
			}
			changed := s.Run("git", "diff", "--name-only", st.release.Spec.Commit, "HEAD")
			if strings.Contains(changed, "api.yaml") || (changed == "") != (tc.err != "") {
				t.Errorf("the commit changes %q", changed)
			}
			if tc.err != "" {
				if err := st.rollback("", []string{"api"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// unplanned is a Deployment without a plan.
const unplanned = `apiVersion: apps/v1
kind: Deployment
metadata: {name: api}
spec:
  selector: {matchLabels: {app: api}}
  template:
    metadata: {labels: {app: api}}
    spec: {containers: [{name: api, image: "registry.example.org/api:v1"}]}
`

// A commit released two Deployments. The other one stays if the files allow it. If the
// same line released both, nothing is changed unless that is asked for.
func TestRollback_OfTwo(t *testing.T) {
	const api = unplanned + `---
apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: api}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: api}
  strategy: {steps: [{replicas: 1}, {replicas: 100%}]}
`
	lines := func(web, api string) string {
		return "resources: [deployment.yaml, release.yaml, api.yaml]\nimages:\n- name: registry.example.org/web\n  newTag: " + web + "\n- name: registry.example.org/api\n  newTag: " + api + "\n"
	}
	line := tags
	for _, tc := range []struct {
		why           string
		before, after string
		with          []string
		want          string // the kustomization afterwards
		err           string
	}{
		{"its own lines", lines("v1", "v1"), lines("v2", "v2"), nil, lines("v1", "v2"), ""},
		{"both are asked for", lines("v1", "v1"), lines("v2", "v2"), []string{"api"}, lines("v1", "v1"), ""},
		{"one line", line("v1"), line("v2"), nil, line("v2"), "the same lines released shop/api (registry.example.org/api:v2 → registry.example.org/api:v1), which would go back, too; nothing was changed. To roll back all of them, give --with shop/api"},
		{"one line, and both are asked for", line("v1"), line("v2"), []string{"shop/api"}, line("v1"), ""},
		{"with one that is not there", lines("v1", "v1"), lines("v2", "v2"), []string{"nobody"}, lines("v2", "v2"), "--with shop/nobody: the branch has no such BatchRelease"},
	} {
		t.Run(tc.why, func(t *testing.T) {
			st, _ := commandIn(t, [2]string{"api.yaml kustomization.yaml", tc.before})
			s := clitest.Clone{TB: t, Dir: st.clone.Dir}
			s.Write("api.yaml", api)
			s.Run("git", "add", ".")
			s.Run("git", "commit", "--quiet", "-m", "api")
			s.Write("kustomization.yaml", tc.after)
			s.Write("NOTES", "of both\n")
			s.Run("git", "add", ".")
			s.Run("git", "commit", "--quiet", "-m", "both")
			st.release.Spec.Commit = s.Run("git", "rev-parse", "HEAD")
			err := st.rollback("", tc.with)
			if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%v, want %q", err, tc.err)
			}
			text, err := os.ReadFile(filepath.Join(s.Dir, "kustomization.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(text)); diff != "" {
				t.Errorf("afterwards (-want +got):\n%s", diff)
			}
			if _, err := os.Stat(filepath.Join(s.Dir, "NOTES")); (err == nil) != (tc.err != "") {
				t.Errorf("NOTES: %v", err)
			}
			if dirty := s.Run("git", "status", "--porcelain"); dirty != "" {
				t.Errorf("the clone is not clean: %s", dirty)
			}
		})
	}
}
