package gitsync_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/rollout"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// An approver who has written a part of what is released opens no gate, however the
// commits are put together. Another approver opens the same gates.
func TestOwnChangeIsNotApproved(t *testing.T) {
	t.Parallel()
	const file = "deploy/approvals/web.yaml"
	labelled := func(image string) string {
		return sizedWeb(3, image, "labels: {app: web}\n    spec", "labels: {app: web, tier: front}\n    spec")
	}
	for name, attack := range map[string]func(a *signed) (commit string){
		"a label on a change that waits": func(a *signed) string {
			first := a.by(a.k3, map[string]string{"deploy/web.yaml": sizedWeb(3, "v2")})
			a.waitsAtFirst(first)
			return a.by(a.k1, map[string]string{"deploy/web.yaml": labelled("v2")})
		},
		"a merge brings back what was taken back": func(a *signed) string {
			v2 := a.by(a.k3, map[string]string{"deploy/web.yaml": sizedWeb(3, "v2")})
			a.waitsAtFirst(v2)
			reverted := a.brings("v1")
			a.runs("web", "v1")
			a.repo.Sign(&a.k1)
			a.repo.Git("reset", "-q", "--hard", a.repo.Git("commit-tree", "-S", "-m", "Merge", "-p", reverted, "-p", v2, v2+"^{tree}"))
			a.repo.Push()
			return a.repo.Head()
		},
		"a file that another renames":                                renamedByAnother,
		"a file that the approver renames, and another renames back": renamedAndBack,
		"a file that another moves in":                               movedInByAnother,
		"YAML that another repaired": func(a *signed) string {
			broken := strings.Replace(sizedWeb(3, "v2"), "spec:", "spec: [", 1)
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

// An approver has no part in a change only if that is known. A commit that names a remote
// base which has gone may render something, and its author counts until that is known.
func TestOwnChangeIsNotApproved_BaseIsGone(t *testing.T) {
	const file = "deploy/approvals/web.yaml"
	for name, authors := range map[string]func(a *signed) (merge, notes gittest.Key){
		"a merge of the approver":             func(a *signed) (merge, notes gittest.Key) { return a.k3, a.k1 },
		"an unrelated commit of the approver": func(a *signed) (merge, notes gittest.Key) { return a.k1, a.k3 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := gittest.NewRepo(t)
			base.CommitAndPush(map[string]string{"base/kustomization.yaml": "resources: [b.yaml]\n", "base/b.yaml": configMap("b", "one")})
			base.Git("push", "-q", "origin", "main:refs/heads/one", "main:refs/heads/two")
			server := gittest.Serve(t, filepath.Dir(base.Bare), gittest.ServeOptions{})
			with := func(ref string) string {
				return "resources: [release.yaml, ../common, '" + server.URL + "/repo.git//base?ref=" + ref + "']\n"
			}
			a := &signed{env: newIdleEnv(t), allowed: 1}
			t.Cleanup(a.startManager(a.c.Controller, func(mgr ctrl.Manager) error {
				if err := rollout.Add(mgr, rollout.Options{Concurrent: 2}); err != nil {
					return err
				}
				return gitsync.Add(mgr, gitsync.Options{Renderer: renderers(), StorageDir: t.TempDir(), Concurrent: 2, FileRoots: []string{os.TempDir()}})
			}))
			for _, k := range []*gittest.Key{&a.k1, &a.k2, &a.k3} {
				*k = gittest.NewSSHKey(t, "ed25519", "")
			}
			first := a.by(a.k1, map[string]string{
				"deploy/kustomization.yaml": with("one"), "deploy/release.yaml": planOf("web", signedPlan...),
				"common/kustomization.yaml": "resources: [web.yaml]\n", "common/web.yaml": sizedWeb(3, "v1"),
			})
			a.applied2(first, a.demands)
			a.isAt("web", "ReleaseCompleted", 2)
			a.sizes, a.uid = a.recordSizes("v2"), a.deployment("web").UID
			// A merge that has what neither side has, beside a change of k1.
			merger, noter := authors(a)
			a.repo.Sign(&a.k1)
			a.repo.Git("checkout", "-q", "-b", "side")
			a.repo.Commit(map[string]string{"README.md": "side"})
			a.repo.Git("checkout", "-q", "main")
			a.repo.Sign(&noter)
			a.repo.Commit(map[string]string{"NOTES.md": "main"})
			a.repo.Sign(&merger)
			a.repo.Git("merge", "-q", "--no-ff", "--no-commit", "side")
			merge := a.by(merger, map[string]string{"common/web.yaml": sizedWeb(3, "v2")})
			a.waitsAtFirst(merge)
			// The approver names the same base by another branch, and the old one goes.
			base.Git("push", "-q", "origin", ":refs/heads/one")
			approval := a.approvalOf(a.release("web").Status.UpdateRevision, merge, "1")
			a.seen(a.by(a.k3, map[string]string{file: approval, "deploy/kustomization.yaml": with("two")}))
			a.lookNow()
			a.waitsAtFirst(merge)
			a.atMost(1)
			if m := a.inSync().Message; !strings.Contains(m, "is signed by k3@example.org") || !strings.Contains(m, " renders is not known: ") || !strings.Contains(m, "there is no branch and no tag one") {
				t.Errorf("InSync does not say why: %s", m)
			}
			base.Git("push", "-q", "origin", "main:refs/heads/one")
			a.lookNow()
			if merger.Public == a.k1.Public {
				a.runs("web", "v2")
				return
			}
			a.waitsAtFirst(merge)
			a.atMost(1)
			if m := a.inSync().Message; !strings.Contains(m, "is signed by k3@example.org") || strings.Contains(m, "is not known") {
				t.Errorf("InSync does not say why: %s", m)
			}
		})
	}
}

// A merge that git makes by itself can render a plan that neither side has. The person who
// has brought the parts of it approves none of it; another signer does.
func TestOwnPlanIsNotApproved_CombinedByAMerge(t *testing.T) {
	t.Parallel()
	for name, merger := range map[string]func(a *signed) gittest.Key{
		"merged by the same person": func(a *signed) gittest.Key { return a.k3 },
		"merged by another":         func(a *signed) gittest.Key { return a.k1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newSigned(t)
			const kustomization, folder = "deploy/kustomization.yaml", "resources: [release.yaml]\n"
			uses := func(plan string) string { return "resources: [web.yaml, a.yaml, ../" + plan + "]\n" }
			a.applied(a.by(a.k1, map[string]string{
				kustomization: uses("x"), "deploy/release.yaml": "",
				"x/kustomization.yaml": folder, "x/release.yaml": planOf("web", signedPlan...),
				"yy/kustomization.yaml": folder, "yy/release.yaml": planOf("web", signedPlan...),
			}))
			a.repo.Sign(&a.k3)
			a.repo.Git("checkout", "-q", "-b", "side")
			a.repo.Commit(map[string]string{"yy/release.yaml": planOf("web", "100%")})
			a.repo.Git("checkout", "-q", "main")
			a.repo.Commit(map[string]string{kustomization: uses("yy")})
			k := merger(a)
			a.repo.Sign(&k)
			a.repo.Git("merge", "-q", "--no-ff", "-m", "Merge side", "side")
			a.repo.Push()
			terms := a.terms("100%")
			a.isStopped(terms)
			a.seen(a.by(a.k3, agrees(terms)))
			a.by(a.k1, map[string]string{"deploy/web.yaml": sizedWeb(3, "v2")})
			a.isStopped(terms)
			if m := a.inSync().Message; !strings.Contains(m, "is signed by k3@example.org") {
				t.Errorf("InSync does not say why: %s", m)
			}
			files := agrees(terms)
			files[planApproval] += "# by another\n"
			a.by(a.k2, files)
			a.says("True")
			a.brings("v3")
			a.runs("web", "v3")
		})
	}
}

func renamedByAnother(a *signed) string {
	v2 := a.by(a.k3, map[string]string{"deploy/web.yaml": sizedWeb(3, "v2")})
	a.waitsAtFirst(v2)
	a.seen(a.renames(a.k1, "deploy/web.yaml", "deploy/app.yaml", nil))
	return v2
}

func renamedAndBack(a *signed) string {
	v2 := a.renames(a.k3, "deploy/web.yaml", "deploy/app.yaml", map[string]string{"deploy/app.yaml": sizedWeb(3, "v2")})
	a.waitsAtFirst(v2)
	other := sizedWeb(3, "v2", "labels: {app: web}\n    spec", "labels: {app: web, tier: front}\n    spec")
	return a.renames(a.k1, "deploy/app.yaml", "deploy/web.yaml", map[string]string{"deploy/web.yaml": other})
}

// movedInByAnother has the approver's file used by a commit that shows nothing of it.
func movedInByAnother(a *signed) string {
	a.by(a.k3, map[string]string{"drafts/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n" +
		"images: [{name: registry.example.org/web, newTag: v2}]\n"})
	return a.renames(a.k1, "drafts/kustomization.yaml", "component/kustomization.yaml", map[string]string{
		"deploy/kustomization.yaml": "resources: [web.yaml, release.yaml, a.yaml]\ncomponents: [../component]\n",
	})
}

// renames pushes a commit by a key that moves a file, with other files.
func (a *signed) renames(k gittest.Key, from, to string, files map[string]string) string {
	a.Helper()
	a.must(os.MkdirAll(filepath.Join(a.repo.Work, filepath.Dir(to)), 0o750))
	a.repo.Git("mv", from, to)
	return a.by(k, files)
}

// waitsAtFirst waits until the release of a commit waits at its first gate.
func (a *signed) waitsAtFirst(commit string) {
	a.Helper()
	clustertest.Wait(a.env, "the release of "+commit+" to wait at its first gate", func() error {
		br := a.release("web")
		if st := br.Status; br.Spec.Commit != commit || st.Reason != "WaitingForApproval" || st.CurrentStepIndex != 0 || st.ObservedGeneration != br.Generation {
			return withSource(a, fmt.Errorf("commit %s, step %d: %s: %s", br.Spec.Commit, st.CurrentStepIndex, st.Reason, st.Message))
		}
		return nil
	})
}
