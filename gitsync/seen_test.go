package gitsync_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// expiring is a key that a Secret lists until a time.
type expiring struct {
	key   gittest.Key
	entry string
	// until returns the entry of the Secret; zero: it does not expire.
	until func(time.Time) string
	// dated has git sign with the key at a time, whatever time it is.
	dated func(time.Time) *gittest.Key
}

func expiringSSH(t *testing.T) expiring {
	key := gittest.NewSSHKey(t, "ed25519", "")
	return expiring{key, "allowed_signers", func(end time.Time) string {
		if end.IsZero() {
			return "ada@example.org " + key.Public + "\n"
		}
		return "ada@example.org valid-before=\"" + end.UTC().Format("20060102150405") + "Z\" " + key.Public + "\n"
	}, func(time.Time) *gittest.Key { return &key }}
}

func expiringOpenPGP(t *testing.T) expiring {
	gpg := gittest.NewGPG(t)
	key := gpg.NewKey("ada@example.org", "never", "")
	at := func(t time.Time) string { return t.UTC().Format("20060102T150405") }
	return expiring{key, "ada.asc", func(end time.Time) string {
		if end.IsZero() {
			return key.Public
		}
		list := gpg.Run("--with-colons", "--list-keys", "ada@example.org")
		_, list, _ = strings.Cut(list, "fpr:::::::::")
		// A moment that has passed is no date of expiry. For gpg the second stands still.
		gpg.Run("--faked-system-time", at(end.Add(-2*time.Second))+"!", "--quick-set-expire", list[:40], at(end))
		return gpg.Run("--armor", "--export", "ada@example.org")
	}, func(date time.Time) *gittest.Key {
		program := strings.TrimPrefix(key.Config[2], "gpg.program=")
		script, err := os.ReadFile(program)
		if err == nil {
			faked := strings.Replace(string(script), "exec gpg", "exec gpg --faked-system-time "+at(date)+"!", 1)
			err = os.WriteFile(program+".then", []byte(faked), 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
		then := key
		then.Config = append([]string{}, key.Config...)
		then.Config[2] = "gpg.program=" + program + ".then"
		return &then
	}}
}

// firstSeen returns when the commit of an approval was seen first. The approval has it, in
// the spec and in the status, as the list of the GitSource has it.
func (s *env) firstSeen(release, commit string) *metav1.Time {
	s.Helper()
	br := s.release(release)
	a, observed := br.Spec.Approval, br.Status.Approval
	if a == nil || observed == nil || a.ApprovedIn != commit || a.FirstSeen == nil || !a.FirstSeen.Equal(observed.FirstSeen) {
		s.Fatalf("the approval is %+v, observed %+v, want one of %s", a, observed, commit)
	}
	if i := slices.IndexFunc(s.gs().Status.Seen, func(c v1alpha1.SeenCommit) bool { return c.Commit == commit }); i < 0 || !a.FirstSeen.Equal(&s.gs().Status.Seen[i].Time) {
		s.Errorf("first seen at %s; the list is %+v", a.FirstSeen, s.gs().Status.Seen)
	}
	return a.FirstSeen
}

// A tip and an approval that a key signed before it expired stay signed, also where
// another controller starts with nothing but the cluster. Once it has expired, it signs
// nothing more: neither a tip nor an approval with a date from before counts.
func TestExpiredKeyWithAnOldDate(t *testing.T) {
	t.Parallel()
	for name, ofKind := range map[string]func(*testing.T) expiring{"SSH": expiringSSH, "OpenPGP": expiringOpenPGP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newIdleEnv(t)
			stop := s.startController(andRollout)
			t.Cleanup(func() { stop() }) // after the end of the source
			ada := ofKind(t)
			s.must(s.c.Client.Create(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "keys", Namespace: s.ns}, Data: map[string][]byte{ada.entry: []byte(ada.until(time.Time{}))},
			}))
			keys := &v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "keys"}}
			s.repo.Sign(&ada.key)
			s.applied2(s.push(map[string]string{"deploy/web.yaml": four("v1"), "deploy/release.yaml": planOf("web", "1", "2", "100%")}), func(gs *v1alpha1.GitSource) {
				gs.Spec.Verify, gs.Spec.Approvals = committers(keys), &v1alpha1.ApprovalPolicy{Signers: keys}
			})
			s.isAt("web", "ReleaseCompleted", 2)
			s.push(map[string]string{"deploy/web.yaml": four("v2")})
			s.isAt("web", "WaitingForApproval", 0)
			release := s.release("web")
			approval := func(step int) map[string]string {
				return map[string]string{"deploy/approvals/web.yaml": fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: %s}\nspec: {revision: %q, commit: %q, step: %d}\n",
					s.ns, release.Status.UpdateRevision, release.Spec.Commit, step)}
			}
			approved := s.push(approval(0))
			s.isAt("web", "WaitingForApproval", 1)
			s.applied(approved)
			seenAt := s.firstSeen("web", approved)
			dated := time.Now()

			end := time.Now().Truncate(time.Second).Add(2 * time.Second)
			secret := get(s, "keys", &corev1.Secret{})
			secret.Data[ada.entry] = []byte(ada.until(end))
			clustertest.Wait(t, "the key to expire", func() error {
				if !time.Now().After(end.Add(time.Second)) {
					return fmt.Errorf("it expires at %s", end)
				}
				return nil
			})
			s.must(s.c.Client.Update(t.Context(), secret))
			stop()
			stop = s.startController(andRollout)
			s.lookNow()
			s.applied(approved)
			if m := said(s.gs()); !strings.Contains(m, "InSync=True") {
				t.Errorf("an approval that was seen in time no longer counts: %s", m)
			}

			if now := s.firstSeen("web", approved); !now.Equal(seenAt) {
				t.Errorf("the approval was first seen at %s, and at %s now", seenAt, now)
			}

			// The same key, with a date from before.
			date := dated.UTC().Format(time.RFC3339)
			s.repo.Env = []string{"GIT_COMMITTER_DATE=" + date, "GIT_AUTHOR_DATE=" + date}
			s.repo.Sign(ada.dated(dated))
			late := s.push(approval(1))
			if m := s.refused(late, "CommitNotVerified"); !strings.Contains(m, "had expired") || !strings.Contains(m, "first seen later") {
				t.Error(m)
			}
			s.isAt("web", "WaitingForApproval", 1)

			// A tip by another key brings the approval, which does not count all the same.
			grace := gittest.NewSSHKey(t, "ed25519", "")
			secret = get(s, "keys", &corev1.Secret{})
			secret.Data["grace.sshpub"] = []byte(grace.Public)
			s.must(s.c.Client.Update(t.Context(), secret))
			s.repo.Env = nil
			s.repo.Sign(&grace)
			s.applied(s.push(map[string]string{"deploy/a.yaml": configMap("a", "one")}))
			if m := said(s.gs()); !strings.Contains(m, "InSync=False ApprovalIgnored: deploy/approvals/web.yaml") || !strings.Contains(m, "first seen later") {
				t.Error(m)
			}
			s.isAt("web", "WaitingForApproval", 1)
			stop()
			stop = s.startController(andRollout)
			s.lookNow()
			s.isAt("web", "WaitingForApproval", 1)
			s.push(map[string]string{"deploy/approvals/web.yaml": approval(1)["deploy/approvals/web.yaml"] + "# by Grace\n"})
			s.isAt("web", "ReleaseCompleted", 2)
		})
	}
}
