package commit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// approver is a command of a signer in a clone, with the key that git signs with.
type approver struct {
	clitest.Clone
	st       *commitCommand
	listed   gittest.Key
	stranger gittest.Key
}

// listSigners lets only approvals count that the listed key has signed.
func listSigners(t *testing.T, st *commitCommand) *approver {
	t.Helper()
	a := &approver{clitest.Clone{TB: t, Dir: st.clone.Dir}, st, gittest.NewSSHKey(t, "ed25519", ""), gittest.NewSSHKey(t, "ed25519", "")}
	set, _, err := st.rendering().Set(st.release.Spec.Commit)
	if err != nil {
		t.Fatal(err)
	}
	signers := &v1alpha1.Verification{SecretRef: v1alpha1.LocalObjectReference{Name: "committers"}}
	st.source.Spec.Approvals = &v1alpha1.ApprovalPolicy{Signers: signers}
	st.release.Spec.RequireSignedApprovals, st.release.Spec.Strategy = true, set.Releases[0].Plan.Spec.Strategy
	st.at = &cli.Connection{Client: secrets{data: map[string][]byte{"a.sshpub": []byte(a.listed.Public + "\n")}}}
	st.sign = true
	for _, c := range a.listed.Config {
		key, value, _ := strings.Cut(c, "=")
		a.Run("git", "config", key, value)
	}
	return a
}

// text is a file with an approval of step 0 of a release.
func (a *approver) text(commit string) string {
	return fmt.Sprintf("apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: shop}\n"+
		"spec: {revision: 5584f4c7df, commit: %s, step: 0}\n", commit)
}

// commits commits all that is changed, signed by a key or, nil, by none. It returns the commit.
func (a *approver) commits(key *gittest.Key) string {
	a.Helper()
	a.Run("git", "add", "--all")
	args := []string{"commit", "--quiet", "-m", "approvals"}
	if key != nil {
		args = append(args, "-S")
		for _, c := range key.Config {
			args = append([]string{"-c", c}, args...)
		}
	}
	a.Run("git", args...)
	return a.Run("git", "rev-parse", "HEAD")
}

type edits []func(*approver)

const earlier = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"

func noKey(*approver) *gittest.Key      { return nil }
func signer(a *approver) *gittest.Key   { return &a.listed }
func stranger(a *approver) *gittest.Key { return &a.stranger }

// puts commits an approval of a release; empty: of the one under way.
func puts(file, commit string, key func(a *approver) *gittest.Key) func(*approver) {
	return func(a *approver) {
		a.Write("approvals/"+file, a.text(cmp.Or(commit, a.st.release.Spec.Commit)))
		a.commits(key(a))
	}
}

// links puts an approval elsewhere, and links it.
func links(from, to, approval string) func(*approver) {
	return func(a *approver) {
		a.Write(approval, a.text(a.st.release.Spec.Commit))
		a.Write("approvals/README.md", "approvals\n")
		if err := os.Symlink(to, filepath.Join(a.Dir, from)); err != nil {
			a.Fatal(err)
		}
		a.commits(&a.listed)
	}
}

// besides is what an approval does beside other files.
type besides struct {
	edits edits
	file  string // that the commit changes; empty: it is refused
	says  []string
}

func (tc besides) check(t *testing.T) {
	st, _ := commandIn(t, [2]string{"deployment.yaml", "web:v1 => web:v2"})
	a := listSigners(t, st)
	for _, edit := range tc.edits {
		edit(a)
	}
	before := a.Run("git", "rev-parse", "HEAD")
	err := st.approve(1)
	if (err == nil) != (tc.file != "") {
		t.Errorf("%v, want a change of %q", err, tc.file)
	}
	changed := a.Run("git", "diff", "--name-only", before, "HEAD")
	if want := strings.TrimSuffix("approvals/"+tc.file, "approvals/"); changed != want {
		t.Errorf("%q is changed, want %q", changed, want)
	}
	said := fmt.Sprint(st.said(), err)
	for _, want := range tc.says {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
}

// Files of other users have approvals of the release, too. The command writes its own file
// unless a signer has approved in another one, and refuses only if two signed ones remain.
func TestApprove_OtherFiles(t *testing.T) {
	const x1 = "Ignored: approvals/x1.yaml: "
	moves := func(a *approver) {
		a.Run("git", "mv", "approvals/web.yaml", "approvals/x1.yaml")
		a.commits(nil)
	}
	for name, tc := range map[string]besides{
		"unsigned":            {edits{puts("x1.yaml", "", noKey)}, "web.yaml", []string{x1, "it is not signed"}},
		"by another key":      {edits{puts("x1.yaml", "", stranger)}, "web.yaml", []string{x1, "a key that is not listed"}},
		"unsigned, own place": {edits{puts("web.yaml", "", noKey)}, "web.yaml", nil},
		"unsigned beside an old one": {
			edits{puts("web.yaml", earlier, signer), puts("x1.yaml", "", noKey)}, "web.yaml", []string{x1},
		},
		"signed":                     {edits{puts("x1.yaml", "", signer)}, "x1.yaml", nil},
		"an earlier one, signed":     {edits{puts("x1.yaml", earlier, signer)}, "x1.yaml", nil},
		"an earlier one, not signed": {edits{puts("x1.yaml", earlier, noKey)}, "web.yaml", nil},
		"two that are signed": {
			edits{puts("x1.yaml", "", signer), puts("x2.yaml", "", signer)}, "", []string{"keep one of them"},
		},
		"behind a link": {
			edits{links("approvals/a", "../planted", "planted/x1.yaml")}, "web.yaml",
			[]string{"Ignored: approvals/a/x1.yaml: ", "a symbolic link"},
		},
		"a link in its own place": {
			edits{links("approvals/web.yaml", "../planted.yaml", "planted.yaml")}, "shop-web.yaml",
			[]string{"Ignored: approvals/web.yaml: ", "a symbolic link"},
		},
		"moved by another": {edits{puts("web.yaml", "", signer), moves}, "web.yaml", []string{x1, "it is not signed"}},
	} {
		t.Run(name, tc.check)
	}
}

// A user who may not read the keys has git check the signatures, and the controller has
// checked what it has taken.
func TestApprove_OtherFilesWithoutKeys(t *testing.T) {
	const note, x1 = "Not checked with the keys of spec.approvals.signers", "Ignored: approvals/x1.yaml: "
	unreadable := func(a *approver) { a.st.at = &cli.Connection{Client: secrets{}} }
	trusts := func(a *approver) {
		file := filepath.Join(a.TempDir(), "allowed_signers")
		if err := os.WriteFile(file, []byte("ada@example.org "+a.listed.Public+"\n"), 0o600); err != nil {
			a.Fatal(err)
		}
		a.Run("git", "config", "gpg.ssh.allowedSignersFile", file)
	}
	taken := func(a *approver) {
		a.st.release.Spec.Approval = &v1alpha1.Approval{ApprovedIn: a.Run("git", "rev-parse", "HEAD")}
	}
	for name, tc := range map[string]besides{
		"unsigned": {
			edits{unreadable, trusts, puts("x1.yaml", "", noKey)}, "web.yaml", []string{note, x1, "your git does not trust the signature"},
		},
		"by another key": {edits{unreadable, trusts, puts("x1.yaml", "", stranger)}, "web.yaml", []string{note, x1}},
		"signed":         {edits{unreadable, trusts, puts("x1.yaml", "", signer)}, "x1.yaml", []string{note}},
		"taken":          {edits{unreadable, puts("x1.yaml", "", signer), taken}, "x1.yaml", []string{note}},
	} {
		t.Run(name, tc.check)
	}
}

// Another user has pushed an approval meanwhile. The branch has one already only if it is signed.
func TestApprove_AnotherWasFirstSigned(t *testing.T) {
	for name, tc := range map[string]struct {
		key     func(a *approver) *gittest.Key
		already bool
	}{
		"unsigned": {func(*approver) *gittest.Key { return nil }, false},
		"signed":   {func(a *approver) *gittest.Key { return &a.listed }, true},
	} {
		t.Run(name, func(t *testing.T) {
			st, own, other := raced(t)
			a := listSigners(t, st)
			first := &approver{other, st, a.listed, a.stranger}
			first.Write("approvals/web.yaml", a.text(st.release.Spec.Commit))
			first.commits(tc.key(first))
			first.Run("git", "push", "--quiet", "origin", "main")
			if _, err := st.clone.Ready(t.Context(), "main"); !errors.As(err, &st.behind) {
				t.Fatal(err)
			}
			before := own.Run("git", "rev-parse", "HEAD")
			err := st.approve(0)
			if err == nil || strings.Contains(err.Error(), "has an approval of step 0 of shop/web already") != tc.already ||
				!strings.Contains(err.Error(), "git pull --rebase origin main") {
				t.Errorf("%v, want already %t", err, tc.already)
			}
			if now := own.Run("git", "rev-parse", "HEAD"); now != before {
				t.Errorf("the clone is left at another commit, %s", now)
			}
		})
	}
}
