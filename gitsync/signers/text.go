package signers

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

var (
	trailingSpace = regexp.MustCompile(`[ \t\r]+(\n|$)`)
	expandedID    = regexp.MustCompile(`\$Id:[^$\n]*\$`)
)

// normalized returns a text without what git can change when a file is added. That is its
// encoding, a byte order mark, line ends with the white space before them, and the values
// of $Id$.
func normalized(text []byte) string {
	text = trailingSpace.ReplaceAll(bytes.TrimPrefix(decoded(text), []byte("\xef\xbb\xbf")), []byte("$1"))
	return string(bytes.TrimRight(expandedID.ReplaceAll(text, []byte("$$Id$$")), "\n"))
}

// wide is a way to write a character in more than one byte.
type wide struct {
	mark  []byte
	width int
	order binary.ByteOrder
}

// Those of four bytes come first: their marks begin with those of two.
var wides = []wide{
	{[]byte{0xff, 0xfe, 0, 0}, 4, binary.LittleEndian}, {[]byte{0, 0, 0xfe, 0xff}, 4, binary.BigEndian},
	{[]byte{0xff, 0xfe}, 2, binary.LittleEndian}, {[]byte{0xfe, 0xff}, 2, binary.BigEndian},
}

// decoded returns a text in UTF-8 if it is in UTF-16 or UTF-32. Without a byte order mark
// it is known by its zeros, which no text in UTF-8 has.
func decoded(text []byte) []byte {
	for _, w := range wides {
		if rest, ok := bytes.CutPrefix(text, w.mark); ok {
			return w.decode(rest)
		}
	}
	for _, w := range wides {
		if w.isLike(text) {
			return w.decode(text)
		}
	}
	return text
}

// isLike reports whether the zeros of a text are where ASCII characters have them.
func (w wide) isLike(text []byte) bool {
	if len(text) < w.width || bytes.Count(text, []byte{0})*4 < len(text) {
		return false
	}
	ascii := 0
	for at := 0; at+w.width <= len(text); at += w.width {
		if c := w.at(text[at:]); c != 0 && c < utf8.RuneSelf {
			ascii++
		}
	}
	return ascii*w.width*2 > len(text)
}

func (w wide) at(text []byte) rune {
	if w.width == 4 {
		return rune(w.order.Uint32(text)) //nolint:gosec // one that is no character is replaced
	}
	return rune(w.order.Uint16(text))
}

func (w wide) decode(text []byte) []byte {
	var units []uint16
	var out []byte
	for ; len(text) >= w.width; text = text[w.width:] {
		if w.width == 2 {
			units = append(units, w.order.Uint16(text))
		} else {
			out = utf8.AppendRune(out, w.at(text))
		}
	}
	return append(out, string(utf16.Decode(units))...)
}

// linesOf returns the lines of a normalized text that are not blank.
func linesOf(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
}

// isText reports whether a normalized text is one of which git makes an approval line by
// line, if at all: see isSame. It is not what a filter keeps in place of a file.
func isText(text string) bool {
	return !hasControls(text) && utf8.ValidString(text) && !strings.HasPrefix(text, "version https://git-lfs") &&
		!strings.HasPrefix(text, "version https://hawser")
}

// approvalIn returns the approval that a normalized text is; false: it is none.
func approvalIn(text string) (a v1alpha1.BatchApproval, ok bool) {
	ok = isText(text) && yaml.Unmarshal([]byte(text), &a) == nil && a.Kind == "BatchApproval"
	return a, ok
}

// tokens are what an approval names, in lower case: a commit, the digest of a plan, or both
// of these.
type tokens []string

// tokensOf returns what the approval of a text names. Each must stand in the text as it is:
// no version has such a line, and is not found by it.
func tokensOf(text string) (found tokens, ok bool) {
	a, ok := approvalIn(text)
	for _, name := range []string{a.Spec.Commit, a.Spec.Plan} {
		if name != "" {
			found = append(found, strings.ToLower(name))
			ok = ok && found[len(found)-1:].in(text)
		}
	}
	return found, ok && len(found) > 0
}

// in reports whether a text has one of the tokens.
func (t tokens) in(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(t, func(token string) bool { return strings.Contains(text, token) })
}
