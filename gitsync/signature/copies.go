package signature

import (
	"bytes"
	"maps"
	"slices"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// joinCopies makes one key of the copies of each, as gpg does when it imports them. A copy of
// before a key was revoked, or made to last longer, takes nothing back, whatever their order.
func joinCopies(list openpgp.EntityList) openpgp.EntityList {
	var joined openpgp.EntityList
	for _, e := range list {
		i := slices.IndexFunc(joined, func(o *openpgp.Entity) bool { return isSame(o.PrimaryKey, e.PrimaryKey) })
		if i < 0 {
			joined = append(joined, e)
			continue
		}
		joined[i] = joinCopy(joined[i], e)
	}
	return joined
}

func isSame(a, b *packet.PublicKey) bool { return bytes.Equal(a.Fingerprint, b.Fingerprint) }

// joinCopy returns a key with all that two copies have, and changes neither.
func joinCopy(a, b *openpgp.Entity) *openpgp.Entity {
	e := *a
	e.Revocations = slices.Concat(a.Revocations, b.Revocations)
	e.SelfSignature = younger(a.SelfSignature, b.SelfSignature)
	e.Signatures = slices.Concat(a.Signatures, b.Signatures)
	e.Identities = maps.Clone(a.Identities)
	for name, more := range b.Identities {
		known, ok := e.Identities[name]
		if !ok {
			e.Identities[name] = more
			continue
		}
		id := *known
		id.Revocations = slices.Concat(known.Revocations, more.Revocations)
		id.Signatures = slices.Concat(known.Signatures, more.Signatures)
		id.SelfSignature = younger(known.SelfSignature, more.SelfSignature)
		e.Identities[name] = &id
	}
	e.Subkeys = slices.Clone(a.Subkeys)
	for _, more := range b.Subkeys {
		i := slices.IndexFunc(e.Subkeys, func(s openpgp.Subkey) bool { return isSame(s.PublicKey, more.PublicKey) })
		if i < 0 {
			e.Subkeys = append(e.Subkeys, more)
			continue
		}
		sub := &e.Subkeys[i]
		sub.Revocations = slices.Concat(sub.Revocations, more.Revocations)
		sub.Sig = younger(sub.Sig, more.Sig)
	}
	return &e
}

// younger returns the signature that holds of two by the same key on the same thing.
func younger(a, b *packet.Signature) *packet.Signature {
	if a == nil || b != nil && b.CreationTime.After(a.CreationTime) {
		return b
	}
	return a
}
