package signature

import (
	"bytes"
	"crypto"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Why a commit does not count as signed. Each is part of an error with the
// particulars.
var (
	ErrUnsigned     = errors.New("it is not signed")
	ErrUnknownKey   = errors.New("it is signed by a key that is not listed")
	ErrExpired      = errors.New("it is signed by a key that had expired")
	ErrNotYetValid  = errors.New("it is signed by a key that was not valid yet")
	ErrRevoked      = errors.New("it is signed by a key that is revoked")
	ErrNamespace    = errors.New("it is signed by a key for other things than git")
	ErrBadSignature = errors.New("its signature is not good")
)

// Signature is who signed a commit.
type Signature struct {
	// Key is the key's fingerprint: SHA256:… of an SSH key, that of the
	// primary key of an OpenPGP one.
	Key string
	// Principal is who the key is listed for: the principals of its line in
	// allowed_signers, the comment of an *.sshpub, or an OpenPGP user ID.
	Principal string
}

// String is the principal with the key.
func (s Signature) String() string {
	if s.Principal == "" {
		return s.Key
	}
	return s.Principal + " (" + s.Key + ")"
}

// skew is how far ahead of the controller's clock a clock that signs may be.
const skew = 5 * time.Minute

// Verify returns which of the keys has signed a commit, given as the bytes of its object.
// Otherwise it returns an error that wraps one of those above.
//
// A key must have been valid when it signed. As with git, that is the committer's date
// for an SSH key (git passes it to ssh-keygen as -Overify-time). For an OpenPGP key it is
// the time in the signature. A date later than now is not believed: now counts.
//
// The signer can write any earlier date. So a key that has expired by now counts only if
// the commit was seen before. seenBy reports whether it was seen at a time or before;
// nil: it is seen for the first time. It is not called if the key is valid now.
func Verify(raw []byte, keys *Keys, now time.Time, seenBy func(time.Time) bool) (Signature, error) {
	c, err := parse(raw)
	if err != nil {
		return Signature{}, err
	}
	return keys.verify(c, now, seenBy)
}

// verify checks the signature of a commit or tag.
func (k *Keys) verify(c commit, now time.Time, seenBy func(time.Time) bool) (Signature, error) {
	at := when{signed: c.committed, now: now, seenBy: seenBy}
	if at.signed.After(now) {
		at.signed = now
	}
	switch {
	case strings.HasPrefix(c.armored, "-----BEGIN SSH SIGNATURE-----\n"):
		return k.verifySSH(c, at)
	case strings.HasPrefix(c.armored, "-----BEGIN PGP SIGNATURE-----\n"):
		return k.verifyOpenPGP(c, at)
	case strings.HasPrefix(c.armored, "-----BEGIN SIGNED MESSAGE-----\n"):
		return Signature{}, fmt.Errorf("%w: X.509 signatures are not supported", ErrBadSignature)
	default:
		return Signature{}, fmt.Errorf("%w: it is of no kind that git makes", ErrBadSignature)
	}
}

// when is the time of a signature.
type when struct {
	// signed is the time that it has itself.
	signed, now time.Time
	seenBy      func(time.Time) bool
}

// after reports whether a key that expires at a time may be what signs now.
func (w when) after(expiry time.Time) bool {
	return w.now.After(expiry) && (w.seenBy == nil || !w.seenBy(expiry))
}

// errSeenLate is of a key that had expired when the commit was first seen.
func errSeenLate(key string, expiry time.Time) error {
	return fmt.Errorf("%w: key %s was valid until %s, and the commit was first seen later, whatever its date", ErrExpired, key, said(expiry))
}

func (k *Keys) verifySSH(c commit, at when) (Signature, error) {
	block, rest := pem.Decode([]byte(c.armored))
	if block == nil || len(bytes.TrimSpace(rest)) > 0 || len(block.Headers) > 0 {
		return Signature{}, fmt.Errorf("%w: its armor does not read", ErrBadSignature)
	}
	sig, err := sshsig.ParseSignature(block.Bytes)
	if err != nil {
		return Signature{}, fmt.Errorf("%w: it does not read: %w", ErrBadSignature, err)
	}
	fingerprint := ssh.FingerprintSHA256(sig.PublicKey)
	lines := k.of(sig.PublicKey)
	if len(lines) == 0 {
		return Signature{}, fmt.Errorf("%w: %s %s", ErrUnknownKey, sig.PublicKey.Type(), fingerprint)
	}
	if sig.Namespace != namespaceGit {
		return Signature{}, fmt.Errorf("%w: the signature by %s is one of namespace %.40q", ErrNamespace, lines[0].name(), sig.Namespace)
	}
	if err := sshsig.Verify(bytes.NewReader(c.payload), sig, sig.PublicKey, sig.HashAlgorithm, namespaceGit); err != nil {
		return Signature{}, fmt.Errorf("%w: the commit is not what %s signed", ErrBadSignature, lines[0].name())
	}
	var first error
	for _, line := range lines {
		err := line.check(at)
		if err == nil {
			return Signature{Key: fingerprint, Principal: line.principals}, nil
		}
		if first == nil {
			first = err
		}
	}
	return Signature{}, first
}

func (k *Keys) verifyOpenPGP(c commit, at when) (Signature, error) {
	now := at.now
	sig, bare, err := readOpenPGP(c.armored)
	if err != nil {
		return Signature{}, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	if len(k.openPGP.KeysById(*sig.IssuerKeyId)) == 0 {
		return Signature{}, fmt.Errorf("%w: OpenPGP key %016X", ErrUnknownKey, *sig.IssuerKeyId)
	}
	// The library's checks are as of now, so that a key whose life was made
	// longer is good for what it signed before.
	clock := now
	if ahead := sig.CreationTime.Sub(now); ahead > 0 && ahead <= skew {
		clock = sig.CreationTime
	}
	config := &packet.Config{Time: func() time.Time { return clock }}
	_, by, err := openpgp.VerifyDetachedSignature(k.openPGP, bytes.NewReader(c.payload), bytes.NewReader(bare), config)
	if by == nil {
		return Signature{}, fmt.Errorf("%w: the commit is not what key %016X signed, or that key is not one to sign with",
			ErrBadSignature, *sig.IssuerKeyId)
	}
	s := Signature{Key: fingerprint(by)}
	if id := by.PrimaryIdentity(); id != nil {
		s.Principal = id.Name
	}
	switch {
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return Signature{}, fmt.Errorf("%w: key %s", ErrRevoked, s)
	case sig.CreationTime.After(clock):
		return Signature{}, fmt.Errorf("%w: key %s signed at %s, which is yet to come", ErrNotYetValid, s, said(sig.CreationTime))
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return Signature{}, fmt.Errorf("%w: the signature by %s, or one that key %s needs, has expired", ErrExpired, s.Principal, s.Key)
	case err != nil && !errors.Is(err, pgperrors.ErrKeyExpired):
		return Signature{}, fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	if err := wasValid(by, sig, s, at); err != nil {
		return Signature{}, err
	}
	return s, nil
}

// strongHashes are those of a signature that another content cannot be made for.
var strongHashes = []crypto.Hash{crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA3_256, crypto.SHA3_512}

// readOpenPGP reads an armored signature: one packet, and nothing after it.
func readOpenPGP(armored string) (*packet.Signature, []byte, error) {
	const end = "-----END PGP SIGNATURE-----"
	if strings.Count(armored, end) != 1 || !strings.HasSuffix(strings.TrimSpace(armored), end) {
		return nil, nil, errors.New("its armor does not read")
	}
	block, err := armor.Decode(strings.NewReader(armored))
	if err != nil || block.Type != openpgp.SignatureType {
		return nil, nil, errors.New("its armor does not read")
	}
	bare, err := io.ReadAll(block.Body)
	if err != nil {
		return nil, nil, errors.New("its armor does not read")
	}
	packets := packet.NewReader(bytes.NewReader(bare))
	p, err := packets.Next()
	if err != nil {
		return nil, nil, fmt.Errorf("it does not read: %w", err)
	}
	sig, ok := p.(*packet.Signature)
	if !ok || sig.IssuerKeyId == nil {
		return nil, nil, errors.New("it does not read: it has no issuer")
	}
	if _, err := packets.Next(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("there is more than one")
	}
	switch {
	case sig.SigType != packet.SigTypeBinary:
		return nil, nil, errors.New("it is not of the kind that git makes")
	case !slices.Contains(strongHashes, sig.Hash):
		return nil, nil, fmt.Errorf("its hash, %s, is too weak", sig.Hash)
	}
	return sig, bare, nil
}

// wasValid says whether an OpenPGP key was valid when it signed.
func wasValid(e *openpgp.Entity, sig *packet.Signature, s Signature, w when) error {
	self, _ := e.PrimarySelfSignature()
	keys, selves := []*packet.PublicKey{e.PrimaryKey}, []*packet.Signature{self}
	for _, sub := range e.Subkeys {
		if sub.PublicKey.KeyId == *sig.IssuerKeyId {
			keys, selves = append(keys, sub.PublicKey), append(selves, sub.Sig)
		}
	}
	at := sig.CreationTime
	for i, key := range keys {
		switch {
		case key.CreationTime.After(at):
			return fmt.Errorf("%w: key %s is of %s, and signed at %s", ErrNotYetValid, s, said(key.CreationTime), said(at))
		case key.KeyExpired(selves[i], at):
			return fmt.Errorf("%w: key %s signed at %s", ErrExpired, s, said(at))
		}
		if lifetime := selves[i].KeyLifetimeSecs; lifetime != nil && *lifetime != 0 {
			if expiry := key.CreationTime.Add(time.Duration(*lifetime) * time.Second); w.after(expiry) {
				return errSeenLate(s.String(), expiry)
			}
		}
	}
	return nil
}
