package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kyaml "sigs.k8s.io/yaml"
)

// Parsers of YAML read one document of a text, and say nothing of what is behind it. That may be
// the plan of a Deployment, which would then be released without gates.

var errNotUTF8 = errors.New("is UTF-16 or UTF-32, and only the first document of such a file would be read; save it as UTF-8")

// checkFile returns an error if kustomize would leave a document of a file out.
func checkFile(content []byte) error {
	for i, d := range documents(content) {
		if !d.hasContent() {
			continue
		}
		if err := d.checkAlone(); err != nil {
			return err
		}
		if i > 0 && !isMarker(d.text, "---") {
			return fmt.Errorf("line %d: a document that comes after \"...\" begins without \"---\"; put a line with --- before it", d.line)
		}
	}
	return nil
}

// checkAlone returns an error if a parser may find more than one document in the text of one.
func (d document) checkAlone() error {
	for _, mark := range []string{"\xff\xfe", "\xfe\xff", "\x00\x00\xfe\xff"} {
		if bytes.HasPrefix(d.text, []byte(mark)) {
			return errNotUTF8
		}
	}
	if d.isPlain() {
		return nil
	}
	parser := yaml.NewDecoder(bytes.NewReader(d.text))
	for n := 0; ; n++ {
		var node yaml.Node
		switch err := parser.Decode(&node); {
		case errors.Is(err, io.EOF):
			return nil
		case n == 0 && err != nil:
			return nil // the reader of the document tells
		case n > 0:
			return fmt.Errorf("the document in line %d: another one follows it, and is not read; put a line with --- between the two, "+
				"and end each line with a line feed", d.line)
		}
	}
}

// isPlain reports whether the text is one document for sure: a mapping whose keys begin their lines. It
// ends at the end of the text, since YAML has no other line breaks than line feeds there.
func (d document) isPlain() bool {
	first := d.firstLine()
	if len(first) == 0 || (first[0]|0x20) < 'a' || (first[0]|0x20) > 'z' {
		return false
	}
	return bytes.Count(d.text, []byte("\r")) == bytes.Count(d.text, []byte("\r\n")) &&
		!bytes.Contains(d.text, []byte("\u0085")) && !bytes.Contains(d.text, []byte("\u2028")) && !bytes.Contains(d.text, []byte("\u2029"))
}

// checkKustomization returns an error if kustomize would leave out a part of a kustomization. It
// leaves out the first of two keys, and the second of two documents.
func checkKustomization(content []byte) error {
	if err := checkFile(content); err != nil {
		return err
	}
	seen := false
	for _, d := range documents(content) {
		switch {
		case !d.hasContent():
		case seen:
			return fmt.Errorf("line %d: a second document, of which kustomize reads nothing; make one of the two", d.line)
		default:
			if err := d.checkKeys(); err != nil {
				return err
			}
			seen = true
		}
	}
	return nil
}

// checkKeys refuses a key that is there twice, also one in other letters, which kustomize takes for the same.
func (d document) checkKeys() error {
	data, err := kyaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return d.syntaxError(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return d.syntaxError(err)
	}
	as := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		folded := strings.ToLower(key)
		if other, twice := as[folded]; twice {
			return fmt.Errorf("keys %q and %q: kustomize takes both for one, and reads one of them; make one of the two", other, key)
		}
		as[folded] = key
	}
	return nil
}
