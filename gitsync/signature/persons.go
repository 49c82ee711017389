package signature

import (
	"net/mail"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
)

// listing is one key with the principals that it is listed for, and those that are excluded.
// Each may be a pattern.
type listing struct {
	key                  string
	principals, excluded []string
}

// Same reports whether two signatures may be by the same person. They are if they are by
// the same key, or by keys that are listed for a common principal, also by way of other
// keys. A line may list several principals, and a person may have SSH and OpenPGP keys. They may
// be if a pattern of one of them matches a principal of the other.
func (k *Keys) Same(a, b Signature) bool {
	if a.Key == b.Key {
		return true
	}
	list := append(k.listings(), listingOf(a.Key, a.Principal), listingOf(b.Key, b.Principal))
	of := personOf(b.Key, list)
	return slices.ContainsFunc(personOf(a.Key, list), func(l listing) bool {
		return slices.ContainsFunc(of, func(o listing) bool { return l.key == o.key || l.mayBe(o) })
	})
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

// mayBe reports whether one principal matches both listings.
func (l listing) mayBe(o listing) bool {
	return slices.ContainsFunc(l.principals, func(p string) bool {
		return slices.ContainsFunc(o.principals, func(q string) bool {
			return overlap(p, q) && !excludes(l.excluded, q) && !excludes(o.excluded, p)
		})
	})
}

// excludes reports whether patterns match each principal that another one matches.
func excludes(patterns []string, principal string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return !isPattern(principal) && overlap(p, principal) || p == principal })
}

func isPattern(principal string) bool { return strings.ContainsAny(principal, "*?") }

// overlap reports whether a text matches both patterns of ssh_config(5), in which * stands for
// any text, and ? for one character.
func overlap(a, b string) bool {
	x, y := []rune(a), []rune(b)
	known := map[[2]int]bool{}
	var rest func(i, j int) bool // of the patterns from there
	rest = func(i, j int) (yes bool) {
		if yes, ok := known[[2]int{i, j}]; ok {
			return yes
		}
		defer func() { known[[2]int{i, j}] = yes }()
		switch endX, endY := i == len(x), j == len(y); {
		case !endX && x[i] == '*':
			return rest(i+1, j) || !endY && rest(i, j+1)
		case !endY && y[j] == '*':
			return rest(i, j+1) || !endX && rest(i+1, j)
		case endX || endY:
			return endX && endY
		default:
			return fits(x[i], y[j]) && rest(i+1, j+1)
		}
	}
	return rest(0, 0)
}

func fits(a, b rune) bool { return a == b || a == '?' || b == '?' }

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

// listingOf takes the principals of a line apart.
func listingOf(key, line string) listing {
	l := listing{key: key}
	for p := range strings.SplitSeq(line, ",") {
		p, excluded := strings.CutPrefix(strings.TrimSpace(p), "!")
		switch p = principalOf(p); {
		case p == "":
		case excluded:
			l.excluded = append(l.excluded, p)
		default:
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
