package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// secretManifest is the manifest of a Secret with an allowed_signers entry.
func secretManifest(name, line string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + "}\nstringData:\n  allowed_signers: |\n    " + line + "\n"
}

// A committer who may not approve brings a Secret with another list of approvers. It
// comes in the path of the source itself, by a generator, or by another source of the
// namespace. The list stays as it is, nothing of the commit is applied, and an approval
// by the committer's key opens no gate. A change of the Secret with kubectl counts.
func TestSignersAreNotChangedByACommit(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	ada, eve, mallory := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", "")
	signers := s.lists("approvers", "ada@example.org "+ada.Public)
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan, "other/a.yaml": configMap("other", "one")})
	s.applied2(first, func(gs *v1alpha1.GitSource) { gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: signers} })
	s.phase(v1alpha1.PhaseCompleted)
	s.push(map[string]string{"deploy/web.yaml": web("v2")})
	s.isAt("web", "WaitingForApproval", 0)
	listed := get(s, "approvers", &corev1.Secret{})
	same := func() {
		t.Helper()
		if now := get(s, "approvers", &corev1.Secret{}); now.ResourceVersion != listed.ResourceVersion {
			t.Fatalf("the list of signers was changed: %s", now.Data["allowed_signers"])
		}
	}

	evil := secretManifest("approvers", "eve@example.org "+eve.Public)
	for file, content := range map[string]map[string]string{
		"deploy/keys.yaml":            {"deploy/keys.yaml": evil},
		"deploy/keys.yaml, in a list": {"deploy/keys.yaml": "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(strings.TrimSpace(evil), "\n", "\n  ") + "\n"},
		"a generator": {"deploy/kustomization.yaml": "resources: [web.yaml, release.yaml]\ngeneratorOptions: {disableNameSuffixHash: true}\n" +
			"secretGenerator: [{name: approvers, literals: [\"allowed_signers=eve@example.org " + eve.Public + "\"]}]\n"},
	} {
		bad := s.push(content)
		m := s.refused(bad, "SecretNotAllowed")
		for _, want := range []string{"Secret " + s.ns + "/approvers: metadata.name: ", "spec.approvals.signers.secretRef of GitSource " + s.ns + "/shop", "change the Secret with kubectl"} {
			if !strings.Contains(m, want) {
				t.Errorf("%s: %q is not in %q", file, want, m)
			}
		}
		same()
		s.repo.Git("revert", "--no-edit", bad)
		s.repo.Push()
	}

	// The other source has no signers, and the same namespace.
	s.source(func(gs *v1alpha1.GitSource) { gs.Name, gs.Spec.Path = "other", "other" })
	s.Cleanup(func() { s.end("other") })
	s.holds("other", "one")
	s.push(map[string]string{"other/keys.yaml": evil, "other/a.yaml": configMap("other", "two")})
	clustertest.Wait(t, "the refusal", func() error {
		if said := said(get(s, "other", &v1alpha1.GitSource{})); !strings.Contains(said, "Ready=False SecretNotAllowed: other/keys.yaml: Secret "+s.ns+"/approvers") {
			return fmt.Errorf("conditions: %s", said)
		}
		return nil
	})
	s.holds("other", "one")
	same()
	s.push(map[string]string{"other/keys.yaml": "", "other/a.yaml": configMap("other", "three")})
	s.holds("other", "three")

	// The owner of the namespace changes the list, and the new key counts.
	s.lists("approvers", "ada@example.org "+ada.Public, "mallory@example.org "+mallory.Public)
	s.repo.Sign(&mallory)
	br := s.release("web")
	s.push(map[string]string{"deploy/approvals/web.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: " + s.ns + "}\n" +
		"spec: {revision: \"" + br.Status.UpdateRevision + "\", commit: \"" + br.Spec.Commit + "\", step: 0}\n"})
	s.phase(v1alpha1.PhaseCompleted)
}

// A Secret that came from Git before a GitSource named it stays when it leaves the
// branch: no commit takes the list of signers away. One that no GitSource names goes.
func TestNamedSecretIsNotPruned(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	ada := gittest.NewSSHKey(t, "ed25519", "")
	line := "ada@example.org " + ada.Public
	s.applied2(s.push(map[string]string{
		"deploy/a.yaml": secretManifest("approvers", line), "deploy/b.yaml": secretManifest("shared", line), "deploy/c.yaml": secretManifest("plain", line), "deploy/d.yaml": configMap("d", "one"), "deploy/e.yaml": configMap("e", "one"), "deploy/f.yaml": configMap("f", "one"),
		"other/a.yaml": configMap("other", "one"),
	}))
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Name, gs.Spec.Path = "other", "other"
		gs.Spec.Verify = committers(&v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "shared"}})
	})
	s.Cleanup(func() { s.end("other") })
	gs := s.gs()
	gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: &v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "approvers"}}}
	s.write(gs)
	s.applied(s.push(map[string]string{"deploy/a.yaml": "", "deploy/b.yaml": "", "deploy/c.yaml": ""}))
	s.isGone("plain", &corev1.Secret{})
	for _, name := range []string{"approvers", "shared"} {
		var secret corev1.Secret
		if err := s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, &secret); err != nil {
			t.Errorf("Secret %s: %v", name, err)
		}
	}
}

// A Secret that came from Git before a GitSource named it stays as the admin has it from
// then on. It does so where other objects of the applied commit are brought again, too.
func TestNamedSecretIsNotPutBack(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	ada, eve := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", "")
	s.applied2(s.push(map[string]string{
		"deploy/keys.yaml": secretManifest("approvers", "ada@example.org "+ada.Public) + "    eve@example.org " + eve.Public + "\n",
		"deploy/a.yaml":    configMap("a", "one"), "other/b.yaml": configMap("b", "one"),
	}))
	s.another("other", "other", func(gs *v1alpha1.GitSource) {
		gs.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: &v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "approvers"}}}
	})
	s.holds("b", "one")
	s.lists("approvers", "ada@example.org "+ada.Public)
	removed := get(s, "approvers", &corev1.Secret{})
	for _, tip := range []struct {
		reason string
		files  map[string]string
	}{
		{"SecretNotAllowed", map[string]string{"deploy/a.yaml": configMap("a", "two")}},
		{"InvalidManifest", map[string]string{"deploy/bad.yaml": "a: [\n"}},
	} {
		s.refused(s.push(tip.files), tip.reason)
		s.kubectl("delete", "configmap/a")
		s.lookNow()
		s.holds("a", "one")
		if now := get(s, "approvers", &corev1.Secret{}); now.ResourceVersion != removed.ResourceVersion {
			t.Fatalf("%s: the list of signers was put back: %s", tip.reason, now.Data["allowed_signers"])
		}
	}
}
