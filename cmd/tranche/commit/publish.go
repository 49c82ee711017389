package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
)

// publish moves the clone's branch to the commit of a change, and pushes it or says how. Without a
// change the clone has the commit already. The push comes first: a commit that the server cannot
// take, since its branch has moved on, is not left in the clone.
func (st *commitCommand) publish(ctx context.Context, commit string, ch *clone.Change, check func(string) error) error {
	branch, remote := st.source.Spec.Ref.Branch, st.clone.Remote
	var failed error
	if st.push {
		failed = st.clone.Push(ctx, commit, branch)
	}
	if behind := (*clone.BehindError)(nil); errors.As(failed, &behind) {
		left := ""
		if ch != nil {
			left = ", and nothing of this is left in the clone"
		}
		return fmt.Errorf("%s of %s has moved on meanwhile%s: %w", branch, remote, left, movedOn(ctx, st, behind, check))
	}
	if ch != nil {
		switch err := ch.Take(context.WithoutCancel(ctx)); { // what is pushed is not left half taken
		case err != nil && st.push && failed == nil:
			return fmt.Errorf("commit %s is pushed to %s of %s, and the clone is behind it: %w; git pull --rebase %s %s",
				cli.Short(commit), branch, remote, err, remote, branch)
		case err != nil:
			return errors.Join(failed, err)
		}
		st.say("Committed %s.\n", cli.Short(commit))
	}
	switch {
	case failed != nil && ch != nil:
		return fmt.Errorf("%w; the commit is in the clone alone: git push %s HEAD:%s once the cause is gone, or git reset --keep %s to take "+
			"it back", failed, remote, branch, cli.Short(ch.On))
	case failed != nil:
		return failed
	case !st.push:
		st.say("To let it count: git push %s HEAD:%s\n", remote, branch)
	default:
		st.say("Pushed to %s of %s.\n", branch, remote)
	}
	return nil
}

// searched is how many commits are searched for the one that brought a change: each is rendered.
const searched = 20

// movedOn is the error of a clone that lacks commits of the branch. If one of them brought what
// was to be committed, as after two approvals at the same time, it says so and by whom.
func movedOn(ctx context.Context, st *commitCommand, behind *clone.BehindError, check func(string) error) error {
	if check(behind.Tip) != nil {
		return behind
	}
	return fmt.Errorf("%s%s. The clone lacks %s", st.already, broughtBy(ctx, st.clone, behind.Tip, check), behind.Lacks())
}

// broughtBy names the author of the first commit after that of the clone which a check accepts. It is
// empty if that is not known, or if the check accepts the clone's commit, too.
func broughtBy(ctx context.Context, in *clone.Clone, tip string, check func(string) error) string {
	head, err := in.Git(ctx, "rev-parse", "HEAD")
	if err != nil || check(strings.TrimSpace(head)) == nil {
		return ""
	}
	commits, err := in.Git(ctx, "rev-list", "--first-parent", "--reverse", "HEAD.."+tip)
	all := strings.Fields(commits)
	if err != nil || len(all) > searched {
		return ""
	}
	i := slices.IndexFunc(all, func(c string) bool { return check(c) == nil })
	if i < 0 {
		return ""
	}
	said, err := in.Git(ctx, "show", "--no-patch", "--format=%an <%ae>", all[i])
	if err != nil {
		return ""
	}
	return ", by " + gitobject.Printable(said) + " in commit " + cli.Short(all[i])
}
