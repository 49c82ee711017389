package gittest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Push pushes the branch that is checked out. A push to a repository that is as [NewRepo] made
// it is made in this process: git takes six for each.
func (r *Repo) Push(args ...string) {
	r.t.Helper()
	err := errNeedsGit
	if len(args) == 0 && len(r.Env) == 0 {
		err = r.push()
	}
	if errors.Is(err, errNeedsGit) {
		r.Git(append([]string{"push", "-q", "origin", "HEAD"}, args...)...)
	} else if err != nil {
		r.t.Fatalf("push from %s to %s: %v", r.Work, r.Bare, err)
	}
}

func (r *Repo) push() error {
	branch, err := r.pushable()
	if err != nil {
		return err
	}
	at, tip := filepath.Join(r.Bare, branch), r.Head()
	now, err := tipIn(at)
	if err != nil {
		return err
	}
	if err := r.send(plumbing.NewHash(tip), now); err != nil {
		return err
	}
	if err := move(at, now, tip); err != nil {
		return err
	}
	tracks := filepath.Join(r.Work, ".git", "refs", "remotes", "origin", filepath.Base(branch))
	return errors.Join(os.MkdirAll(filepath.Dir(tracks), 0o755), os.WriteFile(tracks, []byte(tip+"\n"), 0o644))
}

// tipIn returns the commit in the file of a branch; none: there is no such branch.
func tipIn(file string) (string, error) {
	tip, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(tip)), err
}

// move moves a branch if it is where it was. It locks the branch as git does, so against the
// pushes of the controller, too.
func move(file, from, to string) (err error) {
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return errNeedsGit
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
			_ = os.Remove(lock.Name())
		}
	}()
	if now, err := tipIn(file); err != nil || now != from {
		return errNeedsGit
	}
	_, err = lock.WriteString(to + "\n")
	if err := errors.Join(err, lock.Close()); err != nil {
		return err
	}
	return os.Rename(lock.Name(), file)
}

// pushable returns the file of the branch that is checked out, below the folder of a repository.
func (r *Repo) pushable() (branch string, err error) {
	head, _ := os.ReadFile(filepath.Join(r.Work, ".git", "HEAD"))
	branch, ok := strings.CutPrefix(strings.TrimSpace(string(head)), "ref: ")
	config, _ := os.ReadFile(filepath.Join(r.Bare, "config"))
	hooks, _ := filepath.Glob(filepath.Join(r.Bare, "hooks", "*"))
	_, packed := os.Lstat(filepath.Join(r.Bare, "packed-refs"))
	if !ok || strings.Count(branch, "/") != 2 || string(config) != bareConfig || len(hooks) > 0 || !errors.Is(packed, os.ErrNotExist) {
		return "", errNeedsGit
	}
	return filepath.FromSlash(branch), nil
}

// send copies the objects of a commit that the repository lacks. The commit must have in its
// history what the branch has now, if it is there.
func (r *Repo) send(tip plumbing.Hash, now string) error {
	work, bare := Objects(filepath.Join(r.Work, ".git")), Objects(r.Bare)
	var lacked []plumbing.Hash
	seen, forward := map[plumbing.Hash]bool{}, now == ""
	for queue := []plumbing.Hash{tip}; len(queue) > 0; queue = queue[1:] {
		h := queue[0]
		forward = forward || h.String() == now
		if seen[h] || bare.HasEncodedObject(h) == nil {
			continue
		}
		seen[h] = true
		c, err := object.GetCommit(work, h)
		if err != nil {
			return fmt.Errorf("reading commit %s: %w", h, err)
		}
		lacked, queue = append(lacked, h, c.TreeHash), append(queue, c.ParentHashes...)
	}
	if !forward {
		return errNeedsGit
	}
	for ; len(lacked) > 0; lacked = lacked[1:] {
		h := lacked[0]
		if bare.HasEncodedObject(h) == nil {
			continue
		}
		o, err := work.EncodedObject(plumbing.AnyObject, h)
		if err != nil {
			return fmt.Errorf("reading %s: %w", h, err)
		}
		if _, err := bare.SetEncodedObject(o); err != nil {
			return fmt.Errorf("writing %s: %w", h, err)
		}
		if o.Type() != plumbing.TreeObject {
			continue
		}
		tree, err := object.DecodeTree(work, o)
		if err != nil {
			return fmt.Errorf("reading tree %s: %w", h, err)
		}
		for _, e := range tree.Entries {
			if e.Mode != filemode.Submodule {
				lacked = append(lacked, e.Hash)
			}
		}
	}
	return nil
}
