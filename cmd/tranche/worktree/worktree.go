// Package worktree reads the files of a clone as the controller would read them from a commit.
//
// A worktree is a store of Git objects that come into being as they are asked for. So a folder of
// the disk has the rules of package gittree: links, submodules, sizes, and what is no file.
package worktree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	gogit "github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/tranche-dev/tranche/gitsync/gittree"
)

// Open returns the worktree that a file or folder of the disk is in, the root of that worktree, and
// the path from there. Without a clone the root is that of the disk.
func Open(path string) (tree *gittree.Tree, root, at string, err error) {
	abs, err := located(path)
	if err != nil {
		return nil, "", "", fmt.Errorf("finding %s: %w", path, err)
	}
	s := &store{EncodedObjectStorer: memory.NewStorage(), root: rootOf(abs), paths: map[plumbing.Hash]string{}, given: abs}
	if at, err = filepath.Rel(s.root, abs); err != nil {
		return nil, "", "", fmt.Errorf("finding %s: %w", path, err)
	}
	if err := s.readModules(); err != nil {
		return nil, "", "", err
	}
	tree, err = gittree.OpenTree(s, s.name(s.root))
	return tree, s.root, at, err
}

// located is a path without the links that lead to it. A file that is a link stays one.
func located(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(abs); err == nil && info.IsDir() {
		return filepath.EvalSymlinks(abs)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	return filepath.Join(parent, filepath.Base(abs)), err
}

// rootOf returns the folder above a path that has a .git.
func rootOf(path string) string {
	for dir := path; ; dir = filepath.Dir(dir) {
		if isClone(dir) || dir == filepath.Dir(dir) {
			return dir
		}
	}
}

func isClone(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, gitDir))
	return err == nil
}

const gitDir = ".git"

// store has an object for each file and folder. It is named after the path.
type store struct {
	storer.EncodedObjectStorer
	root, given string
	paths       map[plumbing.Hash]string
	modules     []string // paths of .gitmodules
}

func (s *store) name(path string) plumbing.Hash {
	h := plumbing.ComputeHash(plumbing.BlobObject, []byte(path))
	s.paths[h] = path
	return h
}

// readModules reads which folders are submodules. One that is not checked out is an empty folder.
func (s *store) readModules() error {
	text, err := os.ReadFile(filepath.Join(s.root, ".gitmodules"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var m gogit.Modules
	if err == nil {
		m.Submodules = map[string]*gogit.Submodule{}
		err = m.Unmarshal(text)
	}
	if err != nil {
		return fmt.Errorf("reading .gitmodules: %w", err)
	}
	for _, module := range m.Submodules {
		s.modules = append(s.modules, filepath.Join(s.root, module.Path))
	}
	return nil
}

func (s *store) HasEncodedObject(h plumbing.Hash) error {
	if _, ok := s.paths[h]; !ok {
		return plumbing.ErrObjectNotFound
	}
	return nil
}

func (s *store) EncodedObjectSize(h plumbing.Hash) (int64, error) {
	path, ok := s.paths[h]
	if !ok {
		return 0, plumbing.ErrObjectNotFound
	}
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (s *store) EncodedObject(t plumbing.ObjectType, h plumbing.Hash) (plumbing.EncodedObject, error) {
	path, ok := s.paths[h]
	if !ok {
		return nil, plumbing.ErrObjectNotFound
	}
	o := &plumbing.MemoryObject{}
	if t == plumbing.TreeObject {
		tree, err := s.folder(path)
		if err != nil {
			return nil, err
		}
		return o, tree.Encode(o)
	}
	o.SetType(plumbing.BlobObject)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		to, err := os.Readlink(path)
		if err == nil {
			_, err = io.WriteString(o, to)
		}
		return o, err
	}
	content, err := os.ReadFile(path)
	if err == nil {
		_, err = o.Write(content)
	}
	return o, err
}

// folder is a folder as Git would have it. One on the way to the worktree that may not be listed has
// just the next folder.
func (s *store) folder(dir string) (*object.Tree, error) {
	entries, err := os.ReadDir(dir)
	if rest, ok := strings.CutPrefix(s.given, strings.TrimSuffix(dir, "/")+"/"); err != nil && ok {
		next, _, _ := strings.Cut(rest, "/")
		var info fs.FileInfo
		if info, err = os.Lstat(filepath.Join(dir, next)); err == nil {
			entries = []fs.DirEntry{fs.FileInfoToDirEntry(info)}
		}
	}
	if err != nil {
		return nil, err
	}
	tree := &object.Tree{}
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if mode := s.modeOf(at, e); mode != filemode.Empty {
			tree.Entries = append(tree.Entries, object.TreeEntry{Name: e.Name(), Mode: mode, Hash: s.name(at)})
		}
	}
	slices.SortFunc(tree.Entries, func(a, b object.TreeEntry) int { return strings.Compare(sortedBy(a), sortedBy(b)) })
	return tree, nil
}

// sortedBy is the name by which Git sorts an entry.
func sortedBy(e object.TreeEntry) string {
	if e.Mode == filemode.Dir {
		return e.Name + "/"
	}
	return e.Name
}

// modeOf returns Empty for what Git does not have.
func (s *store) modeOf(path string, e fs.DirEntry) filemode.FileMode {
	switch {
	case e.Name() == gitDir:
		return filemode.Empty
	case e.IsDir() && (slices.Contains(s.modules, path) || isClone(s.root) && isClone(path)):
		return filemode.Submodule
	case e.IsDir():
		return filemode.Dir
	case e.Type()&fs.ModeSymlink != 0:
		return filemode.Symlink
	case e.Type().IsRegular():
		return filemode.Regular
	}
	return filemode.Empty
}
