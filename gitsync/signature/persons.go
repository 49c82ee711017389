package signature

import (
	"net/mail"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// listing is one key with the principals that it is listed for.
type listing struct {
	key        string
	principals []string
}

// Same reports whether two signatures may be by the same person. They are if they are by
// the same key, or by keys that are listed for a common principal, also by way of other
// keys. A line may list several principals, and a person may have SSH and OpenPGP keys.
func (k *Keys) Same(a, b Signature) bool {
	if a.Key == b.Key {
		return true
	}
	list := append(k.listings(), listing{a.Key, principalsOf(a.Principal)}, listing{b.Key, principalsOf(b.Principal)})
	keys, principals := map[string]bool{a.Key: true}, map[string]bool{}
	for grows := true; grows; {
		grows = false
		for _, l := range list {
			if !keys[l.key] && !slices.ContainsFunc(l.principals, func(p string) bool { return principals[p] }) {
				continue
			}
			for _, p := range l.principals {
				grows = grows || !principals[p]
				principals[p] = true
			}
			grows = grows || !keys[l.key]
			keys[l.key] = true
		}
	}
	return keys[b.Key]
}

// listings are all keys, once for each time that they are listed.
func (k *Keys) listings() []listing {
	var list []listing
	for _, a := range k.ssh {
		list = append(list, listing{ssh.FingerprintSHA256(a.key), principalsOf(a.principals)})
	}
	for _, e := range k.openPGP {
		l := listing{key: fingerprint(e)}
		for _, id := range e.Identities {
			l.principals = append(l.principals, principalOf(id.Name))
		}
		list = append(list, l)
	}
	return list
}

// principalsOf takes the principals of a line apart. Patterns that exclude name no
// principal.
func principalsOf(line string) []string {
	var list []string
	for p := range strings.SplitSeq(line, ",") {
		p = principalOf(p)
		if p != "" && !strings.HasPrefix(p, "!") {
			list = append(list, p)
		}
	}
	return list
}

// principalOf makes principals comparable. An e-mail address is compared without its
// display name and comment.
func principalOf(s string) string {
	s = strings.TrimSpace(s)
	if a, err := mail.ParseAddress(s); err == nil {
		s = a.Address
	} else if _, rest, ok := strings.Cut(s, "<"); ok && strings.HasSuffix(rest, ">") {
		s = strings.TrimSuffix(rest, ">")
	}
	return strings.ToLower(strings.TrimSpace(s))
}
