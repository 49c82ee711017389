package gitobject

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signature"
)

// The commits that are written back are good to git verify-commit.
func TestSignedCommits(t *testing.T) {
	t.Parallel()
	gittest.Need(t, "ssh-keygen", "gpg")
	ssh, gpg := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewGPG(t).NewKey("tranche@example.org", "never", "open sesame")
	allowed := filepath.Join(t.TempDir(), "allowed_signers")
	if err := os.WriteFile(allowed, []byte("tranche@example.org "+ssh.Public+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		secret map[string][]byte
		config []string
	}{
		{"ssh", map[string][]byte{"identity": []byte(ssh.Private)}, []string{"gpg.ssh.allowedSignersFile=" + allowed}},
		{"openpgp", map[string][]byte{"git.asc": []byte(gpg.Private), "passphrase": []byte("open sesame")}, gpg.Config},
	} {
		signer, err := signature.NewSigner(c.secret)
		if err != nil {
			t.Fatal(err)
		}
		repo := gittest.NewRepo(t)
		parent := repo.Commit(map[string]string{"a": "1\n"})
		s := NewStore(gittest.Objects(repo.Work + "/.git"))
		m := Committer{Author: object.Signature{Name: "tranche", Email: "tranche@example.org"}, Signer: signer}
		m.Committer = m.Author
		h, err := m.Commit(s, treeAt(repo, parent), []plumbing.Hash{plumbing.NewHash(parent)}, "Signed\n\nTranche-Release: shop/web\n",
			time.Now())
		if err != nil {
			t.Fatal(err)
		}
		send(t, repo, s, h)
		for _, setting := range c.config {
			name, value, _ := strings.Cut(setting, "=")
			repo.Git("config", name, value)
		}
		repo.Git("verify-commit", h.String())
	}
}
