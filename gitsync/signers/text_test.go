package signers

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"
)

// encoded is a text in UTF-16 or UTF-32.
func encoded(text string, width int, order binary.ByteOrder, mark bool) string {
	if mark {
		text = "\ufeff" + text
	}
	var b bytes.Buffer
	if width == 4 {
		for _, r := range text {
			_ = binary.Write(&b, order, uint32(r))
		}
	} else {
		_ = binary.Write(&b, order, utf16.Encode([]rune(text)))
	}
	return b.String()
}

// A text is the same in each encoding that git may convert.
func TestNormalized(t *testing.T) {
	t.Parallel()
	const text = "# grüße 世界 🎉\nkind: BatchApproval\nspec: {step: 2}\n"
	want := normalized([]byte(text))
	for _, width := range []int{2, 4} {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			for _, mark := range []bool{true, false} {
				if got := normalized([]byte(encoded(strings.ReplaceAll(text, "\n", " \r\n"), width, order, mark))); got != want {
					t.Errorf("%d bytes, %v, mark %t: %q", width, order, mark, got)
				}
			}
		}
	}
	for _, other := range []string{"", "\x00", "a\x00b", "\xff\xfe", "\xff\xfea", "plain", "\x00\x00\xfe\xff\x00\x11\x00\x00", strings.Repeat("\x00", 9)} {
		normalized([]byte(other))
	}
}

// Git can have written a text in another encoding if that can be of each line. Only some
// characters are the same in all encodings.
func TestFinder_IsSame(t *testing.T) {
	t.Parallel()
	const text = "kind: BatchApproval\nspec: {step: 2, commit: 01ab}\n# +AOk- a\n"
	f := &finder{text: normalized([]byte(text)), lines: linesOf(text)}
	var ebcdic strings.Builder // what git reads of bytes in EBCDIC has control characters
	for range text {
		ebcdic.WriteString("\u0081")
	}
	for from, want := range map[string]bool{
		text:                     true,
		"# other\n" + text:       false,
		"kind: BatchApproval\n":  false,
		ebcdic.String():          true,
		ebcdic.String() + "\x81": false, // not UTF-8
		"kind: ＢatchApproval\nspec: {ｓｔｅｐ: 2, commit: 01ab}\n# é a\n": true,
		"кинд: Батч\nспец: 2\n# é\n":                                  false,
		"kind: BatchApproval\nspec: {step: 2, commit: 01ab}\n# + a\n": true,
		"kind: BatchApproval\nspec: {step: 2, commit: 01ab}\n# x a\n": false,
		"kind: BatchApproval\nspec: {step: 0, commit: 01ab}\n# é a\n": false,
	} {
		if got := f.isSame(normalized([]byte(from))); got != want {
			t.Errorf("%q: %t", from, got)
		}
	}
}
