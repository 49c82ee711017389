package clone

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/gitsync/revert"
)

// Git converts files when it adds them: line ends, encodings, $Id$ and what filters make of
// them. It also converts files that another user has committed, since attributes of a later
// commit apply to them. A signature would cover those. So a change puts its own files into
// the index, byte by byte, and no other file.

// Write writes a file, by its path from the root, and stages it.
func (ch *Change) Write(ctx context.Context, file, text string) error {
	mode, _, err := ch.staged(ctx, file)
	if err != nil {
		return err
	}
	return ch.Put(ctx, file, revert.File{Content: []byte(text), Executable: mode == modeExecutable})
}

const (
	modeFile       = "100644"
	modeExecutable = "100755"
)

// Put makes a file what it is to be, and stages that: with a content, or not there.
func (ch *Change) Put(ctx context.Context, file string, f revert.File) error {
	at, err := ch.path(file)
	if err != nil {
		return err
	}
	if f.Gone {
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing %s: %w", file, err)
		}
		_, err := ch.Git(ctx, "update-index", "--force-remove", "--", file)
		return err
	}
	mode, perm := modeFile, os.FileMode(0o644)
	if f.Executable {
		mode, perm = modeExecutable, 0o755
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	if err := os.WriteFile(at, f.Content, perm); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	if err := os.Chmod(at, perm); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	blob, err := ch.Git(ctx, "hash-object", "-w", "--no-filters", "--", at)
	if err != nil {
		return err
	}
	_, err = ch.Git(ctx, "update-index", "--add", "--cacheinfo", mode+","+blob+","+file)
	return err
}

// Read reads a file, by its path from the root, as it is staged.
func (ch *Change) Read(ctx context.Context, file string) (string, error) {
	if _, err := ch.path(file); err != nil {
		return "", err
	}
	text, err := ch.Content(ctx, ":0:"+file)
	if err == nil {
		return string(text), nil
	}
	if _, blob, cannot := ch.staged(ctx, file); cannot == nil && blob == "" {
		err = fs.ErrNotExist
	}
	return "", fmt.Errorf("reading %s: %w", file, err)
}

// staged returns the mode and the blob of a file in the index; empty: it is not there.
func (ch *Change) staged(ctx context.Context, file string) (mode, blob string, err error) {
	entry, err := ch.Git(ctx, "ls-files", "--stage", "-z", "--", ":(top,literal)"+file)
	if err != nil {
		return "", "", err
	}
	for e := range strings.SplitSeq(entry, "\x00") { // of a folder, all that is below it
		what, name, _ := strings.Cut(e, "\t")
		if fields := strings.Fields(what); name == file && len(fields) > 1 {
			return fields[0], fields[1], nil
		}
	}
	return "", "", nil
}

// Trial makes a commit without parents of what is staged, to be rendered. No branch has it.
func (ch *Change) Trial(ctx context.Context) (string, error) {
	tree, err := ch.Git(ctx, "write-tree")
	if err != nil {
		return "", err
	}
	return ch.Git(ctx, "commit-tree", "-m", "trial", tree)
}

// Diff returns the diff of what is staged, as it may be shown: without control characters.
func (ch *Change) Diff(ctx context.Context) (string, error) {
	files, err := ch.files(ctx, "diff", "--cached", "--no-renames", "HEAD")
	if err != nil {
		return "", err
	}
	ch.shown = files
	// Attributes of the repository must not hide a change.
	diff, err := ch.Git(ctx, "diff", "--cached", "--no-ext-diff", "--no-textconv", "--text", "--color=never", "HEAD")
	return terminal.Printable(diff), err
}

// files returns the files that a command of git names, sorted.
func (ch *Change) files(ctx context.Context, args ...string) ([]string, error) {
	names, err := ch.Git(ctx, slices.Concat(args[:1], []string{"--name-only", "-z"}, args[1:])...)
	if err != nil || names == "" {
		return nil, err
	}
	files := strings.Split(strings.TrimRight(names, "\x00"), "\x00")
	slices.Sort(files)
	return files, nil
}

// Commit commits what is staged and was shown by Diff, and returns the commit. The branch
// does not have it yet. A commit with other files, such as by a hook, is an error.
func (ch *Change) Commit(ctx context.Context, message string, sign bool) (string, error) {
	args := []string{"commit", "--quiet", "-m", message}
	if sign {
		args = append(args, "--gpg-sign")
	}
	before, err := ch.Git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	if _, err := ch.Git(ctx, args...); err != nil {
		return "", fmt.Errorf("committing: %w", err)
	}
	commit, err := ch.Git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	files, err := ch.files(ctx, "diff-tree", "-r", "--no-renames", before, commit)
	if err != nil {
		return "", err
	}
	others := slices.DeleteFunc(files, func(f string) bool { return slices.Contains(ch.shown, f) })
	if len(others) > 0 {
		return "", fmt.Errorf("the commit would also change %s, which was not shown; nothing was changed. Look at the hooks of the clone",
			terminal.Printable(strings.Join(others, ", ")))
	}
	ch.commit = commit
	return commit, nil
}

// Made reports whether a commit is the one that Commit returned last.
func (ch *Change) Made(commit string) bool { return ch != nil && ch.commit == commit }

var errNoCommit = errors.New("there is no commit to move the branch to")

// Take moves the clone's branch forward to the commit.
func (ch *Change) Take(ctx context.Context) error {
	if ch.commit == "" {
		return errNoCommit
	}
	if _, err := git(ctx, ch.clone.Dir, "merge", "--quiet", "--ff-only", ch.commit); err != nil {
		return fmt.Errorf("moving the branch to the commit: %w", err)
	}
	return nil
}
