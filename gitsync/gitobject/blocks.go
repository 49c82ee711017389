package gitobject

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"go.yaml.in/yaml/v3"
	"golang.org/x/text/encoding/unicode"
)

const (
	// maxBlocks bounds the text of a manifest, and maxNodes what it has with its aliases.
	maxBlocks = 1 << 20
	maxNodes  = 100_000
	maxNested = 100
)

// Blocks returns a manifest with a line for each of its entries. Flow collections are blocks
// then, an alias is what it stands for, and a patch in a string has lines of its own.
// Comments are away. It returns false for a text that is no manifest.
func Blocks(text []byte) ([]byte, bool) {
	b := blocks{}
	return b.of(text, 0)
}

// blocks counts the nodes of a text.
type blocks struct{ nodes int }

func (b *blocks) of(text []byte, depth int) ([]byte, bool) {
	if isUTF16(text) {
		var err error
		if text, err = unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder().Bytes(text); err != nil {
			return nil, false
		}
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	if len(text) > maxBlocks {
		return nil, false
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	for dec := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || !isCollection(&doc) {
			return nil, false
		}
		plain, ok := b.node(&doc, "", depth)
		if !ok || enc.Encode(plain) != nil {
			return nil, false
		}
	}
	if enc.Close() != nil || out.Len() == 0 {
		return nil, false
	}
	return out.Bytes(), true
}

// isCollection reports whether a document is a map or a list.
func isCollection(doc *yaml.Node) bool {
	return len(doc.Content) == 1 && (doc.Content[0].Kind == yaml.MappingNode || doc.Content[0].Kind == yaml.SequenceNode)
}

// withText are the keys below which a kustomization has manifests and patches in strings.
var withText = []string{"patch", "patchesStrategicMerge", "transformers", "generators", "validators"}

// node returns a copy of a node that is below a key.
func (b *blocks) node(n *yaml.Node, key string, depth int) (*yaml.Node, bool) {
	if b.nodes++; b.nodes > maxNodes || depth > maxNested {
		return nil, false
	}
	if n.Kind == yaml.AliasNode {
		return b.node(n.Alias, key, depth+1)
	}
	plain := &yaml.Node{Kind: n.Kind, Tag: n.Tag, Value: n.Value, Style: n.Style &^ yaml.FlowStyle}
	if n.Kind == yaml.ScalarNode {
		b.scalar(plain, key, depth)
	}
	for i, c := range n.Content {
		below := key
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			below = n.Content[i-1].Value
		}
		d, ok := b.node(c, below, depth+1)
		if !ok {
			return nil, false
		}
		plain.Content = append(plain.Content, d)
	}
	return plain, true
}

// scalar gives each line of a string a line of its own.
func (b *blocks) scalar(n *yaml.Node, key string, depth int) {
	if n.ShortTag() != "!!str" {
		return
	}
	if slices.Contains(withText, key) {
		if text, ok := b.of([]byte(n.Value), depth+1); ok {
			n.Value = string(text)
		}
	}
	if strings.Contains(n.Value, "\n") {
		n.Style = yaml.LiteralStyle
	}
}

// ChangeInBlocks returns a change of a manifest as one of its blocks. It returns false where
// the file is no manifest, before or after.
func ChangeInBlocks(s *Store, c Change) (Change, bool, error) {
	from, ok, err := entryInBlocks(s, c.From)
	if err != nil || !ok {
		return c, false, err
	}
	to, ok, err := entryInBlocks(s, c.To)
	return Change{From: from, To: to}, ok, err
}

// TreeInBlocks returns a tree with some of its manifests in blocks. It returns false where one
// of the files is no manifest.
func TreeInBlocks(s *Store, tree plumbing.Hash, paths []string) (plumbing.Hash, bool, error) {
	put := Files{}
	for _, p := range paths {
		e, err := EntryAt(s, tree, p)
		if err != nil {
			return tree, false, err
		}
		e, ok, err := entryInBlocks(s, e)
		if err != nil || !ok {
			return tree, false, err
		}
		if e.Mode != filemode.Empty {
			put[p] = e
		}
	}
	next, err := s.WriteTree(tree, put)
	return next, err == nil, err
}

// entryInBlocks returns a manifest in blocks. One that is not there has none.
func entryInBlocks(s *Store, e object.TreeEntry) (object.TreeEntry, bool, error) {
	if e.Mode == filemode.Empty || !isRegular(e) {
		return e, e.Mode == filemode.Empty, nil
	}
	text, err := ReadBlob(s, e.Hash)
	if err != nil {
		return e, false, err
	}
	blocks, ok := Blocks(text)
	if !ok {
		return e, false, nil
	}
	e.Hash, err = s.WriteBlob(blocks)
	return e, err == nil, err
}
