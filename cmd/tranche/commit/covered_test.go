package commit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// secrets answers with one Secret; nil: the user may read none.
type secrets struct {
	client.Client
	data map[string][]byte
}

func (s secrets) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	secret, ok := o.(*corev1.Secret)
	if !ok || key.String() != "shop/committers" || s.data == nil {
		return errors.New("forbidden")
	}
	secret.Data = s.data
	return nil
}

// A commit that is signed covers all its history. The command signs on top of commits that
// spec.verify refuses only if the user says so, and --yes does not.
func TestSignatureCovers(t *testing.T) {
	listed, other := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", "")
	signed := func(s clitest.Clone, key gittest.Key, args ...string) {
		var all []string
		for _, c := range key.Config {
			all = append(all, "-c", c)
		}
		s.Run("git", append(all, args...)...)
	}
	outsider := func(s clitest.Clone, _ *commitCommand) {
		s.Run("git", "commit", "--quiet", "--allow-empty", "--author=Mallory \x1b[2J <m@example.org>", "-m", "bring \x1b[1ma Deployment")
	}
	unreadable := func(_ clitest.Clone, st *commitCommand) { st.at = &cli.Connection{Client: secrets{}} }
	trusts := func(s clitest.Clone, key gittest.Key) {
		file := filepath.Join(s.TempDir(), "allowed_signers")
		if err := os.WriteFile(file, []byte("ada@example.org "+key.Public+"\n"), 0o600); err != nil {
			s.Fatal(err)
		}
		s.Run("git", "config", "gpg.ssh.allowedSignersFile", file)
	}
	refused := func(_ clitest.Clone, st *commitCommand) {
		st.source.Status.ObservedCommit, _ = st.clone.Head(t.Context())
		st.source.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonCommitNotVerified}}
	}
	type edit = func(clitest.Clone, *commitCommand)
	for name, tc := range map[string]struct {
		edits   []edit
		answers string // none: --yes
		covers  int    // commits that are shown
		refused bool
		names   string // the flag that the error names; none: --cover-unverified
	}{
		"nothing new": {},
		"unsigned":    {edits: []edit{outsider}, covers: 1, refused: true},
		"unsigned, with the flag": {
			edits: []edit{outsider, func(_ clitest.Clone, st *commitCommand) { st.coverUnverified = true }}, covers: 1,
		},
		"unsigned, the user agrees":   {edits: []edit{outsider}, answers: "y\ny\n", covers: 1},
		"unsigned, the user does not": {edits: []edit{outsider}, answers: "n\n", covers: 1, refused: true},
		"unsigned, configured to sign": {edits: []edit{outsider, func(s clitest.Clone, st *commitCommand) {
			st.sign = false
			s.Run("git", "config", "commit.gpgSign", "yes")
		}}, covers: 1, refused: true},
		"unsigned, and nothing is signed":          {edits: []edit{outsider, func(_ clitest.Clone, st *commitCommand) { st.sign = false }}},
		"unsigned, and pushed without a signature": {edits: []edit{outsider, func(_ clitest.Clone, st *commitCommand) { st.sign, st.push = false, true }}, refused: true, names: "--sign"},
		"unsigned, and nothing has to be":          {edits: []edit{outsider, func(_ clitest.Clone, st *commitCommand) { st.source.Spec.Verify = nil }}},
		"unsigned, and a tag has to be":            {edits: []edit{outsider, func(_ clitest.Clone, st *commitCommand) { st.source.Spec.Verify.Mode = v1alpha1.VerifyTag }}},
		"unsigned, and applied": {edits: []edit{outsider, func(_ clitest.Clone, st *commitCommand) {
			st.source.Status.AppliedCommit, _ = st.clone.Head(t.Context())
		}}},
		"unsigned, and nothing is applied": {edits: []edit{outsider, func(_ clitest.Clone, st *commitCommand) { st.source.Status.AppliedCommit = "" }}, covers: 3, refused: true},
		"unsigned, the applied one is not in the clone": {
			edits: []edit{outsider, func(_ clitest.Clone, st *commitCommand) { st.source.Status.AppliedCommit = strings.Repeat("0a", 20) }}, covers: 3, refused: true,
		},
		"unsigned, and the source is ready with it": {edits: []edit{outsider, refused, func(_ clitest.Clone, st *commitCommand) { st.source.Status.Conditions[0].Status = metav1.ConditionTrue }}},
		"signed": {edits: []edit{func(s clitest.Clone, _ *commitCommand) {
			signed(s, listed, "commit", "--quiet", "--allow-empty", "-S", "-m", "signed")
		}}},
		"signed by another key": {edits: []edit{func(s clitest.Clone, _ *commitCommand) {
			signed(s, other, "commit", "--quiet", "--allow-empty", "-S", "--author=Mallory <m@example.org>", "-m", "signed")
		}}, covers: 1, refused: true},
		"unsigned, below a signed one": {edits: []edit{outsider, func(s clitest.Clone, _ *commitCommand) {
			signed(s, listed, "commit", "--quiet", "--allow-empty", "-S", "-m", "signed")
		}}},
		"unsigned, on a merged branch": {edits: []edit{
			func(s clitest.Clone, _ *commitCommand) { s.Run("git", "switch", "--quiet", "-c", "side") }, outsider,
			func(s clitest.Clone, _ *commitCommand) {
				s.Run("git", "switch", "--quiet", "main")
				signed(s, listed, "merge", "--quiet", "--no-ff", "-S", "-m", "merge", "side")
			},
		}},
		"unsigned, above a signed one": {edits: []edit{func(s clitest.Clone, _ *commitCommand) {
			signed(s, listed, "commit", "--quiet", "--allow-empty", "-S", "-m", "signed")
		}, outsider}, covers: 1, refused: true},
		"the keys cannot be read, and git trusts the signature": {edits: []edit{unreadable, func(s clitest.Clone, _ *commitCommand) {
			trusts(s, listed)
			s.Run("git", "config", "log.showSignature", "true")
			signed(s, listed, "commit", "--quiet", "--allow-empty", "-S", "-m", "signed")
		}}},
		"the keys cannot be read, and git does not trust the signature": {edits: []edit{unreadable, func(s clitest.Clone, _ *commitCommand) {
			trusts(s, listed)
			signed(s, other, "commit", "--quiet", "--allow-empty", "-S", "--author=Mallory <m@example.org>", "-m", "signed")
		}}, covers: 1, refused: true},
		"the keys cannot be read, and the controller has refused what git trusts": {edits: []edit{unreadable, func(s clitest.Clone, _ *commitCommand) {
			trusts(s, other)
			signed(s, other, "commit", "--quiet", "--allow-empty", "-S", "--author=Mallory <m@example.org>", "-m", "signed")
		}, refused}, covers: 1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			st, commits := commandIn(t, [2]string{"deployment.yaml", "web:v1 => web:v2"})
			s, out := clitest.Clone{TB: t, Dir: st.clone.Dir}, &bytes.Buffer{}
			for _, c := range listed.Config {
				key, value, _ := strings.Cut(c, "=")
				s.Run("git", "config", key, value)
			}
			st.at = &cli.Connection{Client: secrets{data: map[string][]byte{"a.sshpub": []byte(listed.Public + "\n")}}}
			st.sign, st.source.Status.AppliedCommit = true, commits[len(commits)-1]
			st.source.Spec.Verify = &v1alpha1.CommitVerification{Verification: v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "committers"}}}
			st.cmd.SetOut(out)
			if tc.answers != "" {
				st.yes = false
				st.cmd.SetIn(iotest.OneByteReader(strings.NewReader(tc.answers))) // as a terminal, line by line
			}
			for _, edit := range tc.edits {
				edit(s, st)
			}
			before := s.Run("git", "rev-parse", "HEAD")
			err := st.commit(func(ctx context.Context, ch *clone.Change) (string, error) {
				return "Approve step 0 of web", ch.Write(ctx, "approvals/web.yaml", "step: 0\n")
			}, func(string) error { return nil })
			committed := s.Run("git", "rev-parse", "HEAD") != before
			if committed == tc.refused || (err == nil) == tc.refused {
				t.Errorf("committed %t: %v, want refused %t", committed, err, tc.refused)
			}
			if tc.refused && tc.answers == "" && !strings.Contains(err.Error(), cmp.Or(tc.names, "--cover-unverified")) {
				t.Errorf("the error names no flag: %v", err)
			}
			if shown := strings.Contains(out.String(), fmt.Sprintf("%d in all", tc.covers)); shown != (tc.covers > 0) {
				t.Errorf("want %d commits shown:\n%s", tc.covers, out)
			}
			if tc.covers > 0 && !strings.Contains(out.String(), before[:7]+" Mallory ") || strings.Contains(out.String(), "\x1b") {
				t.Errorf("want commit, author and subject, without escape sequences:\n%q", out)
			}
		})
	}
}
