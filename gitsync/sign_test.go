package gitsync

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gittest"
)

// outside runs a program of another project. CI has them all.
func outside(t *testing.T, env []string, program string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
	return string(out)
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// signed makes a commit with a signer, and returns it.
func signed(t *testing.T, repo *gittest.Repo, s signer) string {
	t.Helper()
	parent := repo.Commit(map[string]string{"a": "1\n"})
	scratch := newScratch(objectsIn(repo.Work + "/.git"))
	m := maker{author: object.Signature{Name: "tranche", Email: "tranche@example.org"}, signer: s}
	m.committer = m.author
	h, err := m.commit(scratch, treeAt(repo, parent), []plumbing.Hash{plumbing.NewHash(parent)}, "Signed\n\nTranche-Release: shop/web\n", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	send(t, repo, scratch, h)
	return h.String()
}

// Commits signed with SSH keys are good to git verify-commit.
func TestSignSSH(t *testing.T) {
	for _, kind := range []string{"ed25519", "ecdsa", "rsa"} {
		dir := t.TempDir()
		key, allowed := filepath.Join(dir, "key"), filepath.Join(dir, "allowed_signers")
		outside(t, nil, "ssh-keygen", "-q", "-t", kind, "-N", "open sesame", "-f", key)
		if err := os.WriteFile(allowed, append([]byte("tranche@example.org "), read(t, key+".pub")...), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := newSigner(map[string][]byte{"identity": read(t, key), "password": []byte("open sesame")})
		if err != nil {
			t.Fatal(err)
		}
		repo := gittest.NewRepo(t)
		commit := signed(t, repo, s)
		if said := repo.Git("-c", "gpg.ssh.allowedSignersFile="+allowed, "verify-commit", commit); !strings.Contains(said, "tranche@example.org") {
			t.Errorf("%s: %s", kind, said)
		}
	}
}

// Commits signed with an OpenPGP key are good to git verify-commit.
func TestSignOpenPGP(t *testing.T) {
	home := t.TempDir()
	env := []string{"GNUPGHOME=" + home}
	t.Cleanup(func() { outside(t, env, "gpgconf", "--kill", "all") })
	outside(t, env, "gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", "open sesame", "--quick-generate-key", "tranche <tranche@example.org>", "ed25519", "sign", "never")
	key := outside(t, env, "gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", "open sesame", "--armor", "--export-secret-keys")
	s, err := newSigner(map[string][]byte{"git.asc": []byte(key), "passphrase": []byte("open sesame")})
	if err != nil {
		t.Fatal(err)
	}
	repo := gittest.NewRepo(t)
	commit := signed(t, repo, s)
	t.Setenv("GNUPGHOME", home)
	if said := repo.Git("verify-commit", commit); !strings.Contains(said, "Good signature from") {
		t.Error(said)
	}
	for _, data := range []map[string][]byte{
		{"git.asc": []byte(key), "passphrase": []byte("open barley")}, {"git.asc": []byte("hush"), "passphrase": []byte("hush")},
		{"identity": []byte("hush")}, {}, {"git.asc": []byte(key), "identity": []byte("hush")},
	} {
		_, err := newSigner(data)
		if err == nil || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "barley") {
			t.Errorf("the error is %v", err)
		}
	}
}
