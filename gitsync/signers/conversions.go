package signers

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// An attribute has git write a file in another encoding when it is checked out. If the
// attribute is taken back, the file is added as it was written. There are too many such
// encodings to know each of them. UTF-7, HZ, the national ones of ISO 646 and those of Greek
// and Cyrillic in seven bits write ASCII. So does iconv for characters that an encoding
// lacks. They have this in common:
//
//   - Letters and digits of ASCII, white space, and the marks in fixed stay as they are.
//   - Other characters of ASCII stay, or become something that begins with an escape.
//   - Characters that are not in ASCII become anything.
//   - Lines stay apart.
//
// EBCDIC alone keeps none of this. A text that it makes readable has control characters.

// fixed are the characters that are the same in each encoding that git may write, apart
// from EBCDIC.
const fixed = `A-Za-z0-9 \t'(),./:?\-`

var (
	// special are the others. The characters that are not in ASCII have a group.
	special = regexp.MustCompile(`([^\x00-\x7f]+)|[^` + fixed + `\x80-\x{10ffff}]+`)
	plain   = regexp.MustCompile(`^[` + fixed + `]*$`)
)

// mostBytes is how many bytes an encoding writes for a character that is not in ASCII.
const mostBytes = 12

// isSame reports whether git can have made the content of a normalized text.
func (f *finder) isSame(text string) bool {
	switch {
	case text == f.text:
		return true
	case hasControls(text):
		runes := utf8.RuneCountInString(text)
		return utf8.ValidString(text) && runes <= 2*len(f.text) && len(f.text) <= mostBytes*runes
	case !strings.ContainsFunc(text, func(r rune) bool { return !plain.MatchString(string(r)) && r != '\n' }):
		return false
	}
	lines := linesOf(text)
	if len(lines) != len(f.lines) {
		return false
	}
	for i, line := range lines {
		if !canBecome(line, f.lines[i]) {
			return false
		}
	}
	return true
}

// canBecome reports whether an encoding can write a line as another one.
func canBecome(line, as string) bool {
	if line == as || plain.MatchString(line) {
		return line == as
	}
	var pattern strings.Builder
	at := 0
	for _, m := range special.FindAllStringSubmatchIndex(line, -1) {
		pattern.WriteString(regexp.QuoteMeta(line[at:m[0]]))
		run := line[m[0]:m[1]]
		if at = m[1]; m[2] >= 0 {
			pattern.WriteString(".*")
		} else {
			pattern.WriteString(`(?:` + regexp.QuoteMeta(run) + `|[+&~\\].*)`)
		}
	}
	pattern.WriteString(regexp.QuoteMeta(line[at:]))
	re, err := regexp.Compile(`^` + pattern.String() + `$`)
	return err != nil || re.MatchString(as) && len(as) <= mostBytes*len(line)
}

// hasControls reports whether a text has control characters that no text of today has. These
// are those beyond ASCII, and those of ASCII that are no white space.
func hasControls(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool {
		return r >= 0x80 && r < 0xa0 || r < ' ' && !strings.ContainsRune("\t\n\r\f\v", r) || r == 0x7f
	})
}
