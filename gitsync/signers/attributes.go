package signers

import (
	"bufio"
	"bytes"
	"path"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/gitattributes"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// maxAttributes is how large a file of attributes may be that is read.
const maxAttributes = 256 << 10

// converted returns the attribute of a tree by which git converts a file as a whole when it
// is added: working-tree-encoding or filter. Empty: there is none. Attributes that take
// such a one back do not count.
func converted(s storer.EncodedObjectStorer, tree plumbing.Hash, file string) (string, error) {
	parts := strings.Split(file, "/")
	macros := map[string]bool{}
	for depth := range parts {
		dir := parts[:depth]
		e, err := gitobject.EntryAt(s, tree, path.Join(path.Join(dir...), ".gitattributes"))
		if err != nil {
			return "", err
		}
		if !e.Mode.IsFile() || e.Mode == filemode.Symlink {
			continue
		}
		size, err := s.EncodedObjectSize(e.Hash)
		if err != nil {
			return "", gittree.Missing("file", e.Hash, err)
		}
		if size > maxAttributes {
			return ".gitattributes", nil // it may be any
		}
		text, err := gitobject.ReadBlob(s, e.Hash)
		if err != nil {
			return "", err
		}
		if name := convertedBy(text, dir, parts, macros); name != "" {
			return name, nil
		}
	}
	return "", nil
}

// convertedBy returns the attribute that one file of attributes gives a path. It adds the
// macros that have such an attribute.
func convertedBy(text []byte, dir, parts []string, macros map[string]bool) string {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxAttributes+1)
	for lines.Scan() {
		pattern, attributes := patternOf(strings.TrimLeft(lines.Text(), " \t\r\ufeff"))
		name := ""
		for _, a := range strings.Fields(attributes) {
			key, value, _ := strings.Cut(a, "=")
			if value != "" && (key == "working-tree-encoding" || key == "filter") || macros[a] {
				name = a
			}
		}
		switch macro, isMacro := strings.CutPrefix(pattern, "[attr]"); {
		case name == "":
		case isMacro:
			macros[macro] = true
		case matches(pattern, dir, parts):
			return name
		}
	}
	return ""
}

// patternOf divides a line of attributes. A comment has no pattern.
func patternOf(line string) (pattern, attributes string) {
	if strings.HasPrefix(line, "#") {
		return "", ""
	}
	if quoted, err := strconv.QuotedPrefix(line); err == nil && strings.HasPrefix(line, `"`) {
		if pattern, err = strconv.Unquote(quoted); err == nil {
			return pattern, line[len(quoted):]
		}
	}
	i := strings.IndexAny(line, " \t\r")
	if i < 0 {
		return line, ""
	}
	return line[:i], line[i:]
}

// matches reports whether a pattern matches a path. The case of letters does not matter, as
// with core.ignoreCase.
func matches(pattern string, dir, parts []string) bool {
	if pattern == "" || strings.HasPrefix(pattern, "!") {
		return false
	}
	lower := strings.Split(strings.ToLower(strings.Join(parts, "/")), "/")
	return gitattributes.ParsePattern(pattern, dir).Match(parts) ||
		gitattributes.ParsePattern(strings.ToLower(pattern), lower[:len(dir)]).Match(lower)
}
