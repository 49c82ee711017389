package manifest

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// MaxExpanded is how many bytes one file may become once its YAML aliases are written
// out, as every reader of it does. Nine lines of aliases of aliases are a billion
// strings. It is the size of the largest file that is read.
const MaxExpanded = 8 << 20

// nodeCost is what a value costs besides its text.
const nodeCost = 16

// CheckAliases returns an error where the YAML aliases of a file, written out,
// make more than [MaxExpanded] bytes of it. Content that is no YAML, or has no
// aliases, is as long as it is.
func CheckAliases(content []byte) error {
	if bytes.IndexByte(content, '&') < 0 || bytes.IndexByte(content, '*') < 0 {
		return nil
	}
	for _, doc := range documents(content) {
		var root yaml.Node
		if err := yaml.Unmarshal(doc.text, &root); err != nil {
			continue // the reader of the file tells
		}
		if !fits(&root) {
			return fmt.Errorf("line %d: its YAML aliases, written out, make more than %d MiB; write less with aliases", doc.line, MaxExpanded>>20)
		}
	}
	return nil
}

// fits measures each node once, whatever number of aliases lead to it.
func fits(root *yaml.Node) bool {
	sizes := map[*yaml.Node]int{}
	var size func(n *yaml.Node) int
	size = func(n *yaml.Node) int {
		if n.Kind == yaml.AliasNode {
			return size(n.Alias)
		}
		if s, ok := sizes[n]; ok {
			return s
		}
		sizes[n] = nodeCost // an anchor that holds itself is refused by the reader
		s := nodeCost + len(n.Value)
		for _, c := range n.Content {
			s = min(s+size(c), MaxExpanded+1)
		}
		sizes[n] = s
		return s
	}
	return size(root) <= MaxExpanded
}
