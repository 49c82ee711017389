package gitsync_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// tag makes a tag of a commit and pushes it.
func (s *env) tag(name, commit string, options ...string) {
	s.Helper()
	s.repo.Git(append([]string{"tag", "-f"}, append(options, name, commit)...)...)
	s.repo.Git("push", "-q", "-f", "origin", "refs/tags/"+name)
}

// pins sets spec.ref of the source.
func (s *env) pins(ref v1alpha1.GitReference) {
	s.Helper()
	gs := s.gs()
	gs.Spec.Ref = ref
	s.write(gs)
}

// appliedAt waits until what a name leads to is applied whole.
func (s *env) appliedAt(name, commit string) {
	s.Helper()
	clustertest.Wait(s, name+"@"+commit, func() error {
		gs := s.gs()
		ready := meta.FindStatusCondition(gs.Status.Conditions, "Ready")
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.Message != "applied "+name+"@"+commit[:12] || ready.ObservedGeneration != gs.Generation {
			return fmt.Errorf("%s", said(gs))
		}
		return nil
	})
}

// unresolved waits until a reason says why nothing is applied, with a sentence in it.
func (s *env) unresolved(reason, says string) {
	s.Helper()
	clustertest.Wait(s, reason+": "+says, func() error {
		gs := s.gs()
		ready := meta.FindStatusCondition(gs.Status.Conditions, "Ready")
		if ready == nil || ready.Reason != reason || !strings.Contains(ready.Message, says) || ready.ObservedGeneration != gs.Generation {
			return fmt.Errorf("%s", said(gs))
		}
		return nil
	})
}

// Manifests come from the tag with the highest version, and approvals from the branch. A
// commit on the branch is no release, and an approval that was there before the tag opens
// no gate.
func TestPins(t *testing.T) {
	t.Parallel()
	s := newEnv(t, andRollout)
	ran := func(image string, pods int) {
		t.Helper()
		clustertest.Wait(t, fmt.Sprintf("%d pods of %s", pods, image), func() error {
			var list corev1.PodList
			n := 0
			s.must(s.c.Client.List(t.Context(), &list, client.InNamespace(s.ns)))
			for _, p := range list.Items {
				if strings.HasSuffix(p.Spec.Containers[0].Image, ":"+image) && p.DeletionTimestamp == nil {
					n++
				}
			}
			if n != pods {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
	}
	approve := func(commit, comment string) {
		t.Helper()
		s.push(map[string]string{"deploy/approvals/web.yaml": approvalOf("web", s.release("web").Status.UpdateRevision, commit, "0") + "# " + comment + "\n"})
	}
	first := s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan})
	s.tag("1.0.0", first)
	semver := v1alpha1.GitReference{Branch: "main", SemVer: ">=1.0.0 <2.0.0"}
	s.source(func(gs *v1alpha1.GitSource) { gs.Spec.Ref = semver })
	s.appliedAt("1.0.0", first)
	s.phase(v1alpha1.PhaseCompleted)

	second := s.push(map[string]string{"deploy/web.yaml": web("v2")})
	s.tag("2.0.0", second) // not in the range
	s.tag("nightly", second)
	s.lookNow()
	s.appliedAt("1.0.0", first)
	s.tag("v1.1.0", second, "-a", "-m", "one more")
	s.appliedAt("v1.1.0", second)
	s.isAt("web", "WaitingForApproval", 0)
	ran("v2", 1)
	s.push(map[string]string{"deploy/release.yaml": strings.Replace(webPlan, "replicas: 1", "replicas: 2", 1)}) // of no version
	approve(second, "of v2")
	s.phase(v1alpha1.PhaseCompleted)
	ran("v2", 2)

	s.repo.Write(map[string]string{"deploy/release.yaml": webPlan})
	third := s.push(map[string]string{"deploy/web.yaml": web("v3")})
	approve(third, "too early")
	s.tag("1.2.0", third)
	s.appliedAt("1.2.0", third)
	s.isAt("web", "WaitingForApproval", 0)
	clustertest.Wait(t, "the approval to be ignored", func() error {
		if m := said(s.gs()); !strings.Contains(m, "was on the branch before this release") {
			return fmt.Errorf("%s", m)
		}
		return nil
	})
	ran("v3", 1)
	approve(third, "of v3")
	s.phase(v1alpha1.PhaseCompleted)
	ran("v3", 2)

	// The steps are edited in a commit after that of the release: the approver has seen the tag.
	s.push(map[string]string{"deploy/web.yaml": web("v4")})
	fourth := s.repo.Head()
	edited := s.push(map[string]string{"deploy/release.yaml": strings.Replace(webPlan, "replicas: 1", "replicas: 50%", 1)})
	s.tag("1.3.0", edited)
	s.appliedAt("1.3.0", edited)
	s.isAt("web", "WaitingForApproval", 0)
	approve(fourth, "of v4")
	s.phase(v1alpha1.PhaseCompleted)
	ran("v4", 2)
	s.tag("1.9.0", "HEAD^{tree}")
	s.unresolved("TagNotFound", "tag 1.9.0 does not name a commit")
	s.repo.Git("push", "-q", "origin", ":refs/tags/1.9.0")
	s.appliedAt("1.3.0", edited)

	s.repo.Git("checkout", "-q", "-b", "aside")
	aside := s.repo.Commit(map[string]string{"deploy/web.yaml": web("v5")})
	s.repo.Git("push", "-q", "origin", "aside")
	s.pins(v1alpha1.GitReference{Branch: "main", Commit: aside})
	s.unresolved("CommitNotFound", "commit "+aside[:12]+" is not in the history of main")
	s.pins(v1alpha1.GitReference{Branch: "main", Tag: "1.8.0"})
	s.unresolved("TagNotFound", "there is no tag 1.8.0")
	s.pins(v1alpha1.GitReference{Branch: "main", SemVer: "about 2"})
	s.unresolved("InvalidSemVer", "spec.ref.semver")
	s.pins(v1alpha1.GitReference{Branch: "main", SemVer: ">=3.0.0"})
	s.unresolved("TagNotFound", "no tag is a version in >=3.0.0")
	s.pins(v1alpha1.GitReference{Branch: "main", Commit: edited, Tag: "1.0.0", SemVer: "1.x"})
	s.appliedAt("main", edited)
	ran("v4", 2)

	gs := s.gs()
	gs.Spec.WriteBack = &v1alpha1.WriteBack{Enabled: true}
	if err := s.c.Client.Update(t.Context(), gs); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "writeBack.enabled commits to the branch") {
		t.Errorf("%v", err)
	}
}

// With spec.verify.mode a tag must be signed by a listed key, under its own name.
func TestTagsMustBeSigned(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	ada, eve := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", "")
	grace := gittest.NewGPG(t).NewKey("Grace Example <grace@example.org>", "never", "")
	keys := s.lists("keys", "ada@example.org "+ada.Public)
	secret := get(s, "keys", &corev1.Secret{})
	secret.Data["grace.asc"] = []byte(grace.Public)
	s.must(s.c.Client.Update(t.Context(), secret))
	value := func(want string) {
		t.Helper()
		if v := get(s, "a", &corev1.ConfigMap{}).Data["value"]; v != want {
			t.Errorf("a is %q, want %q", v, want)
		}
	}
	signed := func(k gittest.Key, name, commit string) {
		t.Helper()
		s.repo.Sign(&k)
		s.tag(name, commit, "-s", "-m", "version "+name+"\n\nSigned.")
		s.repo.Sign(nil)
	}
	first := s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")})
	s.tag("1.0.0", first)
	s.source(func(gs *v1alpha1.GitSource) {
		gs.Spec.Ref.SemVer = "1.x"
		gs.Spec.Verify = &v1alpha1.CommitVerification{Verification: *keys, Mode: v1alpha1.VerifyTag}
	})
	s.unresolved("TagNotVerified", "1.0.0@"+first[:12]+": it is a lightweight tag")
	s.tag("1.0.0", first, "-a", "-m", "unsigned")
	s.unresolved("TagNotVerified", "it is not signed")
	signed(eve, "1.0.0", first)
	s.unresolved("TagNotVerified", "a key that is not listed")
	signed(ada, "1.0.0", first)
	s.appliedAt("1.0.0", first)

	second := s.push(map[string]string{"deploy/a.yaml": configMap("a", "two")})
	s.repo.Git("push", "-q", "-f", "origin", "refs/tags/1.0.0:refs/tags/1.1.0") // the old version as a new one
	s.unresolved("TagNotVerified", "a tag with the name \"1.0.0\"")
	value("one")
	signed(grace, "1.1.0", second)
	s.appliedAt("1.1.0", second)
	value("two")

	gs := s.gs()
	gs.Spec.Verify.Mode = v1alpha1.VerifyTagAndHEAD
	s.write(gs)
	s.unresolved("CommitNotVerified", "1.1.0@"+second[:12]+": it is not signed")
	s.repo.Sign(&ada)
	third := s.push(map[string]string{"deploy/a.yaml": configMap("a", "three")})
	signed(ada, "1.2.0", third)
	s.appliedAt("1.2.0", third)
	value("three")
	tip := s.push(map[string]string{"README.md": "by another\n"}) // the approvals are in it
	s.unresolved("CommitNotVerified", "main@"+tip[:12])
}
