// Package planfile edits spec.paused in the text of a plan's file or of a kustomization.
// Comments and formatting of the rest stay.
package planfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tranche-dev/tranche/cmd/tranche/yamlnode"
)

// SetPaused edits spec.paused of a plan in the text of its file, and nothing else of it.
// If the file has several plans, it is the one of that name. A plan alone may be renamed
// by kustomize.
func SetPaused(text, name string, paused bool) (string, error) {
	plans, err := Plans(text)
	if err != nil {
		return "", err
	}
	var spec *yaml.Node
	for _, p := range plans {
		if len(plans) == 1 || yamlnode.ValueOf(yamlnode.ValueOf(p, "metadata"), "name").Text() == name {
			spec = yamlnode.ValueOf(p, "spec").Node
		}
	}
	if spec == nil || spec.Kind != yaml.MappingNode || len(spec.Content) == 0 {
		return "", fmt.Errorf("there is no BatchRelease %s with a spec in it", name)
	}
	lines := strings.SplitAfter(text, "\n")
	if at := yamlnode.ValueOf(yamlnode.Of(spec), "paused").Node; at != nil {
		if at.Kind != yaml.ScalarNode || at.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 || at.Value == "" {
			return "", errors.New("spec.paused is not a plain value; edit it by hand")
		}
		line := &lines[at.Line-1]
		from := column(*line, at.Column)
		rest, ok := strings.CutPrefix((*line)[from:], at.Value)
		if !ok {
			return "", errors.New("spec.paused is not a plain value; edit it by hand")
		}
		*line = (*line)[:from] + fmt.Sprint(paused) + rest
		return strings.Join(lines, ""), nil
	}
	first := spec.Content[0]
	line := &lines[first.Line-1]
	from := column(*line, first.Column)
	if spec.Style&yaml.FlowStyle != 0 {
		*line = (*line)[:from] + fmt.Sprintf("paused: %t, ", paused) + (*line)[from:]
	} else {
		*line = fmt.Sprintf("%spaused: %t\n", strings.Repeat(" ", from), paused) + *line
	}
	return strings.Join(lines, ""), nil
}

// column is where in a line a column of YAML is, which counts characters from 1.
func column(line string, at int) int {
	for i := range line {
		if at--; at == 0 {
			return i
		}
	}
	return len(line)
}

// Plans are the BatchReleases of a file.
func Plans(text string) ([]yamlnode.Node, error) {
	var plans []yamlnode.Node
	for d := yaml.NewDecoder(bytes.NewBufferString(text)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return plans, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading it as YAML: %w", err)
		}
		if len(doc.Content) == 1 && yamlnode.ValueOf(yamlnode.Of(doc.Content[0]), "kind").Text() == "BatchRelease" {
			plans = append(plans, yamlnode.Of(doc.Content[0]))
		}
	}
}

// pausePatch is the patch of a kustomization that sets spec.paused of a plan.
func pausePatch(indent, name string, paused bool) string {
	lines := []string{
		"- target: {kind: BatchRelease, name: " + name + "}",
		"  patch: |-",
		"    - op: add",
		"      path: /spec/paused",
		fmt.Sprintf("      value: %t", paused),
	}
	return indent + strings.Join(lines, "\n"+indent) + "\n"
}

// AddPausePatch adds the patch to the text of a kustomization, and changes nothing else.
func AddPausePatch(text, name string, paused bool) (string, error) {
	root, err := rootOf(text)
	if err != nil {
		return "", err
	}
	patches := yamlnode.ValueOf(root, "patches").Node
	if patches == nil {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		return text + "patches:\n" + pausePatch("", name, paused), nil
	}
	if patches.Kind != yaml.SequenceNode || patches.Style&yaml.FlowStyle != 0 || len(patches.Content) == 0 {
		return "", errors.New("patches is not a list with one entry below the other; add the patch of spec.paused by hand")
	}
	lines := strings.SplitAfter(text, "\n")
	at := patches.Content[0].Line - 1
	indent := lines[at][:strings.Index(lines[at], "-")]
	return strings.Join(slices.Insert(lines, at, pausePatch(indent, name, paused)), ""), nil
}

// DropPausePatch takes the patch out of the text of a kustomization. It reports whether
// there was one.
func DropPausePatch(text, name string) (string, bool) {
	root, err := rootOf(text)
	if err != nil {
		return text, false
	}
	patches := yamlnode.ValueOf(root, "patches").Node
	if patches == nil || patches.Kind != yaml.SequenceNode || patches.Style&yaml.FlowStyle != 0 {
		return text, false
	}
	i := slices.IndexFunc(patches.Content, func(item *yaml.Node) bool {
		target, patch := yamlnode.ValueOf(yamlnode.Of(item), "target"), yamlnode.ValueOf(yamlnode.Of(item), "patch").Text()
		return yamlnode.ValueOf(target, "kind").Text() == "BatchRelease" && yamlnode.ValueOf(target, "name").Text() == name && isPausePatch(patch)
	})
	if i < 0 {
		return text, false
	}
	lines := strings.SplitAfter(text, "\n")
	from := patches.Content[i].Line - 1
	to := endOf(lines, from, strings.Index(lines[from], "-"))
	if len(patches.Content) == 1 {
		from = keyLine(root, "patches") - 1
	}
	for i+1 == len(patches.Content) && to > from+1 && strings.TrimSpace(lines[to-1]) == "" {
		to-- // what separates it from what follows stays
	}
	return strings.Join(slices.Delete(lines, from, to), ""), true
}

// endOf returns the line after an item that begins at a line with this indent of its dash.
func endOf(lines []string, from, dash int) int {
	to := from + 1
	for to < len(lines) && (strings.TrimSpace(lines[to]) == "" || indentOf(lines[to]) > dash) {
		to++
	}
	return to
}

// isPausePatch reports whether a patch sets spec.paused, and nothing else.
func isPausePatch(patch string) bool {
	var ops []struct{ Op, Path string }
	return yaml.Unmarshal([]byte(patch), &ops) == nil && len(ops) == 1 && ops[0].Path == "/spec/paused"
}

func indentOf(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// rootOf is the mapping of a file with one document.
func rootOf(text string) (yamlnode.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return yamlnode.Node{}, fmt.Errorf("reading it as YAML: %w", err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode || doc.Content[0].Style&yaml.FlowStyle != 0 {
		return yamlnode.Node{}, errors.New("is not a mapping with one key below the other; edit it by hand")
	}
	return yamlnode.Of(doc.Content[0]), nil
}

// keyLine is the line of a key of a mapping, from 1.
func keyLine(n yamlnode.Node, key string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i].Line
		}
	}
	return 0
}
