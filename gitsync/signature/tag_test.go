package signature_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/gitsync/signature"
)

// VerifyTag accepts what git verify-tag accepts, and refuses an altered tag.
func TestVerifyTag(t *testing.T) {
	t.Parallel()
	ssh, gpg := gittest.NewSSHKey(t, "ed25519", ""), gittest.NewGPG(t).NewKey("Grace Example <grace@example.org>", "never", "")
	keys, err := signature.ParseKeys(map[string][]byte{
		"allowed_signers": []byte("ada@example.org " + ssh.Public), "grace.asc": []byte(gpg.Public),
	})
	if err != nil {
		t.Fatal(err)
	}
	repo := gittest.NewRepo(t)
	commit := repo.Commit(map[string]string{"a": "one"})
	for name, key := range map[string]gittest.Key{"by-ssh": ssh, "by-gpg": gpg} {
		t.Run(name, func(t *testing.T) {
			repo.Sign(&key)
			repo.Git("tag", "-s", "-m", "one\n\n-----BEGIN of a story\nmore", name, commit)
			raw := repo.Git("cat-file", "tag", name)
			if !strings.HasSuffix(raw, "\n") {
				raw += "\n"
			}
			check := func(what, raw, name, commit string, want error) {
				t.Helper()
				if _, err := signature.VerifyTag([]byte(raw), name, commit, keys, time.Now(), nil); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", what, err, want)
				}
			}
			check("as it is", raw, name, commit, nil)
			check("another name", raw, "v2", commit, signature.ErrBadSignature)
			check("another commit", raw, name, strings.Repeat("0", 40), signature.ErrBadSignature)
			check("another message", strings.Replace(raw, "a story", "history", 1), name, commit, signature.ErrBadSignature)
			check("a header more", strings.Replace(raw, "\n\n", "\nmore of it\n\n", 1), name, commit, signature.ErrBadSignature)
			check("two signatures", raw+raw[strings.Index(raw, "\n-----BEGIN "+map[string]string{"by-ssh": "SSH", "by-gpg": "PGP"}[name])+1:], name,
				commit, signature.ErrBadSignature)
			check("no signature", raw[:strings.Index(raw, "\n-----BEGIN "+map[string]string{"by-ssh": "SSH", "by-gpg": "PGP"}[name])+1], name,
				commit, signature.ErrUnsigned)
			check("text after it", raw+"and more\n", name, commit, signature.ErrBadSignature)
		})
	}
}
