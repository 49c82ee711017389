package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
)

// Users who may not read Secrets see the problems of a rendering: in a status, in events and in
// notifications. kustomize's errors quote what it was given: patches, literals, values of fields,
// as they stand there, in part, or in base64. So these words are withheld if anything that was read
// may be of a Secret. The problem has words of this package alone then, and names.

// ofSecret matches what a text has that may be of a Secret: the kind, a generator, or a field that
// only Secrets have. Names of other kinds and fields, such as SealedSecret or secretKeyRef, do not match.
var ofSecret = regexp.MustCompile(`\bSecret\b|(?i)secretgenerator|secretlist|stringdata|\bkind\W+secret\b`)

// mayBeOfSecret reports whether a file may have a value of a Secret. kustomize reads UTF-16, too.
func mayBeOfSecret(content []byte) bool {
	return ofSecret.Match(bytes.ReplaceAll(content, []byte{0}, nil))
}

// reads is a file system that knows which files were read.
type reads struct {
	filesys.FileSystem
	names map[string]bool
}

func (r *reads) ReadFile(name string) ([]byte, error) {
	r.names[name] = true
	return r.FileSystem.ReadFile(name)
}

// Ahead is of no file that was read: it may be that none of them is.
func (r *reads) Ahead(paths []string) { ahead(r.FileSystem, paths) }

// mayHoldSecret reports whether a file that was read may have a value of a Secret. It reads them
// again: most renderings have no error, and pay nothing for this.
func (r *reads) mayHoldSecret() bool {
	for _, name := range slices.Sorted(maps.Keys(r.names)) {
		content, err := r.FileSystem.ReadFile(name)
		if err == nil && mayBeOfSecret(content) || err != nil && r.Exists(name) && !r.IsDir(name) {
			return true
		}
	}
	return false
}

// said is a problem in kustomize's words, unless they may have a value of a Secret.
func (r *reads) said(refs *references, err error, dir, root string) *plan.Problem {
	if r.mayHoldSecret() {
		return withheld(refs, err, root)
	}
	return &plan.Problem{Reason: plan.ReasonRenderFailed, Where: root, Err: shorten(err, dir)}
}

const hintWithheld = "run kubectl kustomize in that folder for more, which is left out here: it may have a value of a Secret"

// failure is a kind of failure, by a part of kustomize's words that is the same in each case.
type failure struct{ words, field, fact string }

var failures = []failure{
	{"options.index", fieldReplacements, "source.options.index is out of bounds for the parts that the delimiter makes of the value"},
	{"error looking up replacement source", fieldReplacements, "source.fieldPath leads through a value that is no object"},
	{"is missing for replacement source", fieldReplacements, "source.fieldPath is not in the source"},
	{"nothing selected by", fieldReplacements, "source selects no object"},
	{"multiple matches for selector", fieldReplacements, "source selects several objects"},
	{"in replacement target", fieldReplacements, "a path of targets.fieldPaths is not in the target"},
	{"delimiter option", fieldReplacements, "options.delimiter is for text, and the value is an object or a list"},
	{"no resource matches strategic merge patch", fieldPatches, "a patch is of an object that is not there"},
	{"no matches for Id", "", "a patch is of an object that is not there"},
	{"nonexistent key", "", "a JSON patch is of a path that is not there"},
	{"operation does not apply", "", "an operation of a JSON patch does not apply, or its path is not there"},
	{"missing value", "", "a JSON patch is of a path that is not there, or has no value"},
	{"wrong node kind", "", "a patch or a path leads through a value of another type"},
	{"illegally repeats the key", "", "a generator has a key twice"},
	{"loading KV pairs", "", "a generator has an entry that is no key=value, or a file that is not there"},
	{"already registered id", "resources", "an object is there twice"},
	{"cannot merge or replace", "", "a generator with behavior merge or replace finds no object"},
	{"behavior must be merge or replace", "", "a generator makes an object that is there, and its behavior is neither merge nor replace"},
	{"cycle detected", "", "a folder names one that leads back to it"},
	{"multiple kustomization files", "", "a folder has several kustomizations"},
	{"panicked", "", "kustomize panicked"},
}

// withheld is a problem in place of kustomize's words.
func withheld(refs *references, err error, root string) *plan.Problem {
	p := &plan.Problem{Reason: plan.ReasonRenderFailed, Err: errors.New("kustomize cannot render it"), Hint: hintWithheld}
	text := err.Error()
	k := whereOf(refs, text, root)
	p.Where = k.file
	for _, f := range failures {
		if strings.Contains(text, f.words) {
			p.Where, p.Err = plan.Where(k.file, k.entry(f.field)), errors.New(f.fact)
			break
		}
	}
	if m := idOf.FindStringSubmatch(text); m != nil {
		p.Err = fmt.Errorf("%w: %s", p.Err, m[1])
	}
	return p
}

// idOf finds the object that kustomize's words are about: kind, version, group, name and namespace.
var idOf = regexp.MustCompile(`(?:registered id:|no matches for Id) ([A-Za-z]+\.[\w.\[\]-]+/[\w.\[\]-]+)`)

// pathThere is in kustomize's words once for each folder on the way to the fact.
var pathThere = regexp.MustCompile(`recursed (?:accumulation of|merging from) path '([^']*)'`)

// whereOf returns the kustomization of the last folder on the way to the fact, or of the root.
func whereOf(refs *references, text, root string) named {
	file := root
	for _, m := range pathThere.FindAllStringSubmatch(text, -1) {
		if !refs.visited[m[1]] {
			continue // no folder of these: it may be a part of a value
		}
		if files := kustomizationFiles(refs.fsys, m[1]); len(files) == 1 {
			file = relative(files[0])
		}
	}
	for _, k := range refs.kustomizations {
		if k.file == file {
			return k
		}
	}
	return named{file: file}
}

// named is a kustomization and its file.
type named struct {
	file string
	types.Kustomization
}

const (
	fieldReplacements = "replacements"
	fieldPatches      = "patches"
)

// entry names an entry of a list, if there is just one: kustomize does not say which it is.
func (k *named) entry(field string) string {
	switch {
	case field == fieldReplacements && len(k.Replacements) == 1 && k.Replacements[0].Source != nil:
		of := k.Replacements[0].Source
		return plan.Where(objectOf(of.Kind, of.Name), field+"[0]")
	case field == fieldReplacements && len(k.Replacements) == 1, field == fieldPatches && len(k.Patches) == 1:
		return field + "[0]"
	}
	return field
}

// objectOf is kind and name, as far as they are set.
func objectOf(kind, name string) string { return strings.TrimSpace(kind + " " + name) }

var (
	typeMismatch = regexp.MustCompile(`json: cannot unmarshal ([a-z]+)\b.* into Go struct field \w+\.([\w.]+) of type ([\w.*\[\]]+)`)
	goTypes      = regexp.MustCompile(`\b[A-Z]\w*\.`) // of embedded structs, between the names of fields
	noSuchField  = regexp.MustCompile(`json: unknown field "([^"]*)"`)
)

// undecoded is about a kustomization that does not decode.
func undecoded(file, dir string, content []byte, err error) *plan.Problem {
	p := &plan.Problem{Reason: plan.ReasonRenderFailed, Where: file}
	if p.Err = invalidYAML(content); p.Err != nil {
		return p
	}
	text := err.Error()
	if m := typeMismatch.FindStringSubmatch(text); m != nil {
		p.Where, p.Err = plan.Where(file, goTypes.ReplaceAllString(m[2], "")), fmt.Errorf("is of type %s, and must be of type %s", m[1], m[3])
	} else if m := noSuchField.FindStringSubmatch(text); m != nil {
		p.Where, p.Err = plan.Where(file, m[1]), errors.New("no such field")
	} else if !mayBeOfSecret(content) {
		p.Err = shorten(err, dir)
	} else {
		p.Err, p.Hint = errors.New("kustomize cannot read it"), hintWithheld
	}
	return p
}

// invalidYAML returns what is wrong with the first document that is no YAML.
func invalidYAML(content []byte) error {
	for _, doc := range documents(content) {
		if _, err := doc.decode(); err != nil {
			return err
		}
	}
	return nil
}
