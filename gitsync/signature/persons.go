package signature

import (
	"net/mail"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// listing is one key with the principals that it is listed for.
type listing struct {
	key        string
	principals []string
}

// Same reports whether two signatures may be by the same person. They are if they are by
// the same key, or by keys that are listed for a common principal, also by way of other
// keys. A line may list several principals, and a person may have SSH and OpenPGP keys. A key
// that is listed for a pattern, or without a principal, may be of anyone.
func (k *Keys) Same(a, b Signature) bool {
	list := append(k.listings(), listingOf(a.Key, a.Principal), listingOf(b.Key, b.Principal))
	of := personOf(a.Key, list)
	return slices.ContainsFunc(of, func(l listing) bool { return l.key == b.Key }) || mayBeAnyone(of) || mayBeAnyone(personOf(b.Key, list))
}

// mayBeAnyone reports whether a person has no principal, or one that is a pattern of ssh_config(5).
func mayBeAnyone(person []listing) bool {
	named := false
	for _, l := range person {
		for _, p := range l.principals {
			if strings.ContainsAny(p, "*?") {
				return true
			}
			named = true
		}
	}
	return !named
}

// personOf returns all listings of the person who has a key.
func personOf(key string, list []listing) []listing {
	var person []listing
	keys, principals := map[string]bool{key: true}, map[string]bool{}
	for grows := true; grows; {
		grows, person = false, nil
		for _, l := range list {
			if !keys[l.key] && !slices.ContainsFunc(l.principals, func(p string) bool { return principals[p] }) {
				continue
			}
			person = append(person, l)
			for _, p := range l.principals {
				grows = grows || !principals[p]
				principals[p] = true
			}
			grows = grows || !keys[l.key]
			keys[l.key] = true
		}
	}
	return person
}

// listings are all keys, once for each time that they are listed.
func (k *Keys) listings() []listing {
	var list []listing
	for _, a := range k.ssh {
		list = append(list, listingOf(ssh.FingerprintSHA256(a.key), a.principals))
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

// listingOf takes the principals of a line apart. Those that are excluded name no one.
func listingOf(key, line string) listing {
	l := listing{key: key}
	for p := range strings.SplitSeq(line, ",") {
		if p = principalOf(p); p != "" && !strings.HasPrefix(p, "!") {
			l.principals = append(l.principals, p)
		}
	}
	return l
}

// principalOf makes principals comparable. An e-mail address is compared without its
// display name and comment, and its domain as the DNS has it.
func principalOf(s string) string {
	s = strings.TrimSpace(s)
	if a, err := mail.ParseAddress(s); err == nil {
		s = a.Address
	} else if _, rest, ok := strings.Cut(s, "<"); ok && strings.HasSuffix(rest, ">") {
		s = strings.TrimSuffix(rest, ">")
	}
	s = strings.ToLower(norm.NFC.String(strings.TrimSpace(s)))
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		domain := strings.TrimSuffix(s[at+1:], ".")
		if ascii, err := idna.Lookup.ToASCII(domain); err == nil {
			domain = ascii
		}
		s = s[:at+1] + domain
	}
	return s
}
