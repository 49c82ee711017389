package main

import (
	"go.yaml.in/yaml/v3"
)

// node is a node of a document; without one, it has nothing in it.
type node struct{ *yaml.Node }

// nodeOf wraps a node of a document.
func nodeOf(n *yaml.Node) node { return node{n} }

// value is the text of a scalar.
func (n node) value() string {
	if n.Node == nil {
		return ""
	}
	return n.Value
}

// value is the value of a key of a mapping.
func value(n node, key string) node {
	if n.Node == nil || n.Kind != yaml.MappingNode {
		return node{}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return nodeOf(n.Content[i+1])
		}
	}
	return node{}
}
