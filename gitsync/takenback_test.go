package gitsync_test

import (
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The controller reverts a release, and another change since the last one stays. Its commit
// is not signed, and takes no approval away: the next release is the work of those who
// signed the changes. One of them may not approve it, and another person may.
func TestRevertOfTheControllerHasNoAuthor(t *testing.T) {
	t.Parallel()
	const file = "deploy/approvals/web.yaml"
	a := &signed{env: newIdleEnv(t)}
	a.start()
	t.Cleanup(func() { a.stop() })
	for _, k := range []*gittest.Key{&a.k1, &a.k2, &a.k3} {
		*k = gittest.NewSSHKey(t, "ed25519", "")
	}
	plan := planOf("web", signedPlan...)
	first := a.by(a.k2, map[string]string{"deploy/web.yaml": sizedWeb(3, "v1"), "deploy/release.yaml": plan})
	a.applied2(first, a.demands, writesBack, func(gs *v1alpha1.GitSource) { gs.Spec.Verify = nil })
	a.isAt("web", "ReleaseCompleted", 2)
	a.seen(a.by(a.k2, map[string]string{"deploy/release.yaml": strings.Replace(plan, "  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 900\n", 1)}))
	a.waitsAtFirst(a.by(a.k2, map[string]string{"deploy/web.yaml": sizedWeb(3, "v2")}))
	a.rollBack("web")
	a.rolledBack("web")
	a.has(`Revert "Change"`, "Change", "Change", "Change")
	if signed := a.inBare("log", "-1", "--format=%GK%G?", "main"); signed != "N" {
		t.Fatalf("the controller's commit is signed: %s", signed)
	}

	a.repo.Git("pull", "-q", "--ff-only", "origin", "main")
	v3 := a.by(a.k2, map[string]string{"deploy/web.yaml": sizedWeb(3, "v3")})
	a.waitsAtFirst(v3)
	approval := a.approvalOf(a.release("web").Status.UpdateRevision, v3, "1")
	a.seen(a.by(a.k2, map[string]string{file: approval}))
	a.waitsAtFirst(v3)
	if m := a.inSync().Message; !strings.Contains(m, "is signed by k2@example.org") {
		t.Errorf("InSync does not say why: %s", m)
	}
	a.by(a.k3, map[string]string{file: "# by another\n" + approval})
	a.runs("web", "v3")
}
