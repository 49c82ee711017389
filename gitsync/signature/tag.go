package signature

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// tagHeaders are the headers of an annotated tag, in their order (git's fsck.c,
// fsck_tag).
var tagHeaders = []string{"object", "type", "tag", "tagger"}

// armors are the lines that a signature at the end of a tag begins with (git's
// gpg-interface.c).
var armors = []string{"-----BEGIN SSH SIGNATURE-----\n", "-----BEGIN PGP SIGNATURE-----\n", "-----BEGIN SIGNED MESSAGE-----\n"}

// VerifyTag returns which of the keys has signed an annotated tag, given as the bytes of
// its object. Otherwise it returns an error that wraps one of those above. The tag must
// have the name that led to it, and be one of the commit. A ref of another name may lead
// to a tag that was signed for an older version.
//
// When a key must have been valid is as for [Verify], with the tagger's date.
func VerifyTag(raw []byte, name, commit string, keys *Keys, now time.Time, seenBy func(time.Time) bool) (Signature, error) {
	values, c, err := parseTag(raw)
	switch {
	case err != nil:
		return Signature{}, err
	case values["tag"] != name:
		return Signature{}, fmt.Errorf("%w: what was signed is a tag with the name %.100q", ErrBadSignature, values["tag"])
	case values["type"] != "commit" || values["object"] != commit:
		return Signature{}, fmt.Errorf("%w: what was signed is a tag of another object", ErrBadSignature)
	case c.armored == "":
		return Signature{}, ErrUnsigned
	}
	return keys.verify(c, now, seenBy)
}

// parseTag takes the bytes of a tag object apart.
func parseTag(raw []byte) (map[string]string, commit, error) {
	var c commit
	if len(raw) > maxCommit {
		return nil, c, fmt.Errorf("%w: the tag has more than %d bytes", ErrBadSignature, maxCommit)
	}
	head, message, ok := bytes.Cut(raw, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	if !ok || len(lines) != len(tagHeaders) {
		return nil, c, fmt.Errorf("%w: the object is no tag as git makes it", ErrBadSignature)
	}
	values := map[string]string{}
	for i, line := range lines {
		key, value, _ := strings.Cut(line, " ")
		if key != tagHeaders[i] {
			return nil, c, fmt.Errorf("%w: the object is no tag as git makes it: %.40q in place of %s", ErrBadSignature, key, tagHeaders[i])
		}
		values[key] = value
	}
	var err error
	if c.committed, err = dateOf(values["tagger"]); err != nil {
		return nil, c, err
	}
	at, n := beginOf(string(message))
	if n > 1 {
		return nil, c, fmt.Errorf("%w: the tag has %d signatures", ErrBadSignature, n)
	}
	if n == 1 {
		c.payload = raw[:len(head)+2+at]
		c.armored = string(message[at:])
	}
	return values, c, nil
}

// beginOf returns where the signature in the message of a tag begins, and how many there are.
func beginOf(message string) (at, n int) {
	for offset, line := 0, ""; offset < len(message); offset += len(line) {
		line = message[offset:]
		if end := strings.IndexByte(line, '\n'); end >= 0 {
			line = line[:end+1]
		}
		for _, a := range armors {
			if line == a {
				at = offset
				n++
			}
		}
	}
	return at, n
}
