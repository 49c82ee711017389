package signature_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signature"
)

// signed makes a commit of ours on top of the head, and returns it.
func signed(t *testing.T, repo *gittest.Repo, s signature.Signer) string {
	t.Helper()
	payload := "tree " + repo.Git("rev-parse", "HEAD^{tree}") + "\nparent " + repo.Head() +
		"\nauthor tranche <tranche@example.org> 1790000000 +0000\ncommitter tranche <tranche@example.org> 1790000000 +0000\n\nApprove step 0 " +
		"of web\n"
	sig, err := s.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(sig, "-----\n") || strings.HasSuffix(sig, "\n\n") {
		t.Errorf("the signature ends in %q", sig[len(sig)-10:])
	}
	header, body, _ := strings.Cut(payload, "\n\n")
	return object(t, repo, header+"\ngpgsig "+strings.ReplaceAll(strings.TrimSuffix(sig, "\n"), "\n", "\n ")+"\n\n"+body)
}

// object writes a commit object as it is.
func object(t *testing.T, repo *gittest.Repo, content string) string {
	t.Helper()
	cmd := exec.Command("git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin")
	cmd.Dir, cmd.Stdin = repo.Work, strings.NewReader(content)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// git itself accepts the controller's signatures.
func TestGitAcceptsWhatWeSign(t *testing.T) {
	t.Parallel()
	gittest.Need(t, "git", "ssh-keygen", "gpg")
	for _, tt := range []struct{ kind, passphrase string }{{"ed25519", ""}, {"ed25519", "open sesame"}, {"rsa", ""}, {"ecdsa", "x"}} {
		t.Run(tt.kind+" "+tt.passphrase, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewRepo(t)
			repo.Commit(map[string]string{"a": "b"})
			key := gittest.NewSSHKey(t, tt.kind, tt.passphrase)
			s, err := signature.NewSigner(map[string][]byte{"identity": []byte(key.Private), "password": []byte(tt.passphrase)})
			if err != nil {
				t.Fatal(err)
			}
			allowed := filepath.Join(t.TempDir(), "allowed_signers")
			if err := os.WriteFile(allowed, []byte(`tranche@example.org namespaces="git" `+key.Public+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			repo.Git("-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", signed(t, repo, s))
		})
	}
	for _, passphrase := range []string{"", "open sesame"} {
		t.Run("openpgp "+passphrase, func(t *testing.T) {
			t.Parallel()
			repo := gittest.NewRepo(t)
			repo.Commit(map[string]string{"a": "b"})
			key := gittest.NewGPG(t).NewKey("tranche@example.org", "never", passphrase)
			s, err := signature.NewSigner(map[string][]byte{"git.asc": []byte(key.Private), "passphrase": []byte(passphrase)})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range key.Config {
				name, value, _ := strings.Cut(c, "=")
				repo.Git("config", name, value)
			}
			repo.Git("verify-commit", signed(t, repo, s))
		})
	}
}

func TestNewSignerRefuses(t *testing.T) {
	t.Parallel()
	gittest.Need(t, "ssh-keygen", "gpg")
	locked := gittest.NewSSHKey(t, "ed25519", "open sesame")
	gpg := gittest.NewGPG(t)
	lockedGPG := gpg.NewKey("tranche@example.org", "never", "open sesame")
	expired := gpg.NewKey("old@example.org", "20200102T000000", "", "--faked-system-time", "20200101T000000!")
	for name, tt := range map[string]struct {
		data map[string]string
		says string
	}{
		"nothing":            {map[string]string{"username": "git"}, "has no key that signs"},
		"both":               {map[string]string{"identity": "x", "git.asc": "x"}, "has both git.asc and identity"},
		"no password":        {map[string]string{"identity": locked.Private}, "there is no password"},
		"a wrong password":   {map[string]string{"identity": locked.Private, "password": "s3cret"}, "password does not open it"},
		"a public key":       {map[string]string{"identity": locked.Public}, "no private key that can be read"},
		"no passphrase":      {map[string]string{"git.asc": lockedGPG.Private}, "there is no passphrase"},
		"a wrong passphrase": {map[string]string{"git.asc": lockedGPG.Private, "passphrase": "s3cret"}, "passphrase does not open it"},
		"a public OpenPGP":   {map[string]string{"git.asc": lockedGPG.Public}, "git.asc has no private key"},
		"no armor":           {map[string]string{"git.asc": "s3cret"}, "no key that can be read"},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{}
			for k, v := range tt.data {
				data[k] = []byte(v)
			}
			_, err := signature.NewSigner(data)
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want %q", err, tt.says)
			}
		})
	}
	s, err := signature.NewSigner(map[string][]byte{"git.asc": []byte(expired.Private)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sign([]byte("x")); err == nil || !strings.Contains(err.Error(), "it has expired") {
		t.Errorf("an expired key signs: %v", err)
	}
}
