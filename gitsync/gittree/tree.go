package gittree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan/manifest"
)

const (
	// maxLinks is how many symbolic links one path may lead through, as in Linux.
	maxLinks = 40
	// maxDepth is how deep folders may be nested. Linux has paths of 4,096
	// bytes; a tree of Git objects has no end of its own.
	maxDepth = 256
)

// lfsPrefixes begin a Git LFS pointer, of today and of before 2015.
var lfsPrefixes = [][]byte{[]byte("version https://git-lfs.github.com/spec/"), []byte("version https://hawser.github.com/spec/")}

var (
	errReadOnly = errors.New("the tree of a commit is read-only")
	errOutside  = errors.New("symbolic link leaves the repository")
	errLinks    = errors.New("too many symbolic links; is there a loop?")
)

// Tree is the tree of a commit as a file system: read-only, rooted at the repository's
// root. It reads from the object storer as it is asked. It remembers what it was asked,
// so that [Reads.Unchanged] can find out whether the answers would be the same on another
// commit.
//
// An object that the storer lacks is never "no such file". A tree with a hole would look
// like one from which files were deleted (G1). Exists and IsDir can say only no, so the
// first such error stays. Err returns it, which callers ask when they are done, and so do
// all later calls.
//
// Not safe for use by several goroutines.
type Tree struct {
	// PassedBy is a path that the reader passes by in the listing of its folder. So it does not
	// count in the answer whether it is there. Empty: none.
	PassedBy string

	objects
	readOnly
	root   plumbing.Hash
	reads  Reads
	limits Limits
	used   int   // files read and folders listed
	bytes  int64 // read
}

// objects are those of a storer that a tree has read.
type objects struct {
	storer storer.EncodedObjectStorer
	trees  map[plumbing.Hash][]object.TreeEntry
	shared *Folders // nil: none
	err    error    // the first one of the storer
}

var _ filesys.FileSystem = (*Tree)(nil)

// Open returns the tree of a commit. The storer is used by one goroutine
// only, that of the snapshot.
func Open(s storer.EncodedObjectStorer, commit plumbing.Hash) (*Tree, error) {
	c, err := object.GetCommit(s, commit)
	if err != nil {
		return nil, Missing("commit", commit, err)
	}
	return OpenTree(s, c.TreeHash)
}

// OpenTree returns the tree with a hash. It need not be the tree of a commit. A store whose
// readers share the large folders that it has read has a method Folders.
func OpenTree(s storer.EncodedObjectStorer, root plumbing.Hash) (*Tree, error) {
	if f, ok := s.(interface{ Folders() *Folders }); ok {
		return OpenShared(s, root, f.Folders())
	}
	return OpenShared(s, root, nil)
}

// OpenShared returns a tree that takes large folders from those that others have read, for
// comparisons. Such a folder may be missing in the storer.
func OpenShared(s storer.EncodedObjectStorer, root plumbing.Hash, shared *Folders) (*Tree, error) {
	read := objects{storer: s, shared: shared, trees: map[plumbing.Hash][]object.TreeEntry{}}
	t := &Tree{objects: read, root: root, reads: Reads{}, limits: LimitsOf(s)}
	if _, err := t.entries("/", t.root); err != nil {
		return nil, err
	}
	return t, nil
}

// Reopen returns the same tree, of which nothing has been read.
func (t *Tree) Reopen() (*Tree, error) { return OpenTree(t.storer, t.root) }

// Hash names the tree.
func (t *Tree) Hash() plumbing.Hash { return t.root }

// Limits are those that the tree is read with.
func (t *Tree) Limits() Limits { return t.limits }

// Err returns the first error of the storer, or nil.
func (t *Tree) Err() error { return t.err }

// Reads returns what was read so far.
func (t *Tree) Reads() Reads {
	r := make(Reads, len(t.reads))
	for p, a := range t.reads {
		r[p] = a
	}
	return r
}

// Blob returns the hash of the file at a path, and whether there is one.
// Links are followed. It is no read in the sense of Reads.
func (t *Tree) Blob(p string) (plumbing.Hash, bool, error) {
	n, err := t.resolve(p, true)
	if t.err != nil {
		return plumbing.ZeroHash, false, t.err
	}
	if err != nil || !n.mode.IsFile() {
		return plumbing.ZeroHash, false, nil
	}
	return n.hash, true, nil
}

// Complete reads every tree below the root and asks for every file, and returns an error
// at the first object that is not there. A fetch past a shallow boundary can leave such
// holes and say nothing (G3). It skips a path at which the tree that is known to be
// complete has the same; the zero hash stands for none.
func (t *Tree) Complete(known plumbing.Hash) error {
	w := strictWalk{Tree: t, seen: map[plumbing.Hash]bool{}}
	return w.tree("/", t.root, known, 0)
}

// strictWalk looks at each tree once: one that holds itself many times over,
// ten levels deep, has a path for every atom.
type strictWalk struct {
	*Tree
	seen map[plumbing.Hash]bool
}

func (w *strictWalk) tree(dir string, h, known plumbing.Hash, depth int) error {
	if w.err != nil || w.seen[h] || h == known {
		return w.err
	}
	w.seen[h] = true
	if depth > maxDepth {
		w.err = Exceeded(shortPath(dir), fmt.Sprintf("folders are nested more than %d deep", maxDepth), "")
		return w.err
	}
	entries, err := w.entries(dir, h)
	if err != nil {
		return err
	}
	was := w.known(known)
	for _, e := range entries {
		at := path.Join(dir, e.Name)
		switch {
		case e.Mode == filemode.Submodule || was[e.Name] == e.Hash:
		case e.Mode == filemode.Dir:
			if err := w.tree(at, e.Hash, was[e.Name], depth+1); err != nil {
				return err
			}
		default:
			if err := w.storer.HasEncodedObject(e.Hash); err != nil {
				return w.broken(at, e.Hash, err)
			}
		}
	}
	return nil
}

// shortPath is a path of which only the beginning is said.
func shortPath(p string) string {
	parts := pathParts(p)
	return strings.Join(parts[:min(len(parts), 4)], "/") + "/…"
}

// known returns the entries of a tree by name; none where it cannot be read.
func (w *strictWalk) known(h plumbing.Hash) map[string]plumbing.Hash {
	if h.IsZero() {
		return nil
	}
	tree, err := object.GetTree(w.storer, h)
	if err != nil {
		return nil
	}
	entries := make(map[string]plumbing.Hash, len(tree.Entries))
	for _, e := range tree.Entries {
		entries[e.Name] = e.Hash
	}
	return entries
}

// node is what a path leads to.
type node struct {
	real string // absolute, without links
	mode filemode.FileMode
	hash plumbing.Hash
	// linked: a symbolic link was followed on the way. It is set with an error, too.
	linked bool
}

func (n node) isDir() bool { return n.mode == filemode.Dir }

// broken keeps the first error of the storer.
func (o *objects) broken(p string, h plumbing.Hash, err error) error {
	if o.err == nil {
		o.err = Missing(fromRoot(p), h, err)
	}
	return o.err
}

// entries returns the entries of a tree, which must be names and nothing else.
func (o *objects) entries(p string, h plumbing.Hash) ([]object.TreeEntry, error) {
	if e, ok := o.trees[h]; ok {
		return e, nil
	}
	if e, ok := o.shared.get(h); ok {
		return e, nil
	}
	tree, err := object.GetTree(o.storer, h)
	if err != nil {
		return nil, o.broken(p, h, err)
	}
	for _, e := range tree.Entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return nil, o.broken(p, h, fmt.Errorf("%q is not a file name", e.Name))
		}
	}
	o.trees[h] = tree.Entries
	o.shared.put(h, tree.Entries)
	return tree.Entries, nil
}

func (o *objects) entry(dir node, name string) (object.TreeEntry, bool, error) {
	entries, err := o.entries(dir.real, dir.hash)
	if err != nil {
		return object.TreeEntry{}, false, err
	}
	i := slices.IndexFunc(entries, func(e object.TreeEntry) bool { return e.Name == name })
	if i < 0 {
		return object.TreeEntry{}, false, nil
	}
	return entries[i], true, nil
}

// resolve walks a path from the root, link by link. A last link is followed
// where followLast is set. ".." in the path itself stops at the root, as it
// does on disk; in a link it must not leave the tree.
func (t *Tree) resolve(p string, followLast bool) (found node, err error) {
	if t.err != nil {
		return node{}, t.err
	}
	links := 0
	defer func() { found.linked = links > 0 }()
	absent := &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	stack := []node{{real: "/", mode: filemode.Dir, hash: t.root}}
	todo := pathParts(path.Clean("/" + p))
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		dir := stack[len(stack)-1]
		if name == ".." { // only out of a link
			if len(stack) == 1 {
				return node{}, &fs.PathError{Op: "open", Path: p, Err: errOutside}
			}
			stack = stack[:len(stack)-1]
			continue
		}
		if dir.mode == filemode.Submodule {
			return node{}, &fs.PathError{Op: "open", Path: p, Err: errSubmodule(dir.real)}
		}
		if !dir.isDir() {
			return node{}, absent
		}
		e, ok, err := t.entry(dir, name)
		if err != nil {
			return node{}, err
		}
		if !ok {
			return node{}, absent
		}
		n := node{real: path.Join(dir.real, name), mode: e.Mode, hash: e.Hash}
		if e.Mode != filemode.Symlink || (len(todo) == 0 && !followLast) {
			stack = append(stack, n)
			continue
		}
		if links++; links > maxLinks {
			return node{}, &fs.PathError{Op: "open", Path: p, Err: errLinks}
		}
		target, err := t.link(n)
		if err != nil {
			return node{}, &fs.PathError{Op: "open", Path: p, Err: err}
		}
		todo = append(target, todo...)
	}
	return stack[len(stack)-1], nil
}

// link returns the path that a link names, from the folder it is in.
func (t *Tree) link(n node) ([]string, error) {
	target, err := t.blob(n)
	if err != nil {
		return nil, err
	}
	if path.IsAbs(string(target)) {
		return nil, fmt.Errorf("%s: %w", fromRoot(n.real), errOutside)
	}
	return pathParts(string(target)), nil
}

func pathParts(p string) []string {
	return slices.DeleteFunc(strings.Split(p, "/"), func(s string) bool { return s == "" || s == "." })
}

func errSubmodule(p string) error {
	return fmt.Errorf("%s is a submodule; %w", fromRoot(p), manifest.ErrSubmodule)
}

func fromRoot(p string) string {
	if p = strings.TrimPrefix(path.Clean(p), "/"); p == "" {
		return "."
	}
	return p
}

// blob returns the content of a file or link.
func (t *Tree) blob(n node) ([]byte, error) {
	size, err := t.storer.EncodedObjectSize(n.hash)
	if err != nil {
		return nil, t.broken(n.real, n.hash, err)
	}
	if size > t.limits.FileSize {
		return nil, fmt.Errorf("%d bytes; files of more than %s are not read (--max-file-size)", size, FormatSize(t.limits.FileSize))
	}
	o, err := t.storer.EncodedObject(plumbing.BlobObject, n.hash)
	if err != nil {
		return nil, t.broken(n.real, n.hash, err)
	}
	r, err := o.Reader()
	if err != nil {
		return nil, t.broken(n.real, n.hash, err)
	}
	content, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, t.broken(n.real, n.hash, err)
	}
	if int64(len(content)) != size {
		return nil, t.broken(n.real, n.hash, io.ErrUnexpectedEOF)
	}
	return content, nil
}

// lookup resolves a path and remembers the answer.
func (t *Tree) lookup(p string) (node, error) {
	n, err := t.resolve(p, true)
	if t.err != nil {
		return node{}, t.err
	}
	at := path.Clean("/" + p)
	a := t.reads[at]
	a.Exists, a.Dir, a.Real, a.Linked = err == nil, err == nil && n.isDir(), n.real, n.linked
	t.reads[at] = a
	return n, err
}

// ReadFile returns the content of a file.
func (t *Tree) ReadFile(p string) ([]byte, error) {
	n, err := t.lookup(p)
	if err != nil {
		return nil, err
	}
	switch {
	case n.mode == filemode.Submodule:
		return nil, &fs.PathError{Op: "read", Path: p, Err: errSubmodule(n.real)}
	case !n.mode.IsFile():
		return nil, &fs.PathError{Op: "read", Path: p, Err: errors.New("is a folder")}
	}
	at := path.Clean("/" + p)
	a := t.reads[at]
	a.Blob = n.hash
	t.reads[at] = a
	content, err := t.blob(n)
	if err == nil {
		err = t.use(n, len(content))
	}
	switch {
	case t.err != nil:
		return nil, t.err
	case err != nil:
		return nil, &fs.PathError{Op: "read", Path: p, Err: err}
	case slices.ContainsFunc(lfsPrefixes, func(prefix []byte) bool { return bytes.HasPrefix(content, prefix) }):
		return nil, &fs.PathError{
			Op: "read", Path: p, Err: errors.New("is a Git LFS pointer, and LFS is not supported; keep the file in Git itself"),
		}
	}
	if err := manifest.CheckAliases(content); err != nil { // kustomize reads past plan
		return nil, &fs.PathError{Op: "read", Path: p, Err: err}
	}
	return content, nil
}

// use counts what one commit costs. It bounds what is read, and not what is there, since
// a kustomization can have one file read a million times.
func (t *Tree) use(n node, size int) error {
	t.used++
	t.bytes += int64(size)
	most := t.limits.FileSize * filesOfMaxSize
	switch {
	case t.err != nil:
	case t.used > t.limits.Files:
		t.err = Exceeded(fromRoot(n.real), fmt.Sprintf("more than %d files and folders are read for one commit", t.limits.Files), "--max-files")
	case t.bytes > most:
		t.err = Exceeded(fromRoot(n.real), fmt.Sprintf("more than %s are read for one commit", FormatSize(most)), "--max-file-size")
	}
	return t.err
}

// ReadDir returns the names in a folder, sorted.
func (t *Tree) ReadDir(p string) ([]string, error) {
	n, err := t.lookup(p)
	if err != nil {
		return nil, err
	}
	entries, err := t.listing(n, p)
	if err == nil {
		err = t.use(n, 0)
	}
	if err != nil {
		return nil, err
	}
	at := path.Clean("/" + p)
	a := t.reads[at]
	if passed := path.Clean("/" + t.PassedBy); path.Dir(passed) == at {
		a.PassedBy = path.Base(passed)
	}
	a.Listing = listingHash(entries, a.PassedBy)
	t.reads[at] = a
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	slices.Sort(names)
	return names, nil
}

func (t *Tree) listing(n node, p string) ([]object.TreeEntry, error) {
	switch {
	case n.mode == filemode.Submodule:
		return nil, &fs.PathError{Op: "readdir", Path: p, Err: errSubmodule(n.real)}
	case !n.isDir():
		return nil, &fs.PathError{Op: "readdir", Path: p, Err: errors.New("is not a folder")}
	}
	return t.entries(n.real, n.hash)
}

// Exists reports whether there is a file or folder at a path; ask Err too.
func (t *Tree) Exists(p string) bool {
	_, err := t.lookup(p)
	return err == nil
}

// IsDir reports whether there is a folder at a path; ask Err too.
func (t *Tree) IsDir(p string) bool {
	n, err := t.lookup(p)
	return err == nil && n.isDir()
}

// CleanedAbs returns the folder of a path, absolute and without links, and the name of
// the file in it. The name is empty if the path is a folder.
func (t *Tree) CleanedAbs(p string) (filesys.ConfirmedDir, string, error) {
	n, err := t.lookup(p)
	switch {
	case err != nil:
		return "", "", err
	case n.mode == filemode.Submodule:
		return "", "", &fs.PathError{Op: "open", Path: p, Err: errSubmodule(n.real)}
	case n.isDir():
		return filesys.ConfirmedDir(n.real), "", nil
	}
	return filesys.ConfirmedDir(path.Dir(n.real)), path.Base(n.real), nil
}

// Open opens a file for reading.
func (t *Tree) Open(p string) (filesys.File, error) {
	content, err := t.ReadFile(p)
	if err != nil {
		return nil, err
	}
	n, err := t.lookup(p)
	if err != nil {
		return nil, err
	}
	return &openFile{Reader: bytes.NewReader(content), info: fileInfo{name: path.Base(p), node: n, size: int64(len(content))}}, nil
}

// Glob returns the paths that match a pattern, as filepath.Glob does; hidden
// files only where the pattern asks for them.
func (t *Tree) Glob(pattern string) ([]string, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, err
	}
	found := []string{""}
	if path.IsAbs(pattern) {
		found[0] = "/"
	}
	for _, part := range pathParts(pattern) {
		var next []string
		for _, dir := range found {
			names, err := t.matching(dir, part)
			if err != nil {
				return nil, err
			}
			next = append(next, names...)
		}
		found = next
	}
	slices.Sort(found)
	if !filesys.IsHiddenFilePath(pattern) {
		found = filesys.RemoveHiddenFiles(found)
	}
	return found, nil
}

// matching returns the paths in a folder whose name matches one part of a pattern.
func (t *Tree) matching(dir, part string) ([]string, error) {
	if !strings.ContainsAny(part, `*?[\`) {
		if p := path.Join(dir, part); t.Exists(p) {
			return []string{p}, nil
		}
		return nil, t.err
	}
	if !t.IsDir(dir) {
		return nil, t.err
	}
	names, err := t.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, name := range names {
		if ok, _ := path.Match(part, name); ok { // the pattern was checked
			found = append(found, path.Join(dir, name))
		}
	}
	return found, nil
}

// Walk calls fn for all that is at a path and below, as filepath.Walk does:
// in the order of names, links not followed.
func (t *Tree) Walk(p string, fn filepath.WalkFunc) error {
	n, err := t.resolve(p, false)
	if t.err != nil {
		return t.err
	}
	if err != nil {
		err = fn(p, nil, err)
	} else {
		_, _ = t.lookup(p)
		err = t.walk(p, n, fn)
	}
	if errors.Is(err, filepath.SkipDir) || errors.Is(err, filepath.SkipAll) {
		return nil
	}
	return err
}

func (t *Tree) walk(p string, n node, fn filepath.WalkFunc) error {
	info, err := t.info(p, n)
	if err != nil {
		return err
	}
	if err := fn(p, info, nil); err != nil || !n.isDir() {
		if errors.Is(err, filepath.SkipDir) && n.isDir() {
			return nil
		}
		return err
	}
	names, err := t.ReadDir(n.real)
	if err != nil {
		return err
	}
	for _, name := range names {
		e, _, err := t.entry(n, name)
		if err != nil {
			return err
		}
		err = t.walk(path.Join(p, name), node{real: path.Join(n.real, name), mode: e.Mode, hash: e.Hash}, fn)
		if errors.Is(err, filepath.SkipDir) {
			return nil // a file asked for the rest of its folder to be left out
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *objects) info(p string, n node) (fileInfo, error) {
	i := fileInfo{name: path.Base(p), node: n}
	if n.isDir() || n.mode == filemode.Submodule {
		return i, nil
	}
	size, err := o.storer.EncodedObjectSize(n.hash)
	if err != nil {
		return i, o.broken(n.real, n.hash, err)
	}
	i.size = size
	return i, nil
}

// readOnly is the part of a file system that writes: it returns an error.
type readOnly struct{}

func (readOnly) Create(string) (filesys.File, error) { return nil, errReadOnly }
func (readOnly) Mkdir(string) error                  { return errReadOnly }
func (readOnly) MkdirAll(string) error               { return errReadOnly }
func (readOnly) RemoveAll(string) error              { return errReadOnly }
func (readOnly) WriteFile(string, []byte) error      { return errReadOnly }

// openFile is a file that was read whole.
type openFile struct {
	*bytes.Reader
	info fileInfo
}

func (f *openFile) Write([]byte) (int, error)  { return 0, errReadOnly }
func (f *openFile) Close() error               { return nil }
func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// fileInfo is what Git knows of a file. It has no times.
type fileInfo struct {
	name string
	node node
	size int64
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) ModTime() time.Time { return time.Time{} }
func (i fileInfo) IsDir() bool        { return i.node.isDir() }
func (i fileInfo) Sys() any           { return nil }
func (i fileInfo) Mode() fs.FileMode {
	switch i.node.mode {
	case filemode.Dir:
		return fs.ModeDir | 0o755
	case filemode.Symlink:
		return fs.ModeSymlink | 0o777
	case filemode.Submodule:
		return fs.ModeIrregular
	case filemode.Executable:
		return 0o755
	default:
		return 0o644
	}
}
