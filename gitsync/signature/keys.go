package signature

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"
)

// Keys are the keys that a signature may be by.
type Keys struct {
	ssh     []allowed
	openPGP openpgp.EntityList
}

// entryAllowedSigners is the entry in the format of ssh-keygen's ALLOWED
// SIGNERS.
const entryAllowedSigners = "allowed_signers"

// ParseKeys reads the data of a Secret. *.asc are OpenPGP public keys, *.sshpub SSH
// public keys, one on each line. allowed_signers is as ssh-keygen(1) says under ALLOWED
// SIGNERS. Other entries are left alone. An error names the entry and the line: the user
// who lists keys must know that all of them count.
func ParseKeys(data map[string][]byte) (*Keys, error) {
	k := &Keys{}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		var err error
		switch {
		case name == entryAllowedSigners:
			err = k.addLines(name, data[name], parseAllowed)
		case strings.HasSuffix(name, ".sshpub"):
			err = k.addLines(name, data[name], parsePublicKey)
		case strings.HasSuffix(name, ".asc"):
			err = k.addOpenPGP(name, data[name])
		}
		if err != nil {
			return nil, err
		}
	}
	k.openPGP = joinCopies(k.openPGP)
	if len(k.ssh)+len(k.openPGP) == 0 {
		return nil, errors.New("lists no key; put SSH keys in allowed_signers or *.sshpub, OpenPGP keys in *.asc")
	}
	return k, nil
}

// Join returns the keys of both. Either may be nil.
func Join(a, b *Keys) *Keys {
	joined := &Keys{}
	for _, k := range []*Keys{a, b} {
		if k != nil {
			joined.ssh = append(joined.ssh, k.ssh...)
			joined.openPGP = append(joined.openPGP, k.openPGP...)
		}
	}
	joined.openPGP = joinCopies(joined.openPGP)
	return joined
}

// addLines reads an entry of one key a line. Empty lines and those that begin
// with # are comments.
func (k *Keys) addLines(name string, content []byte, parse func(string) (allowed, error)) error {
	for i, line := range strings.Split(string(content), "\n") {
		line = strings.Trim(line, " \t\r")
		if line == "" || line[0] == '#' {
			continue
		}
		a, err := parse(line)
		if err != nil {
			return fmt.Errorf("%s, line %d: %w", name, i+1, err)
		}
		k.ssh = append(k.ssh, a)
	}
	return nil
}

const beginPublicKey = "-----BEGIN PGP PUBLIC KEY BLOCK-----"

// addOpenPGP reads all armored blocks of an entry; the library reads the first.
func (k *Keys) addOpenPGP(name string, content []byte) error {
	blocks := strings.Split(string(content), beginPublicKey)
	switch {
	case strings.Contains(blocks[0], "PRIVATE KEY"):
		return fmt.Errorf("%s: is a private key; only public keys belong there (gpg --armor --export)", name)
	case len(blocks) == 1:
		return fmt.Errorf("%s: is no OpenPGP key; it must be as `gpg --armor --export` writes it", name)
	}
	for i, block := range blocks[1:] {
		ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(beginPublicKey + block))
		if err != nil {
			return fmt.Errorf("%s, key block %d: is no OpenPGP key that can be read: %w", name, i+1, err)
		}
		for _, e := range ring {
			if s, _ := e.PrimarySelfSignature(); s == nil {
				return fmt.Errorf("%s, key block %d: key %s has no user ID that it has signed", name, i+1, fingerprint(e))
			}
		}
		k.openPGP = append(k.openPGP, ring...)
	}
	return nil
}

// fingerprint of an OpenPGP key as gpg prints it.
func fingerprint(e *openpgp.Entity) string { return fmt.Sprintf("%X", e.PrimaryKey.Fingerprint) }

// parsePublicKey reads a line of an *.sshpub entry.
func parsePublicKey(line string) (allowed, error) {
	key, comment, err := parseKey(line)
	if err != nil {
		if _, _, options, _, optErr := ssh.ParseAuthorizedKey([]byte(line)); optErr == nil && len(options) > 0 {
			return allowed{}, errors.New("options and principals belong in the entry allowed_signers")
		}
		return allowed{}, err
	}
	return allowed{principals: comment, key: key, blob: key.Marshal()}, nil
}

// parseKey reads the type of a key, its base64 form and a comment.
func parseKey(s string) (key ssh.PublicKey, comment string, err error) {
	kind, rest, _ := strings.Cut(s, " ")
	if !isKeyType(kind) {
		return nil, "", fmt.Errorf("%.40q is no type of key; a key is ssh-ed25519 AAAA… or of another type, as ssh-keygen prints it", kind)
	}
	key, comment, _, _, err = ssh.ParseAuthorizedKey([]byte(s))
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("what follows %s is not the base64 form of such a key", kind)
	case strings.TrimSpace(rest) == "" || key.Type() != kind:
		return nil, "", fmt.Errorf("the key is not of type %s", kind)
	case strings.Contains(kind, "-cert-"):
		return nil, "", errors.New("certificates are not supported; list the key itself")
	case kind == ssh.InsecureKeyAlgoDSA: //nolint:staticcheck // that is why it is refused
		return nil, "", errors.New("DSA keys are too weak")
	}
	return key, comment, nil
}

// isKeyType tells what stands at the beginning of a key.
func isKeyType(word string) bool {
	return slices.ContainsFunc([]string{"ssh-", "sk-", "ecdsa-"}, func(p string) bool { return strings.HasPrefix(word, p) })
}

// of returns the lines that list a key.
func (k *Keys) of(key ssh.PublicKey) []allowed {
	blob := key.Marshal()
	var lines []allowed
	for _, a := range k.ssh {
		if bytes.Equal(a.blob, blob) {
			lines = append(lines, a)
		}
	}
	return lines
}

// EndBetween reports whether a key may sign at the first of two times, and no longer at the
// second one. A nil list has none.
func (k *Keys) EndBetween(from, to time.Time) bool {
	if k == nil {
		return false
	}
	is := func(end time.Time) bool { return !end.IsZero() && !end.Before(from) && end.Before(to) }
	for _, a := range k.ssh {
		if is(a.before) {
			return true
		}
	}
	for _, e := range k.openPGP {
		self, _ := e.PrimarySelfSignature()
		if is(endOf(e.PrimaryKey, self)) {
			return true
		}
		for _, sub := range e.Subkeys {
			if is(endOf(sub.PublicKey, sub.Sig)) {
				return true
			}
		}
	}
	return false
}

// endOf is when an OpenPGP key expires, as a signature of it says; zero: it does not.
func endOf(key *packet.PublicKey, self *packet.Signature) time.Time {
	if self == nil || self.KeyLifetimeSecs == nil || *self.KeyLifetimeSecs == 0 {
		return time.Time{}
	}
	return key.CreationTime.Add(time.Duration(*self.KeyLifetimeSecs) * time.Second)
}

// ID names the keys with what they are listed for. The same list has the same ID, and one with
// another key, principal, revocation or end has another ID.
func (k *Keys) ID() string {
	var lines []byte
	for _, a := range k.ssh {
		lines = fmt.Appendf(lines, "%q %x %q %v %v\n", a.principals, a.blob, a.namespaces, a.after, a.before)
	}
	for _, e := range k.openPGP {
		self, _ := e.PrimarySelfSignature()
		lines = fmt.Appendf(lines, "%s %d %v\n", fingerprint(e), len(e.Revocations), endOf(e.PrimaryKey, self))
		for _, name := range slices.Sorted(maps.Keys(e.Identities)) {
			lines = fmt.Appendf(lines, "%q %d\n", name, len(e.Identities[name].Revocations))
		}
		for _, sub := range e.Subkeys {
			lines = fmt.Appendf(lines, "%X %d %v\n", sub.PublicKey.Fingerprint, len(sub.Revocations), endOf(sub.PublicKey, sub.Sig))
		}
	}
	sum := sha256.Sum256(lines)
	return hex.EncodeToString(sum[:])
}
