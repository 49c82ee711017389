package gitobject

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/signature"
)

// Store is a store with objects that no server has yet, beside those of a snapshot. New
// objects are written to memory.
type Store struct {
	storer.EncodedObjectStorer
	made map[plumbing.Hash]plumbing.EncodedObject
}

// NewStore returns a store without objects of its own.
func NewStore(s storer.EncodedObjectStorer) *Store {
	return &Store{EncodedObjectStorer: s, made: map[plumbing.Hash]plumbing.EncodedObject{}}
}

// NewEncodedObject returns an object to fill.
func (s *Store) NewEncodedObject() plumbing.EncodedObject { return &plumbing.MemoryObject{} }

// SetEncodedObject keeps an object in memory, even if the snapshot has it. A snapshot has
// objects that a force-push took away, and the server may have them no longer.
func (s *Store) SetEncodedObject(o plumbing.EncodedObject) (plumbing.Hash, error) {
	h := o.Hash()
	s.made[h] = o
	return h, nil
}

// EncodedObject returns an object of the store or of the snapshot.
func (s *Store) EncodedObject(t plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	if o, ok := s.made[h]; ok && (t == plumbing.AnyObject || t == o.Type()) {
		return o, nil
	}
	return s.EncodedObjectStorer.EncodedObject(t, h)
}

// HasEncodedObject returns an error where neither has the object.
func (s *Store) HasEncodedObject(h plumbing.Hash) error {
	if _, ok := s.made[h]; ok {
		return nil
	}
	return s.EncodedObjectStorer.HasEncodedObject(h)
}

// EncodedObjectSize returns the size of an object in bytes.
func (s *Store) EncodedObjectSize(h plumbing.Hash) (int64, error) {
	if o, ok := s.made[h]; ok {
		return o.Size(), nil
	}
	return s.EncodedObjectStorer.EncodedObjectSize(h)
}

// Limits are those of the snapshot.
func (s *Store) Limits() gittree.Limits { return gittree.LimitsOf(s.EncodedObjectStorer) }

// needed returns the objects that were made for a commit, and for those on which it is made.
// Objects of failed trials are left behind.
func (s *Store) needed(commit plumbing.Hash) ([]plumbing.Hash, error) {
	var list []plumbing.Hash
	seen := map[plumbing.Hash]bool{}
	var add func(h plumbing.Hash) error
	addAll := func(hashes []plumbing.Hash) error {
		for _, h := range hashes {
			if err := add(h); err != nil {
				return err
			}
		}
		return nil
	}
	add = func(h plumbing.Hash) error {
		o, ok := s.made[h]
		if !ok || seen[h] {
			return nil
		}
		seen[h] = true
		list = append(list, h)
		switch o.Type() {
		case plumbing.CommitObject:
			c, err := object.GetCommit(s, h)
			if err != nil {
				return gittree.Missing("commit", h, err)
			}
			return addAll(append(c.ParentHashes, c.TreeHash))
		case plumbing.TreeObject:
			t, err := object.GetTree(s, h)
			if err != nil {
				return gittree.Missing("tree", h, err)
			}
			below := make([]plumbing.Hash, len(t.Entries))
			for i, e := range t.Entries {
				below[i] = e.Hash
			}
			return addAll(below)
		default: // a file
		}
		return nil
	}
	err := add(commit)
	return list, err
}

// Pack returns a pack of the objects that were made for a commit. It is
// made by hand: go-git's Push walks all of the history (G4).
func (s *Store) Pack(commit plumbing.Hash) ([]byte, error) {
	objects, err := s.needed(commit)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := packfile.NewEncoder(&b, s, false).Encode(objects, 0); err != nil {
		return nil, fmt.Errorf("packing commit %s: %w", commit, err)
	}
	return b.Bytes(), nil
}

// WriteBlob makes a file's content an object.
func (s *Store) WriteBlob(content []byte) (plumbing.Hash, error) {
	o := s.NewEncodedObject()
	o.SetType(plumbing.BlobObject)
	w, err := o.Writer()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	_, err = w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		return plumbing.ZeroHash, err
	}
	return s.SetEncodedObject(o)
}

// Files are entries of a tree by their path from the root, without links and
// without a leading slash. One without a mode is not there.
type Files map[string]object.TreeEntry

// ErrNotAFolder says that a file cannot be put below another file.
var ErrNotAFolder = errors.New("is not a folder")

// ValidPath reports whether a tree may have a file of this name. A clone with a .git in it is
// refused by git, by whatever name a file system knows it.
func ValidPath(file string) bool {
	_, err := (&object.Tree{}).FindEntry(file)
	return errors.Is(err, object.ErrEntryNotFound) || errors.Is(err, object.ErrDirectoryNotFound)
}

// WriteTree returns a tree with files put into it, or taken out of it. Folders
// that become empty go, as git has none of them.
func (s *Store) WriteTree(root plumbing.Hash, change Files) (plumbing.Hash, error) {
	var entries []object.TreeEntry
	if !root.IsZero() {
		t, err := object.GetTree(s, root)
		if err != nil {
			return plumbing.ZeroHash, gittree.Missing("tree", root, err)
		}
		entries = slices.Clone(t.Entries)
	}
	below := map[string]Files{}
	for p, e := range change {
		name, rest, deeper := strings.Cut(p, "/")
		if deeper {
			if below[name] == nil {
				below[name] = Files{}
			}
			below[name][rest] = e
			continue
		}
		e.Name = name
		entries = setEntry(entries, e)
	}
	for name, change := range below {
		dir := object.TreeEntry{Name: name, Mode: filemode.Dir}
		if i := indexEntry(entries, name); i >= 0 {
			if dir = entries[i]; dir.Mode != filemode.Dir {
				return plumbing.ZeroHash, fmt.Errorf("%s %w", name, ErrNotAFolder)
			}
		}
		h, err := s.WriteTree(dir.Hash, change)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if dir.Hash = h; h == emptyTree {
			dir.Mode = filemode.Empty
		}
		entries = setEntry(entries, dir)
	}
	// As git compares them: with a slash after the names of folders (G15).
	slices.SortFunc(entries, func(a, b object.TreeEntry) int { return strings.Compare(sortName(a), sortName(b)) })
	o := s.NewEncodedObject()
	if err := (&object.Tree{Entries: entries}).Encode(o); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("writing a tree: %w", err)
	}
	return s.SetEncodedObject(o)
}

// emptyTree is the tree without entries.
var emptyTree = plumbing.ComputeHash(plumbing.TreeObject, nil)

func sortName(e object.TreeEntry) string {
	if e.Mode == filemode.Dir {
		return e.Name + "/"
	}
	return e.Name
}

func indexEntry(entries []object.TreeEntry, name string) int {
	return slices.IndexFunc(entries, func(e object.TreeEntry) bool { return e.Name == name })
}

func setEntry(entries []object.TreeEntry, e object.TreeEntry) []object.TreeEntry {
	i := indexEntry(entries, e.Name)
	switch {
	case e.Mode == filemode.Empty && i >= 0:
		return slices.Delete(entries, i, i+1)
	case e.Mode == filemode.Empty:
		return entries
	case i >= 0:
		entries[i] = e
		return entries
	default:
		return append(entries, e)
	}
}

// EntryAt returns what is at a path of a tree; one without a mode is not there.
func EntryAt(s storer.EncodedObjectStorer, root plumbing.Hash, p string) (object.TreeEntry, error) {
	name, rest, deeper := strings.Cut(p, "/")
	t, err := object.GetTree(s, root)
	if err != nil {
		return object.TreeEntry{}, gittree.Missing("tree", root, err)
	}
	i := indexEntry(t.Entries, name)
	switch {
	case i < 0 || deeper && t.Entries[i].Mode != filemode.Dir:
		return object.TreeEntry{}, nil
	case deeper:
		return EntryAt(s, t.Entries[i].Hash, rest)
	default:
		e := t.Entries[i]
		e.Name = path.Base(p)
		return e, nil
	}
}

// Committer makes commits in the name of an author and a committer, and signs them.
type Committer struct {
	// Author and Committer are the persons of the commit; its time is that of Commit.
	Author, Committer object.Signature
	// Signer signs the commit; nil: it is not signed.
	Signer signature.Signer
}

// Commit writes a commit to a scratch store.
func (m Committer) Commit(s *Store, tree plumbing.Hash, parents []plumbing.Hash, message string, now time.Time) (plumbing.Hash, error) {
	c := &object.Commit{Author: m.Author, Committer: m.Committer, TreeHash: tree, ParentHashes: parents, Message: message}
	c.Author.When, c.Committer.When = now.UTC(), now.UTC()
	if m.Signer != nil {
		payload, err := encoded(c.EncodeWithoutSignature)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if c.PGPSignature, err = m.Signer.Sign(payload); err != nil {
			return plumbing.ZeroHash, fmt.Errorf("signing: %w", err)
		}
	}
	o := s.NewEncodedObject()
	if err := c.Encode(o); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("writing a commit: %w", err)
	}
	return s.SetEncodedObject(o)
}

func encoded(encode func(plumbing.EncodedObject) error) ([]byte, error) {
	o := &plumbing.MemoryObject{}
	if err := encode(o); err != nil {
		return nil, fmt.Errorf("writing a commit: %w", err)
	}
	r, err := o.Reader()
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	return content, errors.Join(err, r.Close())
}

// The trailers of the controller's commits. By them a later sync finds what has been
// committed, even if a user has reverted it since.
const (
	TrailerRelease  = "Tranche-Release"  // namespace/name of the BatchRelease
	TrailerRevision = "Tranche-Revision" // the revision that is approved, or was rolled back
	TrailerCommit   = "Tranche-Commit"   // the commit that the release comes from
	TrailerStep     = "Tranche-Step"     // up to which it is approved; absent in a revert
	TrailerAnalysis = "Tranche-Analysis" // what was measured of a metric; only in a revert
)

// Trailers returns the values of our trailers in a commit message: those of
// its last paragraph.
func Trailers(message string) map[string][]string {
	found := map[string][]string{}
	message = strings.TrimRight(message, "\n")
	if i := strings.LastIndex(message, "\n\n"); i >= 0 {
		message = message[i+2:]
	}
	for line := range strings.Lines(message) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if ok && strings.HasPrefix(key, "Tranche-") {
			found[key] = append(found[key], strings.TrimSpace(value))
		}
	}
	return found
}
