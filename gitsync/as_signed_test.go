package gitsync_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// link makes a symbolic link in the clone.
func (s *env) link(target, name string) {
	s.Helper()
	at := filepath.Join(s.repo.Work, name)
	s.must(os.MkdirAll(filepath.Dir(at), 0o750))
	s.must(os.Symlink(target, at))
}

// A signer's approval opens no gate that the signed file does not name by itself, in its
// own place. Written as it must be, the same opens it.
func TestApprovalNotAsSigned(t *testing.T) {
	t.Parallel()
	const file = "deploy/approvals/web.yaml"
	for name, tt := range map[string]struct {
		edit   func(*v1alpha1.GitSource)
		before func(a *signed)
		attack func(a *signed, revision, v2 string)
	}{
		"an approval for staging, with a link from production": {nil, func(a *signed) {
			a.repo.Sign(&a.k1)
			a.link("../staging", "deploy/approvals")
			a.push(nil)
		}, func(a *signed, revision, v2 string) {
			a.by(a.k2, map[string]string{"staging/web.yaml": a.approvalOf(revision, v2, "1")})
		}},
		"an approval for staging, where targetNamespace is production": {func(gs *v1alpha1.GitSource) { gs.Spec.TargetNamespace = gs.Namespace }, nil, func(a *signed, revision, v2 string) {
			a.by(a.k2, map[string]string{file: strings.Replace(a.approvalOf(revision, v2, "1"), a.ns, "staging", 1)})
		}},
		"an approval without a namespace": {nil, nil, func(a *signed, revision, v2 string) {
			a.by(a.k2, map[string]string{file: approvalOf("web", revision, v2, "1")})
		}},
		"an approval of a part of the commit": {nil, nil, func(a *signed, revision, v2 string) {
			a.by(a.k2, map[string]string{file: a.approvalOf(revision, v2[:7], "1")})
		}},
		"an approval planted in the file of another": {nil, nil, func(a *signed, revision, v2 string) {
			planted := a.approvalOf(revision, v2, "1")
			a.by(a.k1, map[string]string{file: planted})
			a.by(a.k2, map[string]string{file: planted + "---\n" + strings.Replace(planted, "name: web", "name: other", 1)})
		}},
		"an approval planted in a folder that is renamed": {nil, nil, func(a *signed, revision, v2 string) {
			a.by(a.k1, map[string]string{"new/web.yaml": sizedWeb(3, "v2"), "new/release.yaml": planOf("web", signedPlan...), "new/a.yaml": configMap("a", "one"), "new/approvals/web.yaml": a.approvalOf(revision, v2, "1")})
			a.repo.Git("rm", "-q", "-r", "deploy")
			a.repo.Git("mv", "new", "deploy")
			a.by(a.k2, map[string]string{"README.md": "deploy is new\n"})
		}},
		"an approval signed by the key of write-back, which another source may share": {nil, func(a *signed) {
			a.must(a.c.Client.Create(a.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: "signing"}, Data: map[string][]byte{"identity": []byte(a.k3.Private)}}))
			gs := a.gs()
			gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true, SigningKey: &v1alpha1.LocalObjectReference{Name: "signing"}}
			a.write(gs)
		}, func(a *signed, revision, v2 string) {
			a.by(a.k3, map[string]string{file: a.approvalOf(revision, v2, "1")})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var edits []func(*v1alpha1.GitSource)
			if tt.edit != nil {
				edits = append(edits, tt.edit)
			}
			a := newSigned(t, edits...)
			if tt.before != nil {
				tt.before(a)
			}
			v2 := a.brings("v2")
			a.isAt("web", "WaitingForApproval", 0)
			revision := a.release("web").Status.UpdateRevision
			tt.attack(a, revision, v2)
			a.seen(a.inBare("rev-parse", "main"))
			a.lookNow()
			a.lookNow()
			a.isAt("web", "WaitingForApproval", 0)
			a.atMost(1)
			a.says("False ApprovalIgnored")
			a.repo.Git("rm", "-q", "-r", "--ignore-unmatch", "deploy/approvals")
			a.by(a.k2, map[string]string{file: "# as it must be\n" + a.approvalOf(revision, v2, "1")})
			a.runs("web", "v2")
			a.says("True")
		})
	}
}
