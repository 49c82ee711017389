package gitsync

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Keys of the Secret that spec.writeBack.signingKey names, as Flux has them.
const (
	keyGitASC     = "git.asc"
	keyPassphrase = "passphrase"
)

// signer signs what a commit is without its signature.
type signer interface {
	Sign(payload []byte) (string, error)
}

// newSigner makes a signer of a Secret: of an OpenPGP key, or of an SSH one. No
// value of the Secret is part of an error.
func newSigner(data map[string][]byte) (signer, error) {
	pgp, identity := len(data[keyGitASC]) > 0, len(data[keyIdentity]) > 0
	switch {
	case pgp && identity:
		return nil, errors.New("has both git.asc and identity; keep one of them")
	case pgp:
		return newPGPSigner(data[keyGitASC], data[keyPassphrase])
	case identity:
		key, err := parseKey(data[keyIdentity], data[keyPassword])
		return sshSigner{key}, err
	default:
		return nil, errors.New("has neither git.asc, an OpenPGP key, nor identity, an SSH key")
	}
}

// sshSigner signs as `git commit -S` does with gpg.format ssh.
type sshSigner struct{ key ssh.Signer }

func (s sshSigner) Sign(payload []byte) (string, error) {
	const namespace = "git"
	sig, err := sshsig.Sign(bytes.NewReader(payload), s.key, sshsig.HashSHA512, namespace)
	if err != nil {
		return "", fmt.Errorf("signing with the SSH key: %w", err)
	}
	return string(sshsig.Armor(sig)), nil
}

// pgpSigner signs as `git commit -S` does with gpg.
type pgpSigner struct{ key *openpgp.Entity }

func newPGPSigner(armored, passphrase []byte) (signer, error) {
	keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(armored))
	if err != nil || len(keys) != 1 || keys[0].PrivateKey == nil {
		return nil, errors.New("git.asc is not one private key; write it with gpg --export-secret-keys --armor")
	}
	if err := keys[0].DecryptPrivateKeys(passphrase); err != nil {
		return nil, errors.New("git.asc is encrypted and passphrase does not open it")
	}
	if _, ok := keys[0].SigningKey(time.Now()); !ok {
		return nil, errors.New("git.asc has no key that may sign now; has it expired?")
	}
	return pgpSigner{keys[0]}, nil
}

func (s pgpSigner) Sign(payload []byte) (string, error) {
	var b bytes.Buffer
	if err := openpgp.ArmoredDetachSign(&b, s.key, bytes.NewReader(payload), nil); err != nil {
		return "", fmt.Errorf("signing with the OpenPGP key: %w", err)
	}
	return b.String() + "\n", nil
}
