package gittest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

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
	if !r.needsGit() {
		if commit, err := r.commit(m); err == nil {
			return commit
		} // such as where a file has taken the place of a folder
	}
	r.Git("add", "-A")
	r.Git("commit", "-q", "--allow-empty", "--author", r.Author, "-m", m)
	return r.Head()
}

// needsGit reports whether a commit needs what go-git does not do as git does. These are dates
// and attributes of a test's own, the end of a merge, and a key outside this process.
func (r *Repo) needsGit() bool {
	if r.configured || len(r.Env) > 0 || r.key != nil && r.key.signer == nil {
		return true
	}
	return slices.ContainsFunc([]string{"MERGE_HEAD", "REVERT_HEAD", "CHERRY_PICK_HEAD"}, func(name string) bool {
		_, err := os.Lstat(filepath.Join(r.Work, ".git", name))
		return !errors.Is(err, os.ErrNotExist)
	})
}

func (r *Repo) commit(message string) (string, error) {
	repo, err := gogit.PlainOpen(r.Work)
	if err != nil {
		return "", err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return "", err
	}
	if err := tree.AddWithOptions(&gogit.AddOptions{All: true}); err != nil {
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

// sshSigner signs commits as git does by ssh-keygen -Y sign.
type sshSigner struct{ ssh.Signer }

func (s sshSigner) Sign(message io.Reader) ([]byte, error) {
	signature, err := sshsig.Sign(message, s.Signer, sshsig.HashSHA512, "git")
	if err != nil {
		return nil, err
	}
	return sshsig.Armor(signature), nil
}
