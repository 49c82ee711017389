package signature

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// allowed is a line of allowed_signers.
type allowed struct {
	principals string
	key        ssh.PublicKey
	blob       []byte
	// namespaces are patterns that a signature's must match; empty: any.
	namespaces string
	// after and before bound when the key may sign, both included; zero: not.
	after, before time.Time
}

// parseAllowed reads a line: principals, options if there are any, type and
// base64 form of the key, and a comment (OpenSSH's sshsig.c,
// parse_principals_key_and_options).
func parseAllowed(line string) (allowed, error) {
	principals, rest, err := cutWord(line)
	if err != nil {
		return allowed{}, err
	}
	a := allowed{principals: strings.Trim(principals, `"`)}
	if a.principals == "" || isKeyType(a.principals) {
		return allowed{}, errors.New("a line begins with the principals, such as ada@example.org, and then comes the key")
	}
	includes := func(principal string) bool { return principal != "" && principal[0] != '!' }
	if !slices.ContainsFunc(strings.Split(a.principals, ","), includes) {
		return allowed{}, errors.New("its principals exclude, and name no one: add whom the key is for, or remove the line")
	}
	word, after, err := cutWord(rest)
	if err != nil {
		return allowed{}, err
	}
	if !isKeyType(word) && after != "" {
		if err := a.options(word); err != nil {
			return allowed{}, err
		}
		rest = after
	}
	if a.key, _, err = parseKey(rest); err != nil {
		return allowed{}, err
	}
	a.blob = a.key.Marshal()
	return a, nil
}

// cutWord cuts off what stands before white space that is not in quotes.
func cutWord(s string) (word, rest string, err error) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quoted && i+1 < len(s) && s[i+1] == '"':
			i++
		case s[i] == '"':
			quoted = !quoted
		case (s[i] == ' ' || s[i] == '\t') && !quoted:
			return s[:i], strings.TrimLeft(s[i:], " \t"), nil
		}
	}
	if quoted {
		return "", "", errors.New("a quote is not closed")
	}
	return s, "", nil
}

// options reads the options of a line, which are separated by commas.
func (a *allowed) options(s string) error {
	seen := map[string]bool{}
	for s != "" {
		name, value, rest, err := cutOption(s)
		if err != nil {
			return err
		}
		s = rest
		if seen[name] {
			return fmt.Errorf("option %s stands there twice", name)
		}
		seen[name] = true
		switch name {
		case "cert-authority":
			err = errors.New("option cert-authority is not supported; list the keys themselves")
		case "namespaces":
			if a.namespaces = value; value == "" {
				err = errors.New("option namespaces is empty")
			}
		case "valid-after":
			a.after, err = parseTime(name, value)
		case "valid-before":
			a.before, err = parseTime(name, value)
		default:
			err = fmt.Errorf("option %.40q is none; there are namespaces, valid-after and valid-before", name)
		}
		if err != nil {
			return err
		}
	}
	if !a.after.IsZero() && !a.before.IsZero() && !a.after.Before(a.before) {
		return errors.New("valid-before is not later than valid-after")
	}
	return nil
}

// cutOption cuts off name or name="value" and the comma after it.
func cutOption(s string) (name, value, rest string, err error) {
	end := strings.IndexAny(s, "=,")
	if end < 0 {
		return strings.ToLower(s), "", "", nil
	}
	name = strings.ToLower(s[:end])
	if s[end] == ',' {
		rest, err = afterComma(name, s[end+1:])
		return name, "", rest, err
	}
	s = s[end+1:]
	if !strings.HasPrefix(s, `"`) {
		return "", "", "", fmt.Errorf("the value of option %.40q must be in double quotes", name)
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && s[i+1] == '"':
			i++
			b.WriteByte('"')
		case s[i] == '"':
			rest, comma := strings.CutPrefix(s[i+1:], ",")
			switch {
			case comma:
				rest, err = afterComma(name, rest)
			case rest != "":
				err = fmt.Errorf("after option %s a comma is missing", name)
			}
			return name, b.String(), rest, err
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", "", errors.New("a quote is not closed")
}

// afterComma returns what follows the comma after an option. ssh-keygen refuses the line if that is
// nothing.
func afterComma(name, rest string) (string, error) {
	if rest == "" {
		return "", fmt.Errorf("after option %.40q and its comma an option is missing", name)
	}
	return rest, nil
}

// parseTime reads YYYYMMDD[HHMM[SS]][Z]. ssh-keygen takes a time without Z as one of the
// machine's zone. Here that is always UTC, so that a Secret says the same wherever the
// controller runs.
func parseTime(option, s string) (time.Time, error) {
	digits := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "Z"), "UTC")
	if layout, ok := map[int]string{8: "20060102", 12: "200601021504", 14: "20060102150405"}[len(digits)]; ok {
		if t, err := time.Parse(layout, digits); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is %.40q; it must be YYYYMMDD or YYYYMMDDHHMM[SS], and Z for UTC", option, s)
}

// matches reports whether a name is in a list of patterns, as ssh has them:
// separated by commas, with * and ?, and ! to exclude (ssh_config(5), PATTERNS).
func matches(patterns, name string) bool {
	found := false
	for _, p := range strings.Split(patterns, ",") {
		p, excluded := strings.CutPrefix(p, "!")
		// path.Match would take [ and \ as special, and they are not.
		p = strings.NewReplacer(`\`, `\\`, `[`, `\[`).Replace(p)
		if ok, err := path.Match(p, name); err != nil || !ok {
			continue
		}
		if excluded {
			return false
		}
		found = true
	}
	return found
}

// check says whether the key of a line may sign a commit at a time.
func (a *allowed) check(w when) error {
	at := w.signed
	switch {
	case a.namespaces != "" && !matches(a.namespaces, namespaceGit):
		return fmt.Errorf("%w: the key of %s is for %s", ErrNamespace, a.name(), a.namespaces)
	case !a.after.IsZero() && at.Before(a.after):
		return fmt.Errorf("%w: the key of %s is valid from %s, and signed at %s", ErrNotYetValid, a.name(), said(a.after), said(at))
	case !a.before.IsZero() && at.After(a.before):
		return fmt.Errorf("%w: the key of %s was valid until %s, and signed at %s", ErrExpired, a.name(), said(a.before), said(at))
	case !a.before.IsZero() && w.after(a.before):
		return errSeenLate("of "+a.name(), a.before)
	}
	return nil
}

// name is whose key it is.
func (a *allowed) name() string {
	if a.principals != "" {
		return a.principals
	}
	return ssh.FingerprintSHA256(a.key)
}

func said(t time.Time) string { return t.UTC().Format(time.RFC3339) }
