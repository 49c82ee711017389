package commit

import (
	"cmp"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
)

// invalidPlan is that of another Deployment, whose steps go down.
const invalidPlan = unplanned + `---
apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: api}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: api}
  strategy: {steps: [{replicas: 50%}, {replicas: 20%}]}
`

// tags are those of two images, in one line.
func tags(tag string) string {
	return "resources: [deployment.yaml, release.yaml, api.yaml]\nimages: [{name: registry.example.org/web, newTag: " + tag +
		"}, {name: registry.example.org/api, newTag: " + tag + "}]\n"
}

// An invalid plan of another Deployment does not stop the controller, which counts approvals,
// roll-backs and pauses beside it. So it does not stop the commands either.
func TestCommit_BesideWhatIsInvalid(t *testing.T) {
	for name, tc := range map[string]struct {
		api     string // its tag, if the commit that brought web:v2 changed it
		run     func(st *commitCommand) error
		changes string // the only file
		to      string // a line that it then has
	}{
		"approve":  {"", func(st *commitCommand) error { return st.approve(0) }, "approvals/web.yaml", "  step: 0\n"},
		"rollback": {"", func(st *commitCommand) error { return st.rollback("", nil) }, "deployment.yaml", "/web:v1\n"},
		"rollback of a commit that brought both": {"v2", func(st *commitCommand) error {
			return st.rollback("", nil)
		}, "deployment.yaml", "/web:v1\n"},
		"pause": {"", func(st *commitCommand) error { return st.pause(true, false, false) }, "release.yaml", "  paused: true\n"},
	} {
		t.Run(name, func(t *testing.T) {
			st, _ := commandIn(t, [2]string{"api.yaml", invalidPlan}, [2]string{"deployment.yaml", "web:v1 => web:v2"})
			s := clitest.Clone{TB: t, Dir: st.clone.Dir}
			s.Write("api.yaml", strings.ReplaceAll(invalidPlan, "api:v1", "api:"+cmp.Or(tc.api, "v1")))
			s.Run("git", "commit", "--quiet", "--all", "--amend", "--no-edit", "--allow-empty")
			st.release.Spec.Commit = s.Run("git", "rev-parse", "HEAD")
			if err := tc.run(st); err != nil {
				t.Fatal(err)
			}
			if files := s.Run("git", "diff", "--name-only", st.release.Spec.Commit, "HEAD"); files != tc.changes {
				t.Errorf("the commit changes %q, not %s", files, tc.changes)
			}
			if text := s.Run("git", "show", "HEAD:"+tc.changes) + "\n"; !strings.Contains(text, tc.to) {
				t.Errorf("%s does not have %q:\n%s", tc.changes, tc.to, text)
			}
		})
	}
}

// An invalid plan of the release itself stops the commands. So does a rollback that would
// change invalid objects of others.
func TestCommit_InvalidItself(t *testing.T) {
	v2 := [2]string{"deployment.yaml", "web:v1 => web:v2"}
	for name, tc := range map[string]struct {
		commits [][2]string
		amend   func(s clitest.Clone) // of the last commit
		run     func(st *commitCommand) error
		want    string
	}{
		"an approval of an invalid plan": {
			[][2]string{v2, {"release.yaml", "replicas: 20% => replicas: 200%"}}, func(clitest.Clone) {},
			func(st *commitCommand) error { return st.approve(0) }, "BatchRelease shop/web: spec.strategy.steps[0].replicas: ",
		},
		"a rollback by a line that takes back another": {
			[][2]string{{"api.yaml kustomization.yaml", tags("v1")}, {"api.yaml", invalidPlan}, {"kustomization.yaml", tags("v2")}},
			func(clitest.Clone) {},
			func(st *commitCommand) error { return st.rollback("", nil) }, "since the change is not of shop/web alone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			st, _ := commandIn(t, tc.commits...)
			s := clitest.Clone{TB: t, Dir: st.clone.Dir}
			tc.amend(s)
			s.Run("git", "commit", "--quiet", "--all", "--amend", "--no-edit", "--allow-empty")
			head := s.Run("git", "rev-parse", "HEAD")
			st.release.Spec.Commit = head
			if err := tc.run(st); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if now := s.Run("git", "rev-parse", "HEAD"); now != head {
				t.Errorf("commit %s was made", now)
			}
		})
	}
}
