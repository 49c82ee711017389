// Package yamlnode reads nodes of YAML documents, whose lines and comments an edit keeps.
package yamlnode
