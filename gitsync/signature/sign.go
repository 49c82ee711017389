package signature

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Entries of a Secret with a key that signs, as Flux has them.
const (
	keyOpenPGP    = "git.asc"
	keyPassphrase = "passphrase" // of git.asc
	keyIdentity   = "identity"
	keyPassword   = "password" // of identity
)

// namespaceGit is the namespace of SSH signatures of commits and tags (git's
// gpg-interface.c).
const namespaceGit = "git"

// Signer signs commits.
type Signer interface {
	// Sign returns the armored signature of a payload, which is a commit
	// without a gpgsig header. It belongs in that header, and ends in a newline.
	Sign(payload []byte) (string, error)
}

// NewSigner returns a signer with the private key of a Secret: git.asc and
// passphrase (OpenPGP, armored), or identity and password (SSH, PEM).
func NewSigner(data map[string][]byte) (Signer, error) {
	gpg, key := data[keyOpenPGP], data[keyIdentity]
	switch {
	case len(gpg) > 0 && len(key) > 0:
		return nil, errors.New("has both git.asc and identity; keep the one that is to sign")
	case len(gpg) > 0:
		return newOpenPGPSigner(gpg, data[keyPassphrase])
	case len(key) > 0:
		return newSSHSigner(key, data[keyPassword])
	default:
		return nil, errors.New("has no key that signs; put an SSH private key in identity, or an OpenPGP one in git.asc")
	}
}

// sshSigner signs with an SSH key (OpenSSH's PROTOCOL.sshsig).
type sshSigner struct{ key ssh.Signer }

func newSSHSigner(identity, password []byte) (Signer, error) {
	key, err := ssh.ParsePrivateKey(identity)
	if _, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		if len(password) == 0 {
			return nil, errors.New("identity is encrypted and there is no password; add it")
		}
		if key, err = ssh.ParsePrivateKeyWithPassphrase(identity, password); err != nil {
			return nil, errors.New("identity is encrypted and password does not open it")
		}
	}
	if err != nil { // no part of the error: it may quote the key
		return nil, errors.New("identity is no private key that can be read; it must be PEM, as ssh-keygen writes it")
	}
	return sshSigner{key}, nil
}

func (s sshSigner) Sign(payload []byte) (string, error) {
	sig, err := sshsig.Sign(bytes.NewReader(payload), s.key, sshsig.HashSHA512, namespaceGit)
	if err != nil {
		return "", fmt.Errorf("signing with the SSH key: %w", err)
	}
	return string(sshsig.Armor(sig)), nil
}

// openPGPSigner signs with an OpenPGP key.
type openPGPSigner struct{ key *openpgp.Entity }

func newOpenPGPSigner(armored, passphrase []byte) (Signer, error) {
	ring, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(armored))
	switch {
	case err != nil: // no part of the error: it may quote the key
		return nil, errors.New("git.asc is no key that can be read; it must be as `gpg --armor --export-secret-keys` writes it")
	case len(ring) != 1:
		return nil, fmt.Errorf("git.asc has %d keys; export the one that is to sign", len(ring))
	}
	key := ring[0]
	signs, isLocked := secretParts(key)
	switch {
	case !signs:
		return nil, errors.New("git.asc has no private key; export it with `gpg --armor --export-secret-keys`")
	case isLocked && len(passphrase) == 0:
		return nil, errors.New("git.asc is encrypted and there is no passphrase; add it")
	case isLocked && key.DecryptPrivateKeys(passphrase) != nil:
		return nil, errors.New("git.asc is encrypted and passphrase does not open it")
	}
	return openPGPSigner{key}, nil
}

// secretParts reports whether a key has a private part, and whether any is
// encrypted. Exported subkeys alone come with a primary key that is a dummy.
func secretParts(e *openpgp.Entity) (has, isLocked bool) {
	parts := []*packet.PrivateKey{e.PrivateKey}
	for _, sub := range e.Subkeys {
		parts = append(parts, sub.PrivateKey)
	}
	for _, p := range parts {
		if p != nil && !p.Dummy() {
			has, isLocked = true, isLocked || p.Encrypted
		}
	}
	return has, isLocked
}

func (s openPGPSigner) Sign(payload []byte) (string, error) {
	key, ok := s.key.SigningKey(time.Now()) // an OpenPGP signature tells when it was made
	if !ok || key.PrivateKey == nil || key.PrivateKey.Dummy() {
		return "", errors.New("the OpenPGP key does not sign: it has expired, is revoked, or is for something else; " +
			"renew it and put it in git.asc")
	}
	var b strings.Builder
	if err := openpgp.ArmoredDetachSign(&b, s.key, bytes.NewReader(payload), nil); err != nil {
		return "", fmt.Errorf("signing with the OpenPGP key: %w", err)
	}
	return strings.TrimRight(b.String(), "\n") + "\n", nil
}
