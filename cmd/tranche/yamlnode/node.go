package yamlnode

import "go.yaml.in/yaml/v3"

// Node is a node of a document; without one, it has nothing in it.
type Node struct{ *yaml.Node }

// Of wraps a node of a document.
func Of(n *yaml.Node) Node { return Node{n} }

// Text is the text of a scalar.
func (n Node) Text() string {
	if n.Node == nil {
		return ""
	}
	return n.Value
}

// ValueOf is the value of a key of a mapping.
func ValueOf(n Node, key string) Node {
	if n.Node == nil || n.Kind != yaml.MappingNode {
		return Node{}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return Of(n.Content[i+1])
		}
	}
	return Node{}
}
