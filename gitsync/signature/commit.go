package signature

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// commit is a commit object, or that of a tag, taken apart for a check of its signature.
type commit struct {
	// payload is what was signed: the object without its signature headers.
	payload []byte
	// armored is the signature, and empty where there is none.
	armored string
	// committed is the date of the committer, or tagger.
	committed time.Time
}

// maxCommit bounds the bytes of a commit whose signature is verified.
const maxCommit = 1 << 20

// first are the headers that a commit begins with, in this order; only parent
// may be absent or there more than once (git's commit.c, parse_commit_buffer).
var first = []string{"tree", "parent", "author", "committer"}

// parse takes the bytes of a commit object apart. It is stricter than git, whose readers
// each take what they need. A gpgsig between tree and parent leaves the signed bytes as
// they are and the commit without parents. Such a commit would seem to bring every file.
func parse(raw []byte) (commit, error) {
	if len(raw) > maxCommit {
		return commit{}, fmt.Errorf("%w: the commit has more than %d bytes", ErrBadSignature, maxCommit)
	}
	var c commit
	var sig []string
	at, signatures := 0, 0
	for rest := raw; len(rest) > 0; {
		var field []byte
		if field, rest = cutField(rest); field[0] == '\n' {
			c.payload = append(append(c.payload, field...), rest...)
			break
		}
		name, value, _ := strings.Cut(string(field), " ")
		var err error
		if at, err = inPlace(at, name); err != nil {
			return commit{}, err
		}
		switch {
		case name == "gpgsig":
			signatures++
			sig = append(sig, strings.ReplaceAll(value, "\n ", "\n"))
			continue
		case name == "gpgsig-sha256":
			continue // git leaves it out of what it checks, too
		case strings.HasPrefix(name, "gpgsig"):
			return commit{}, fmt.Errorf("%w: the commit has the unknown header %.40q", ErrBadSignature, name)
		case name == "committer":
			if c.committed, err = dateOf(value); err != nil {
				return commit{}, err
			}
		}
		c.payload = append(c.payload, field...)
	}
	switch {
	case at < len(first):
		return commit{}, fmt.Errorf("%w: the object is no commit: it has no %s in its place", ErrBadSignature, first[at])
	case signatures == 0:
		return commit{}, ErrUnsigned
	case signatures > 1:
		return commit{}, fmt.Errorf("%w: the commit has %d signatures", ErrBadSignature, signatures)
	}
	c.armored = sig[0]
	return c, nil
}

// Payload returns what the signature of a commit object is for: the object without its
// signature headers. Many objects have the same. The armour of a signature, and often the
// signature itself, can be written in other ways that are as good. Only the owner of the
// key can make another payload. An object that is no commit is its own.
func Payload(raw []byte) []byte {
	c, err := parse(raw)
	if err != nil {
		return raw
	}
	return c.payload
}

// cutField cuts off a header with the lines that continue it, which begin
// with a space. The empty line that ends the headers comes as "\n".
func cutField(b []byte) (field, rest []byte) {
	for end := 0; ; {
		i := bytes.IndexByte(b[end:], '\n')
		if i < 0 {
			return b, nil
		}
		if end += i + 1; end == 1 || end == len(b) || b[end] != ' ' {
			return b[:end], b[end:]
		}
	}
}

// inPlace returns how many of the first headers are done with after one more.
func inPlace(at int, name string) (int, error) {
	if at < len(first) {
		switch {
		case name == first[at] && name == "parent":
			return at, nil
		case name == first[at]:
			return at + 1, nil
		case first[at] == "parent" && name == first[at+1]:
			return at + 2, nil
		}
		return at, fmt.Errorf("%w: the object is no commit as git makes it: %.40q in place of %s", ErrBadSignature, name, first[at])
	}
	for _, f := range first {
		if name == f {
			return at, fmt.Errorf("%w: the object is no commit as git makes it: %s out of place", ErrBadSignature, name)
		}
	}
	return at, nil
}

// dateOf reads the date of a committer: seconds since 1970 and a zone.
func dateOf(committer string) (time.Time, error) {
	fields := strings.Fields(committer[strings.LastIndexByte(committer, '>')+1:])
	if len(fields) != 2 {
		return time.Time{}, fmt.Errorf("%w: the committer has no date", ErrBadSignature)
	}
	seconds, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("%w: the committer's date %.40q is none", ErrBadSignature, fields[0])
	}
	return time.Unix(seconds, 0).UTC(), nil
}
