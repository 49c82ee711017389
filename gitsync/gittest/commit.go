package gittest

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/index"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// errNeedsGit is why something is left to git: a push that moves no branch forward, or what a
// test has done or set by itself.
var errNeedsGit = errors.New("only git can do this")

// Commit writes files, commits everything, and returns the commit. Most commits are made in
// this process: git takes two processes for each, or four with a signature, and tests make
// thousands.
func (r *Repo) Commit(files map[string]string, message ...string) string {
	r.t.Helper()
	r.Write(files)
	m := "Change"
	if len(message) > 0 {
		m = strings.Join(message, "\n\n")
	}
	commit, err := r.commit(m)
	if errors.Is(err, errNeedsGit) {
		r.Git("add", "-A")
		r.Git("commit", "-q", "--allow-empty", "--author", r.Author, "-m", m)
		return r.Head()
	}
	if err != nil {
		r.t.Fatalf("commit %q in %s: %v", m, r.Work, err)
	}
	return commit
}

func (r *Repo) commit(message string) (string, error) {
	// Dates and attributes of a test's own, and a key outside this process.
	if r.configured || len(r.Env) > 0 || r.key != nil && r.key.signer == nil {
		return "", errNeedsGit
	}
	if slices.ContainsFunc([]string{"MERGE_HEAD", "REVERT_HEAD", "CHERRY_PICK_HEAD"}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(r.Work, ".git", name))
		return err == nil
	}) {
		return "", errNeedsGit
	}
	repo, err := gogit.PlainOpen(r.Work)
	if err != nil {
		return "", err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return "", err
	}
	if err := r.addAll(repo.Storer); err != nil {
		return "", err
	}
	now := time.Now()
	by := func(who string) *object.Signature {
		name, email, _ := strings.Cut(strings.TrimSuffix(who, ">"), " <")
		return &object.Signature{Name: name, Email: email, When: now}
	}
	o := &gogit.CommitOptions{AllowEmptyCommits: true, Author: by(r.Author), Committer: by(Author)}
	if r.key != nil {
		o.Signer = sshSigner{r.key.signer}
	}
	commit, err := tree.Commit(strings.TrimSpace(message)+"\n", o)
	return commit.String(), err
}

// addAll has the index say what the files are, as `git add --all` does. go-git's own takes a
// file for unchanged that was written twice within a tick of the clock.
func (r *Repo) addAll(s storage.Storer) error {
	known, err := r.unchanged(s)
	if err != nil {
		return err
	}
	all := &index.Index{Version: 2}
	err = filepath.WalkDir(r.Work, func(file string, f fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case f.IsDir() && f.Name() == ".git":
			return fs.SkipDir
		case f.IsDir():
			return nil
		}
		e, err := entryOf(r.Work, file, f)
		if err != nil {
			return err
		}
		all.Entries = append(all.Entries, e)
		if was := known[e.Name]; was != nil && was.Mode == e.Mode && was.Size == e.Size && was.ModifiedAt.Equal(e.ModifiedAt) {
			e.Hash = was.Hash
			return nil
		}
		e.Hash, err = addFile(s, file, e.Mode)
		return err
	})
	if err != nil {
		return err
	}
	return s.SetIndex(all)
}

// unchanged returns the entries of the index by which a change of the file is seen. That of a
// file as young as the index itself may have been made before its last change.
func (r *Repo) unchanged(s storage.Storer) (map[string]*index.Entry, error) {
	info, err := os.Stat(filepath.Join(r.Work, ".git", "index"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	old, err := s.Index()
	if err != nil {
		return nil, err
	}
	list := map[string]*index.Entry{}
	for _, e := range old.Entries {
		if e.Stage != 0 || e.Mode == filemode.Submodule { // go-git's Merged is 1
			return nil, errNeedsGit
		}
		if e.ModifiedAt.Before(info.ModTime()) {
			list[e.Name] = e
		}
	}
	return list, nil
}

// entryOf returns what the index has of a file, without its content.
func entryOf(root, file string, f fs.DirEntry) (*index.Entry, error) {
	info, err := f.Info()
	if err != nil {
		return nil, err
	}
	mode, err := filemode.NewFromOSFileMode(info.Mode())
	if err != nil {
		return nil, err
	}
	name, err := filepath.Rel(root, file)
	//nolint:gosec // the files of a test are small
	return &index.Entry{Name: filepath.ToSlash(name), Mode: mode, Size: uint32(info.Size()), ModifiedAt: info.ModTime()}, err
}

func addFile(s storage.Storer, file string, mode filemode.FileMode) (plumbing.Hash, error) {
	if mode == filemode.Symlink {
		target, err := os.Readlink(file)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		return add(s, plumbing.BlobObject, []byte(target))
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return add(s, plumbing.BlobObject, content)
}

// sshSigner signs commits as git does by ssh-keygen -Y sign.
type sshSigner struct{ ssh.Signer }

func (s sshSigner) Sign(message io.Reader) ([]byte, error) {
	signature, err := sshsig.Sign(message, s.Signer, sshsig.HashSHA512, "git")
	if err != nil {
		return nil, err
	}
	return sshsig.Armor(signature), nil
}
