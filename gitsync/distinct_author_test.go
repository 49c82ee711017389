package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// An approver who has written a part of what is released opens no gate, however the
// commits are put together. Another approver opens the same gates.
func TestOwnChangeIsNotApproved(t *testing.T) {
	const file = "deploy/approvals/web.yaml"
	labelled := func(image string) string {
		return sizedWeb(4, image, "labels: {app: web}\n    spec", "labels: {app: web, tier: front}\n    spec")
	}
	for name, attack := range map[string]func(a *signed) (commit string){
		"a label on a change that waits": func(a *signed) string {
			first := a.by(a.k3, map[string]string{"deploy/web.yaml": sizedWeb(4, "v2")})
			a.waitsAtFirst(first)
			return a.by(a.k1, map[string]string{"deploy/web.yaml": labelled("v2")})
		},
		"a merge brings back what was taken back": func(a *signed) string {
			v2 := a.by(a.k3, map[string]string{"deploy/web.yaml": sizedWeb(4, "v2")})
			a.waitsAtFirst(v2)
			reverted := a.brings("v1")
			a.runs("web", "v1")
			a.repo.Sign(&a.k1)
			a.repo.Git("reset", "-q", "--hard", a.repo.Git("commit-tree", "-S", "-m", "Merge", "-p", reverted, "-p", v2, v2+"^{tree}"))
			a.repo.Push()
			return a.repo.Head()
		},
		"YAML that another repaired": func(a *signed) string {
			broken := strings.Replace(sizedWeb(4, "v2"), "spec:", "spec: [", 1)
			a.seen(a.by(a.k3, map[string]string{"deploy/web.yaml": broken}))
			return a.brings("v2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newSigned(t)
			commit := attack(a)
			a.waitsAtFirst(commit)
			approval := a.approvalOf(a.release("web").Status.UpdateRevision, commit, "1")
			a.seen(a.by(a.k3, map[string]string{file: approval}))
			for range 2 {
				a.lookNow()
			}
			a.waitsAtFirst(commit)
			a.atMost(1)
			if m := a.inSync().Message; !strings.Contains(m, "is signed by k3@example.org") {
				t.Errorf("InSync does not say why: %s", m)
			}
			a.by(a.k2, map[string]string{file: "# by another\n" + approval})
			a.runs("web", "v2")
			a.says("True")
		})
	}
}

// waitsAtFirst waits until the release of a commit waits at its first gate.
func (a *signed) waitsAtFirst(commit string) {
	a.Helper()
	clustertest.Wait(a.shop, "the release of "+commit+" to wait at its first gate", func() error {
		br := a.release("web")
		if st := br.Status; br.Spec.Commit != commit || st.Reason != "WaitingForApproval" || st.CurrentStepIndex != 0 || st.ObservedGeneration != br.Generation {
			return fmt.Errorf("commit %s, step %d: %s: %s\n%s", br.Spec.Commit, st.CurrentStepIndex, st.Reason, st.Message, said(a.gs()))
		}
		return nil
	})
}
