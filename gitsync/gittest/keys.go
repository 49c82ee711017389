package gittest

import (
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// Need skips a test if the machine lacks a program. If CI is set, all must be there, and
// the test fails.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed", p)
		}
		t.Skipf("%s is not installed", p)
	}
}

// Key is a key that signs commits.
type Key struct {
	// Public is the authorized-key line of an SSH key, or the armored OpenPGP
	// key.
	Public string
	// Private is the private key, in the format of the same tool.
	Private string
	// Config has git sign with it.
	Config []string

	signer ssh.Signer // in this process; nil: git signs with Config
}

// NewSSHKey makes an SSH key with ssh-keygen. Kinds are those of its -t.
func NewSSHKey(t testing.TB, kind, passphrase string) Key {
	t.Helper()
	Need(t, "git", "ssh-keygen")
	file := filepath.Join(t.TempDir(), "key")
	run(t, nil, "ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", "key of a test", "-f", file)
	return Key{
		Public: strings.TrimSpace(read(t, file+".pub")), Private: read(t, file),
		Config: []string{"gpg.format=ssh", "user.signingKey=" + file},
	}
}

// NewPersonsKey makes an Ed25519 key as ssh-keygen does, in this process.
func NewPersonsKey(t testing.TB) Key {
	t.Helper()
	Need(t, "git", "ssh-keygen")
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "key of a test")
	if err != nil {
		t.Fatal(err)
	}
	line, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	k := Key{Public: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(line))), Private: string(pem.EncodeToMemory(block)), signer: signer}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(k.Private), 0o600); err != nil {
		t.Fatal(err)
	}
	k.Config = []string{"gpg.format=ssh", "user.signingKey=" + file}
	return k
}

// GPG is a GnuPG home.
type GPG struct {
	t    testing.TB
	home string
}

// NewGPG makes a GnuPG home.
func NewGPG(t testing.TB) *GPG {
	t.Helper()
	Need(t, "git", "gpg")
	// The sockets in it have names of at most 107 characters.
	home, err := os.MkdirTemp("", "gpg")
	if err != nil {
		t.Fatal(err)
	}
	g := &GPG{t, home}
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", home, "--kill", "all").Run() // no agent may be there
		_ = os.RemoveAll(home)
	})
	return g
}

// Run runs gpg in the home and returns what it prints.
func (g *GPG) Run(args ...string) string {
	g.t.Helper()
	return run(g.t, []string{"GNUPGHOME=" + g.home}, "gpg",
		append([]string{"--batch", "--yes", "--quiet", "--pinentry-mode", "loopback"}, args...)...)
}

// NewKey makes a key for a user ID. Its expiry is as gpg's --quick-gen-key has
// it ("never", "1d", "20300101T000000"); options come before, such as
// --faked-system-time.
func (g *GPG) NewKey(user, expiry, passphrase string, options ...string) Key {
	g.t.Helper()
	g.Run(append(options, "--passphrase", passphrase, "--quick-gen-key", user, "ed25519", "sign", expiry)...)
	wrapper := filepath.Join(g.home, "gpg.sh")
	script := "#!/bin/sh\nexport GNUPGHOME=" + g.home + "\nexec gpg --batch --pinentry-mode loopback --passphrase '" + passphrase + "' " +
		strings.Join(options, " ") + " \"$@\"\n"
	if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
		g.t.Fatal(err)
	}
	return Key{
		Public: g.Run("--armor", "--export", user), Private: g.Run("--passphrase", passphrase, "--armor", "--export-secret-keys", user),
		Config: []string{"gpg.format=openpgp", "user.signingKey=" + user, "gpg.program=" + wrapper},
	}
}

// Fingerprint is that of the primary key of a user ID.
func (g *GPG) Fingerprint(user string) string {
	g.t.Helper()
	_, rest, _ := strings.Cut(g.Run("--with-colons", "--list-keys", user), "fpr:::::::::")
	fingerprint, _, _ := strings.Cut(rest, ":")
	return fingerprint
}

// Revoke revokes the key of a user ID by the certificate that gpg has made with it.
func (g *GPG) Revoke(user string) {
	g.t.Helper()
	certificate := filepath.Join(g.home, "openpgp-revocs.d", g.Fingerprint(user)+".rev")
	// A colon before the armor keeps users from an import by mistake.
	armored := strings.Replace(read(g.t, certificate), ":-----BEGIN", "-----BEGIN", 1)
	if err := os.WriteFile(certificate, []byte(armored), 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.Run("--import", certificate)
}

// Import adds an armored public key to the keyring.
func (g *GPG) Import(armored string) {
	g.t.Helper()
	file := filepath.Join(g.t.TempDir(), "key.asc")
	if err := os.WriteFile(file, []byte(armored), 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.Run("--import", file)
}

// VerifyCommit returns what git and gpg say of the signature of a commit, good or not.
func (g *GPG) VerifyCommit(r *Repo, commit string) string {
	g.t.Helper()
	says, _ := tryGit(r.Work, []string{"GNUPGHOME=" + g.home}, "verify-commit", "--raw", commit) // of a bad one, too
	return says
}

// Sign sets the key that signs the next commits; none: they are not signed.
func (r *Repo) Sign(k *Key) {
	r.t.Helper()
	r.key = k
	var config strings.Builder
	config.WriteString("[commit]\n\tgpgSign = false\n")
	if k != nil {
		for _, line := range append([]string{"commit.gpgSign=true"}, k.Config...) {
			name, value, _ := strings.Cut(line, "=")
			section, key, _ := strings.Cut(name, ".")
			fmt.Fprintf(&config, "[%s]\n\t%s = %q\n", section, key, value)
		}
	}
	configure(r.t, filepath.Join(r.Work, ".git", "config"), config.String()) // of a key twice, the last counts
}

func run(t testing.TB, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		said := ""
		if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // exec returns it as it is
			said = string(exit.Stderr)
		}
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, said)
	}
	return string(out)
}

func read(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
