// Package clone changes a branch from the clone that a person stands in, with
// that person's git: their name, signature, hooks and credentials count.
//
// A change is made in a worktree of its own beside the clone, and checked and committed
// there. The branch is then moved forward to it. A failure before that last step changes
// nothing.
package clone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/tranche-dev/tranche/gitsync/giturl"
)

// Clone is a clone of a repository, and its remote of a URL.
type Clone struct {
	// Dir is the root of the worktree.
	Dir string
	// Remote is the name of the remote.
	Remote string
}

// Find returns the clone that dir is in, if one of its remotes is the
// repository of that URL.
func Find(ctx context.Context, dir, repository string) (*Clone, error) {
	root, remotes, err := at(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("%w; change to one of %s, or git clone it", err, repository)
	}
	var others []string
	for _, r := range remotes {
		if giturl.SameForUser(r.url, repository) {
			return &Clone{Dir: root, Remote: r.name}, nil
		}
		others = append(others, withoutUser(r.url))
	}
	return nil, fmt.Errorf("no remote of the clone in %s is %s, but %s; change to a clone of it, or git remote add it, or name the source "+
		"with --source if one of them is the same repository by another URL", root, repository, strings.Join(others, ", "))
}

// Here returns the clone that dir is in, with the remote that its branch follows, or
// its only one.
func Here(ctx context.Context, dir string) (*Clone, error) {
	root, remotes, err := at(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("%w; change to one of the source's repository", err)
	}
	if upstream, err := git(ctx, root, "rev-parse", "--abbrev-ref", "@{upstream}"); err == nil {
		for _, r := range remotes {
			if strings.HasPrefix(upstream, r.name+"/") {
				return &Clone{Dir: root, Remote: r.name}, nil
			}
		}
	}
	if len(remotes) != 1 {
		return nil, fmt.Errorf("the clone in %s has %d remotes, and its branch follows none; git branch --set-upstream-to=REMOTE/BRANCH",
			root, len(remotes))
	}
	return &Clone{Dir: root, Remote: remotes[0].name}, nil
}

// errNoGit is the error of a machine, or of an image, without git.
var errNoGit = errors.New("git is not installed here: run this where the clone is, with git in PATH")

// rootOf returns the root of the clone that dir is in.
func rootOf(ctx context.Context, dir string) (string, error) {
	root, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil && !errors.Is(err, errNoGit) {
		err = fmt.Errorf("%s is not in a clone", dir)
	}
	return root, err
}

// At returns the clone that dir is in, to be read: it has no remote.
func At(ctx context.Context, dir string) (*Clone, error) {
	root, err := rootOf(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &Clone{Dir: root}, nil
}

type remote struct{ name, url string }

// at returns the root of the clone that dir is in, and its remotes.
func at(ctx context.Context, dir string) (root string, remotes []remote, err error) {
	if root, err = rootOf(ctx, dir); err != nil {
		return "", nil, err
	}
	names, err := git(ctx, root, "remote")
	if err != nil {
		return "", nil, err
	}
	for _, name := range strings.Fields(names) {
		url, err := git(ctx, root, "remote", "get-url", name)
		if err != nil {
			return "", nil, err
		}
		remotes = append(remotes, remote{name, url})
	}
	return root, remotes, nil
}

// withoutUser is a URL as it may be shown: without user and password.
func withoutUser(at string) string {
	if u, err := url.Parse(at); err == nil && u.User != nil {
		u.User = nil
		return u.String()
	}
	return at
}

// Ready makes sure that the clone stands on a branch and has all of it. It
// returns how many commits of the clone are not in the remote yet. A clone that lacks
// commits of the branch is a BehindError.
func (c *Clone) Ready(ctx context.Context, branch string) (ahead int, err error) {
	if err := c.idle(ctx); err != nil {
		return 0, err
	}
	on, err := git(ctx, c.Dir, "symbolic-ref", "--quiet", "--short", "HEAD")
	if err != nil {
		on = "no branch"
	}
	if on != branch {
		return 0, fmt.Errorf("the clone is on %s and the source follows %s; git switch %s", on, branch, branch)
	}
	return c.compare(ctx, "HEAD", branch)
}

// compare fetches a branch, and returns how many commits a commit of the clone has more. If it
// has less, the error is a BehindError.
func (c *Clone) compare(ctx context.Context, commit, branch string) (ahead int, err error) {
	if _, err := git(ctx, c.Dir, "fetch", "--quiet", c.Remote, branch); err != nil {
		return 0, fmt.Errorf("fetching %s from %s: %w", branch, c.Remote, err)
	}
	tip, err := git(ctx, c.Dir, "rev-parse", "FETCH_HEAD")
	if err != nil {
		return 0, err
	}
	counts, err := git(ctx, c.Dir, "rev-list", "--left-right", "--count", commit+"..."+tip)
	if err != nil {
		return 0, err
	}
	var behind int
	if _, err := fmt.Sscan(counts, &ahead, &behind); err != nil {
		return 0, fmt.Errorf("counting the commits of %s: %w", branch, err)
	}
	if behind > 0 {
		return ahead, &BehindError{Remote: c.Remote, Branch: branch, Commits: behind, Tip: tip}
	}
	return ahead, nil
}

// BehindError says that a branch of the remote has commits that the clone lacks.
type BehindError struct {
	Remote, Branch string
	// Commits is how many.
	Commits int
	// Tip is the commit of the branch. The clone has the object.
	Tip string
}

func (e *BehindError) Error() string { return "the clone lacks " + e.Lacks() }

// Lacks says what the clone lacks, and which command brings it.
func (e *BehindError) Lacks() string {
	commits := "1 commit"
	if e.Commits != 1 {
		commits = fmt.Sprintf("%d commits", e.Commits)
	}
	return fmt.Sprintf("%s of %s; git pull --rebase %s %s", commits, e.Branch, e.Remote, e.Branch)
}

// Contains reports whether a commit is in the history of the tip of a branch of the
// remote, or is the tip. Its error is why that is not known. A tip that the clone does
// not have is fetched, and no reference of the clone changes.
func (c *Clone) Contains(ctx context.Context, branch, tip, commit string) (bool, error) {
	if _, err := git(ctx, c.Dir, "cat-file", "-e", commit+"^{commit}"); err != nil {
		return false, fmt.Errorf("looking for commit %s in the clone: %w", commit, err)
	}
	if _, err := git(ctx, c.Dir, "cat-file", "-e", tip+"^{commit}"); err != nil {
		if _, err := git(ctx, c.Dir, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--refmap=",
			c.Remote, "refs/heads/"+branch); err != nil {
			return false, fmt.Errorf("fetching %s from %s: %w", branch, c.Remote, err)
		}
	}
	missing, err := git(ctx, c.Dir, "rev-list", "--max-count=1", commit, "^"+tip)
	if err != nil {
		return false, fmt.Errorf("comparing commit %s with %s: %w", commit, tip, err)
	}
	return missing == "", nil // all of the commit is in the tip
}

// Objects returns the objects of the clone, to be read only.
func (c *Clone) Objects() (storer.EncodedObjectStorer, error) {
	r, err := gogit.PlainOpenWithOptions(c.Dir, &gogit.PlainOpenOptions{DetectDotGit: true, EnableDotGitCommonDir: true})
	if err != nil {
		return nil, fmt.Errorf("opening the clone: %w", err)
	}
	return r.Storer, nil
}

// Head is the commit that the clone stands on.
func (c *Clone) Head(ctx context.Context) (string, error) {
	return git(ctx, c.Dir, "rev-parse", "HEAD")
}

// Author returns the name and address with which git commits in the clone.
func (c *Clone) Author(ctx context.Context) (string, error) {
	ident, err := c.Git(ctx, "var", "GIT_AUTHOR_IDENT")
	if err != nil {
		return "", fmt.Errorf("finding out who commits: %w", err)
	}
	return ident[:strings.LastIndex(ident, ">")+1], nil
}

// Git runs git in the clone, and returns what it prints.
func (c *Clone) Git(ctx context.Context, args ...string) (string, error) {
	return git(ctx, c.Dir, args...)
}

// Change is a commit in the making, in a worktree of its own.
type Change struct {
	clone *Clone
	// Dir is the root of the worktree, which stands on the clone's HEAD.
	Dir string
	// On is the clone's HEAD, which the change is made on.
	On     string
	shown  []string // the files of the diff that was returned last
	commit string   // empty: there is none that may be taken over
}

// Begin makes a worktree for a change. Close must be called.
func (c *Clone) Begin(ctx context.Context) (*Change, error) {
	parent, err := os.MkdirTemp("", "tranche-")
	if err != nil {
		return nil, fmt.Errorf("making a worktree: %w", err)
	}
	ch := &Change{clone: c, Dir: filepath.Join(parent, "worktree")}
	if _, err := git(ctx, c.Dir, "worktree", "add", "--quiet", "--detach", ch.Dir, "HEAD"); err != nil {
		return nil, errors.Join(fmt.Errorf("making a worktree: %w", err), os.RemoveAll(parent))
	}
	if ch.On, err = git(ctx, ch.Dir, "rev-parse", "HEAD"); err != nil {
		return nil, errors.Join(err, ch.Close())
	}
	return ch, nil
}

// Close removes the worktree. A commit that was not taken over goes with it,
// some day.
func (ch *Change) Close() error {
	// Not the context of the command: what was interrupted is cleaned up, too.
	_, err := git(context.Background(), ch.clone.Dir, "worktree", "remove", "--force", ch.Dir)
	return errors.Join(err, os.RemoveAll(filepath.Dir(ch.Dir)))
}

// path is where a file of the repository is; never outside of the worktree,
// wherever its links lead.
func (ch *Change) path(file string) (string, error) {
	at := filepath.Join(ch.Dir, filepath.FromSlash(file))
	for dir := at; len(dir) > len(ch.Dir); dir = filepath.Dir(dir) {
		if info, err := os.Lstat(dir); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return "", fmt.Errorf("%s: is behind a link; name its place", file)
		}
	}
	if !filepath.IsLocal(filepath.FromSlash(file)) {
		return "", fmt.Errorf("%s: is not in the repository", file)
	}
	return at, nil
}

// Git runs git in the worktree, and returns what it prints.
func (ch *Change) Git(ctx context.Context, args ...string) (string, error) {
	return git(ctx, ch.Dir, args...)
}

// Content is a file of a commit or, ":path", of the index, byte by byte.
func (ch *Change) Content(ctx context.Context, name string) ([]byte, error) {
	return gitBytes(ctx, ch.Dir, "cat-file", "blob", name)
}

// Clean makes sure that what changes is not changed in the clone as well.
func (ch *Change) Clean(ctx context.Context) error {
	names, err := ch.Git(ctx, "diff", "--cached", "--name-only", "-z", "HEAD")
	if err != nil {
		return err
	}
	files := strings.Split(strings.TrimRight(names, "\x00"), "\x00")
	dirty, err := git(ctx, ch.clone.Dir, append([]string{"status", "--porcelain", "--ignored", "--"}, literal(files)...)...)
	if err != nil {
		return err
	}
	if dirty != "" {
		return fmt.Errorf("the clone has changes of its own in the same files:\n%s\ncommit them, or git stash push --include-untracked -- %s",
			dirty, strings.Join(files, " "))
	}
	return nil
}

// literal are files as git is to take them, whatever characters they have.
func literal(files []string) []string {
	specs := make([]string, len(files))
	for i, f := range files {
		specs[i] = ":(top,literal)" + f
	}
	return specs
}

// Push pushes a commit of the clone to a branch. If the branch has moved on meanwhile, the error
// is a BehindError.
func (c *Clone) Push(ctx context.Context, commit, branch string) error {
	_, refused := git(ctx, c.Dir, "push", "--quiet", c.Remote, commit+":refs/heads/"+branch)
	if refused == nil {
		return nil
	}
	// The words of servers differ, and git translates its own. So the branch is asked.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), aftermath)
	defer stop()
	ahead, err := c.compare(ctx, commit, branch)
	var behind *BehindError
	switch {
	case ahead == 0 && (err == nil || errors.As(err, &behind)): // the answer of the server was lost
		return nil
	case errors.As(err, &behind):
		return behind
	}
	return fmt.Errorf("pushing %s to %s: %w", branch, c.Remote, refused)
}

// aftermath is how long it may take to find out what an interrupted command has done.
const aftermath = 20 * time.Second

// notOfRepository keeps git from running a program that a commit names. A folder of the
// repository may look like a bare one, with a configuration of its own.
var notOfRepository = []string{"-c", "safe.bareRepository=explicit", "-c", "core.fsmonitor=false"}

// git runs git as its user would: with their configuration and their terminal.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := gitBytes(ctx, dir, args...)
	return strings.TrimRight(string(out), "\n"), err
}

func gitBytes(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", append(slices.Clone(notOfRepository), args...)...)
	cmd.Dir = dir
	cmd.Stdin = os.Stdin // a passphrase is asked for there
	// A hook or an alias of git may have set variables that name another repository.
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX":
		default:
			cmd.Env = append(cmd.Env, kv)
		}
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errNoGit
	}
	if err != nil {
		said := strings.TrimSpace(errs.String() + out.String())
		if said == "" {
			said = err.Error()
		}
		return nil, fmt.Errorf("git %s: %s", args[0], said)
	}
	return out.Bytes(), nil
}
