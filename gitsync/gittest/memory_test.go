package gittest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-git/go-billy/v5/osfs"
)

// Git takes the objects of a Memory for its own, and verifies their signatures.
func TestMemory(t *testing.T) {
	t.Parallel()
	Need(t, "git", "ssh-keygen")
	dir := t.TempDir()
	Git(t, dir, "init", "-q", "--bare")
	m, by := NewMemory(t, osfs.New(dir)), NewMemorySigner(t, 1)
	first := m.Commit(by, map[string]string{"a.yaml": "a\n", "a/b/c.yaml": "c\n", "a-b/c.yaml": "c\n"})
	second := m.Commit(nil, map[string]string{"a.yaml": "b\n"}, first)
	merge := m.Commit(by, m.Files(first), second, first)

	signers := filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, []byte("ada@example.org "+by.Public+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	Git(t, dir, "fsck", "--strict", "--full")
	for _, c := range []string{first, merge} {
		Git(t, dir, "-c", "gpg.ssh.allowedSignersFile="+signers, "verify-commit", c)
	}
	if got := Git(t, dir, "show", merge+":a/b/c.yaml"); got != "c" {
		t.Errorf("a/b/c.yaml is %q", got)
	}
	if !m.Has(merge, second) || m.Has(first, second) {
		t.Error("the history is another")
	}
}
