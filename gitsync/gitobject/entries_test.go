package gitobject

import (
	"slices"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
)

// Each entry that a change brought can be taken away by itself, and what later changes
// rewrote is none.
func TestFindEntries(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		from, to, now string
		want          []string // the text without each of the entries
	}{
		"blocks": {
			"a: 1\n", "a: 1\nb:\n- c: 2\n  d: 3\n- e\n", "a: 1\nb:\n- c: 2\n  d: 3\n- e\n",
			[]string{"a: 1\n", "a: 1\nb:\n- e\n", "a: 1\nb:\n- c: 2\n- e\n", "a: 1\nb:\n- c: 2\n  d: 3\n"},
		},
		"a block with a line that another rewrote": {
			"a: 1\n", "a: 1\nb:\n- c: 2\n  d: 3\n- e\n", "a: 1\nb:\n- c: 2\n  d: 4\n- e\n",
			[]string{"a: 1\nb:\n- c: 2\n  d: 3\n"},
		},
		"a flow collection": {
			"a: 1\n", "a: 1\nb: [{c: 2}, {d: 3}]\n", "a: 1\nb: [{c: 2}, {d: 3}]\n",
			[]string{"a: 1\n", "a: 1\nb: [ {d: 3}]\n", "a: 1\nb: [{}, {d: 3}]\n", "a: 1\nb: [{c: 2}]\n", "a: 1\nb: [{c: 2}, {}]\n"},
		},
		"the last element of JSON": {
			"[\n  1\n]\n", "[\n  1,\n  2\n]\n", "[\n  1,\n  2\n]\n",
			[]string{"[\n  2\n]\n", "[\n  1\n]\n"},
		},
		"nothing that stands": {"a: 1\n", "a: 2\n", "a: 3\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := NewStore(memory.NewStorage())
			entry := func(text string) object.TreeEntry {
				h, err := s.WriteBlob([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				return object.TreeEntry{Name: "f", Mode: filemode.Regular, Hash: h}
			}
			root := s.NewEncodedObject()
			if err := (&object.Tree{Entries: []object.TreeEntry{entry(tt.now)}}).Encode(root); err != nil {
				t.Fatal(err)
			}
			tree, err := s.SetEncodedObject(root)
			if err != nil {
				t.Fatal(err)
			}
			list, err := FindEntries(s, tree, map[string]Change{"f": {From: entry(tt.from), To: entry(tt.to)}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			var visit func(b *Brought, entries []Entry)
			visit = func(b *Brought, entries []Entry) {
				for _, e := range entries {
					c, err := b.Without(s, []Entry{e})
					if err != nil {
						t.Fatal(err)
					}
					text, err := ReadBlob(s, c["f"].From.Hash)
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, string(text))
					visit(b, e.Below)
				}
			}
			for i := range list {
				visit(&list[i], list[i].Entries)
			}
			for _, want := range tt.want {
				if !slices.Contains(got, want) {
					t.Errorf("no entry without which the text is %q; got %q", want, got)
				}
			}
			if tt.want == nil && got != nil {
				t.Errorf("got %q", got)
			}
		})
	}
}
