package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan"
)

// parseManifests reads the objects of one file: YAML documents or JSON, lists
// expanded, empty documents skipped. It reads on after a document with a problem, and
// returns the problems of all documents.
func parseManifests(file string, content []byte) ([]plan.Object, plan.Problems) {
	var objects []plan.Object
	var ps plan.Problems
	for _, doc := range documents(content) {
		v, err := doc.decode()
		if err != nil {
			ps = append(ps, &plan.Problem{Reason: plan.ReasonInvalidManifest, Where: file, Err: err})
			continue
		}
		os, err := expand(v, file)
		if err != nil {
			ps = append(ps, &plan.Problem{Reason: plan.ReasonInvalidManifest, Where: file, Err: fmt.Errorf("line %d: %w", doc.line, err)})
			continue
		}
		for _, o := range os {
			if more := o.CheckIdentity(); len(more) > 0 {
				ps = append(ps, more...)
				continue
			}
			objects = append(objects, o)
		}
	}
	return objects, ps
}

// document is one YAML document of a file, which starts at line.
type document struct {
	text []byte
	line int
}

// documents splits a file where a line starts with a document marker. YAML
// allows the marker nowhere else, not even inside a block of text.
func documents(content []byte) []document {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	var docs []document
	start, line := 0, 1
	docLine := 1
	for at := 0; at < len(content); line++ {
		end := len(content)
		if i := bytes.IndexByte(content[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		switch l := content[at:end]; {
		case isMarker(l, "---"):
			docs = append(docs, document{content[start:at], docLine})
			start, docLine = at, line
		case isMarker(l, "..."):
			docs = append(docs, document{content[start:at], docLine})
			start, docLine = end, line+1
		}
		at = end
	}
	return append(docs, document{content[start:], docLine})
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// decode returns the document's value, nil where it is empty.
func (d document) decode() (any, error) {
	if !d.hasContent() {
		return nil, nil
	}
	if err := d.checkAlone(); err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return nil, d.syntaxError(err)
	}
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &v); err != nil {
		return nil, d.syntaxError(err)
	}
	return v, nil
}

// hasContent is false where there are only comments, markers and directives.
func (d document) hasContent() bool { return len(d.firstLine()) > 0 }

// firstLine is the first line that is no comment, marker or directive; nil without one.
func (d document) firstLine() []byte {
	for line := range bytes.Lines(d.text) {
		l := bytes.TrimSpace(line)
		if len(l) > 0 && l[0] != '#' && l[0] != '%' && !bytes.Equal(l, []byte("---")) {
			return line
		}
	}
	return nil
}

var (
	lineNumber   = regexp.MustCompile(`\bline (\d+)`)
	duplicateKey = regexp.MustCompile(`key ("[^"]*") already set in map`)
	// quoting are the errors of the parser that have something of the file in them, besides keys.
	// That may be a value of a Secret.
	quoting = []struct {
		words *regexp.Regexp
		fact  string
	}{
		{regexp.MustCompile(`unknown anchor .*`), "a value begins with *, which names no anchor; put it in quotes"},
		{regexp.MustCompile(`anchor .* value contains itself`), "an anchor contains itself"},
		{regexp.MustCompile(`(?:invalid|unsupported) map key\b.*`), "a key is no text; put it in quotes, and a value that begins with {"},
		{regexp.MustCompile(`cannot (?:decode|unmarshal) .* (?:as an?|into) .*`), "a value is not of the type of its tag"},
	}
)

// syntaxError counts lines from the start of the file, not of the document,
// and says it on one line.
func (d document) syntaxError(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	text = strings.Join(strings.Fields(text), " ")
	for _, q := range quoting {
		if !q.words.MatchString(text) {
			continue
		}
		text = q.words.ReplaceAllLiteralString(text, q.fact)
		if !lineNumber.MatchString(text) { // the parser names none for these
			return fmt.Errorf("the document in line %d: %s", d.line, text)
		}
	}
	if !lineNumber.MatchString(text) { // the parser leaves out the first
		text = "line 1: " + text
	}
	text = lineNumber.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(s[len("line "):]) // the pattern is digits
		return "line " + strconv.Itoa(n+d.line-1)
	})
	return errors.New(duplicateKey.ReplaceAllString(text, "key $1 is there twice"))
}

// expand turns a document's value into objects: none where it is empty, the
// items where it is a list.
func expand(v any, file string) ([]plan.Object, error) {
	if v == nil {
		return nil, nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("must be an object with apiVersion, kind and metadata")
	}
	if len(m) == 0 {
		return nil, nil
	}
	kind, _ := m["kind"].(string)
	items, isList := m["items"]
	if !strings.HasSuffix(kind, "List") || !isList {
		return []plan.Object{{Unstructured: &unstructured.Unstructured{Object: m}, File: file}}, nil
	}
	l, ok := items.([]any)
	if !ok && items != nil {
		return nil, fmt.Errorf("%s: items: must be a list", kind)
	}
	var objects []plan.Object
	for i, item := range l {
		os, err := expand(typed(item, m), file)
		if err != nil {
			return nil, fmt.Errorf("%s: items[%d]: %w", kind, i, err)
		}
		objects = append(objects, os...)
	}
	return objects, nil
}

// typed is an item of a list, which needs no type of its own in a ConfigMapList
// and its like.
func typed(item any, list map[string]any) any {
	m, ok := item.(map[string]any)
	kind, _ := list["kind"].(string)
	if !ok || kind == "List" || len(m) == 0 || m["kind"] != nil || m["apiVersion"] != nil {
		return item
	}
	m["apiVersion"], m["kind"] = list["apiVersion"], strings.TrimSuffix(kind, "List")
	return m
}

// ObjectOf returns the object that JSON encodes, with the file it comes from. Whole
// numbers stay such.
func ObjectOf(data []byte, file string) (plan.Object, error) {
	var m map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &m); err != nil {
		return plan.Object{}, err
	}
	return plan.Object{Unstructured: &unstructured.Unstructured{Object: m}, File: file}, nil
}
