package gitobject

import (
	"bytes"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/text/encoding/unicode"
)

// alike returns the contents of files as git would convert them to the encoding and the
// line ends of the first. Git converts a whole file where .gitattributes changed, and the
// user who adds it has not written the lines.
func alike(s *Store, first object.TreeEntry, others ...object.TreeEntry) ([][]byte, error) {
	text, err := textOf(s, append([]object.TreeEntry{first}, others...)...)
	if err != nil {
		return nil, err
	}
	now := text[0]
	for i, t := range text[1:] {
		if isUTF16(t) && !isUTF16(now) {
			if t, err = unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Bytes(t); err != nil {
				return nil, fmt.Errorf("decoding object %s: %w", others[i].Hash, err)
			}
		}
		switch all, crlf := bytes.Count(now, []byte("\n")), bytes.Count(now, []byte("\r\n")); {
		case isUTF16(t):
		case crlf == 0:
			t = bytes.ReplaceAll(t, []byte("\r\n"), []byte("\n"))
		case crlf == all:
			t = bytes.ReplaceAll(bytes.ReplaceAll(t, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
		}
		text[i+1] = t
	}
	return text, nil
}

// isUTF16 reports whether a text begins with the byte order mark of UTF-16.
func isUTF16(text []byte) bool {
	return bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff"))
}
