package clone

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// unfinished are the commands of git that stop in the middle and wait for a person. Each leaves a
// file until it ends. One that uses the file of another comes first.
var unfinished = []struct{ file, name, goOn, end string }{
	{"rebase-merge", "a rebase", "git rebase --continue", "git rebase --abort"},
	{"rebase-apply/applying", "git am", "git am --continue", "git am --abort"},
	{"rebase-apply", "a rebase", "git rebase --continue", "git rebase --abort"},
	{"MERGE_HEAD", "a merge", "git merge --continue", "git merge --abort"},
	{"CHERRY_PICK_HEAD", "a cherry-pick", "git cherry-pick --continue", "git cherry-pick --abort"},
	{"REVERT_HEAD", "a revert", "git revert --continue", "git revert --abort"},
	{"BISECT_LOG", "a bisection", "", "git bisect reset"},
}

// idle refuses a clone in which a command of git has stopped in the middle. A commit in it would
// end that command, or be a part of it.
func (c *Clone) idle(ctx context.Context) error {
	args := []string{"rev-parse"}
	for _, u := range unfinished {
		args = append(args, "--git-path", u.file)
	}
	paths, err := git(ctx, c.Dir, args...)
	if err != nil {
		return err
	}
	for i, at := range strings.Split(paths, "\n") {
		if !filepath.IsAbs(at) {
			at = filepath.Join(c.Dir, at)
		}
		if _, err := os.Stat(at); errors.Is(err, os.ErrNotExist) {
			continue
		}
		u, ways := unfinished[i], ""
		if u.goOn != "" {
			ways = u.goOn + " or "
		}
		return fmt.Errorf("%s is under way in the clone; %s%s, and try again", u.name, ways, u.end)
	}
	return nil
}
