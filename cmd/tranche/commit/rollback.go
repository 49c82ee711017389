package commit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/direct"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/refusal"
	"github.com/tranche-dev/tranche/gitsync/revert"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

type rollbackOptions struct {
	commitOptions
	to     string
	with   []string
	direct bool
}

func NewRollback() *cobra.Command {
	var o rollbackOptions
	c := &cobra.Command{
		Use:   "rollback NAME",
		Short: "Roll back a release, as a commit that reverts it",
		Long: `Roll back the release under way or, if there is none, the last one. The command reverts its
commit in the clone of the source's repository in the current folder. It renders the
result. If that has another pod template than before the release, nothing is changed.
Other changes to the same files are kept.

If the commit released other Deployments as well, with or without a plan, those stay: only
lines are reverted that move nothing else. That counts for the other GitSources of the branch, too. If you may not
list them, the command says so. If the same lines released them, the command names them and asks. --yes
does not answer that, --with does. If git has a conflict, the release's own change is
reverted as the controller does it: by lines, in the files that are rendered. If Git has
taken back the last release already, nothing is changed.

With --to it goes back to the release of a revision of ` + "`tranche history`" + `.
With --direct the release under way is rolled back in the cluster, at once, for
when Git is not reachable. The branch must then still be reverted.`,
		Example: `  tranche rollback web -n shop --push
  tranche rollback web --to 58d874c89d --push
  tranche rollback checkout --with catalog --push
  tranche rollback web --direct`,
		Args: cobra.ExactArgs(1),
	}
	k := cli.AddCluster(c)
	o.add(c, k)
	c.Flags().StringVar(&o.to, "to", "", "revision of an earlier release, from tranche history")
	c.Flags().StringSliceVar(&o.with, "with", nil,
		"BatchReleases that may go back, too, where the same lines released them: NAME or NAMESPACE/NAME")
	c.Flags().BoolVar(&o.direct, "direct", false, "ask the cluster instead of Git")
	k.CompleteFlag(c, "to", cli.OfRelease(cli.RevisionNames))
	k.CompleteFlag(c, "with", cli.ReleaseNames)
	c.MarkFlagsMutuallyExclusive("direct", "to")
	c.MarkFlagsMutuallyExclusive("direct", "with")
	c.MarkFlagsMutuallyExclusive("direct", "push")
	c.MarkFlagsMutuallyExclusive("direct", "sign")
	c.ValidArgsFunction = k.CompleteNames
	c.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := k.Connect()
		if err != nil {
			return err
		}
		if o.direct {
			return direct.Rollback(cmd, at, args[0], o.yes)
		}
		st, err := o.newCommandOfBranch(cmd, at, args[0])
		if err != nil {
			return err
		}
		return st.rollback(o.to, o.with)
	}
	return c
}

// wayBack is how the branch goes back: to what a commit rendered, by reverting
// those after it that changed the template, newest first.
type wayBack struct {
	st      *commitCommand
	to      string
	wanted  *corev1.PodTemplateSpec
	reverts []string
	left    []string // files that could not be taken back
	reason  string   // of a rejection; empty: a rollback
}

// rollback commits the way back.
func (st *commitCommand) rollback(to string, with []string) error { return st.goBack(to, with, "") }

// goBack commits the way back to a revision; without one, from the release under way or
// the last one. A reason is that of a rejection.
func (st *commitCommand) goBack(to string, with []string, reason string) error {
	ctx := st.cmd.Context()
	if br := st.release; to == "" && refusal.IsTakenBack(br) {
		st.say("Commit %s has taken back the last release of %s/%s already. To go back further, name a revision of tranche history with --to.\n",
			cli.Short(br.Spec.Commit), br.Namespace, br.Name)
		return nil
	}
	if st.behind != nil {
		return st.behind
	}
	target, err := st.target(ctx, to)
	if err != nil {
		return err
	}
	way, err := st.wayBack(ctx, target)
	if err != nil {
		return err
	}
	way.reason = reason
	st.with = map[string]bool{}
	for _, name := range with {
		if !strings.Contains(name, "/") {
			name = st.release.Namespace + "/" + name
		}
		st.with[name] = true
	}
	if len(way.reverts) == 0 {
		st.say("The branch renders the pod template of %s already; there is nothing to roll back.\n", cli.Short(way.to))
		return nil
	}
	if st.release.Spec.Paused {
		st.say("The plan is paused, and the rollback waits until it is resumed: tranche resume %s\n", st.release.Name)
	}
	st.already = "the branch renders the pod template of " + cli.Short(way.to) + " already"
	check := func(commit string) error {
		set, _, err := st.rendering().Made(st.cmd.Context(), commit)
		if err != nil {
			return fmt.Errorf("what the revert renders: %w; nothing was changed", err)
		}
		r, err := st.planned(set)
		if err != nil {
			return err
		}
		if !plan.EqualTemplate(r.Template, way.wanted) {
			return fmt.Errorf("after the revert the branch would still not render the pod template of %s, since other commits changed it, too%s; "+
				"nothing was changed. Edit the files by hand; git diff %s HEAD shows what changed", cli.Short(way.to), way.butLeft(), cli.Short(way.to))
		}
		return nil
	}
	trailers := st.names()
	if reason != "" {
		trailers = append(trailers, cli.TrailerRejected+": "+reason)
	}
	return st.commit(way.revert, check, trailers...)
}

// target returns the commit whose template is to come back. It is the one before the
// release under way and those that it superseded, or that of a revision.
func (st *commitCommand) target(ctx context.Context, to string) (string, error) {
	br := st.release
	if to != "" {
		for _, h := range br.Status.History {
			if strings.HasPrefix(h.Revision, to) && h.Commit != "" {
				return h.Commit, nil
			}
		}
		return "", fmt.Errorf("--to %s: no release with a commit has that revision; see tranche history %s", to, br.Name)
	}
	commit := br.Spec.Commit
	if commit == "" {
		return "", fmt.Errorf("%s/%s comes from no commit; roll it back with --direct", br.Namespace, br.Name)
	}
	history := br.Status.History
	if len(history) > 0 && history[0].Commit == commit {
		history = history[1:]
	}
	for _, h := range history {
		if h.Outcome != v1alpha1.OutcomeSuperseded || h.Commit == "" {
			break
		}
		commit = h.Commit
	}
	parent, err := st.clone.Git(ctx, "rev-parse", "--verify", commit+"^1")
	if err != nil {
		return "", fmt.Errorf("there is nothing before commit %s in the clone to go back to: %w", cli.Short(commit), err)
	}
	return parent, nil
}

// wayBack finds the commits after the target that changed the template.
func (st *commitCommand) wayBack(ctx context.Context, target string) (*wayBack, error) {
	way := &wayBack{st: st, to: target}
	list, err := st.clone.Git(ctx, "rev-list", "--first-parent", "--reverse", target+"..HEAD")
	if err != nil {
		return nil, err
	}
	template, err := st.template(target)
	if err != nil {
		return nil, fmt.Errorf("rendering commit %s, which is to come back: %w", cli.Short(target), err)
	}
	way.wanted = template
	for _, commit := range strings.Fields(list) {
		now, err := st.template(commit)
		if err != nil {
			continue // refused by the controller as well, and never released
		}
		if !plan.EqualTemplate(now, template) {
			way.reverts = append(way.reverts, commit)
		}
		template = now
	}
	if plan.EqualTemplate(template, way.wanted) {
		way.reverts = nil
	}
	slices.Reverse(way.reverts)
	return way, nil
}

// template is what a commit renders for the release.
func (st *commitCommand) template(commit string) (*corev1.PodTemplateSpec, error) {
	set, _, err := st.rendering().Set(commit)
	if err != nil {
		return nil, err
	}
	r, err := st.planned(set)
	if err != nil {
		return nil, err
	}
	return r.Template, nil
}

// revert takes the commits back in a worktree, with the message that git gives a revert.
// If git has a conflict, it does so as the controller does: in the files that are
// rendered, and by lines.
func (w *wayBack) revert(ctx context.Context, ch *clone.Change) (string, error) {
	err := w.gitRevert(ctx, ch)
	if err == nil {
		return w.revertAlone(ctx, ch, "This reverts commit %s.")
	}
	if _, cannot := ch.Git(ctx, "reset", "--quiet", "--hard", "HEAD"); cannot != nil {
		return "", errors.Join(err, cannot)
	}
	if w.left, err = w.takeBack(ctx, ch); err != nil {
		return "", err
	}
	w.st.say("git revert has a conflict. Only what is rendered is taken back, by lines%s.\n\n", w.butLeft())
	return w.revertAlone(ctx, ch, "This reverts commit %s, but only in\nwhat is rendered.")
}

// revertAlone leaves other releases where they are, as far as the files allow it, and
// returns the message.
func (w *wayBack) revertAlone(ctx context.Context, ch *clone.Change, line string) (string, error) {
	spared, err := w.st.narrow(ctx, ch, w.wanted)
	if err != nil {
		return "", err
	}
	if len(spared) > 0 {
		line = "This reverts commit %s, but only in\nwhat released " + w.st.release.Namespace + "/" + w.st.release.Name + "."
	}
	for _, m := range spared {
		w.st.say("%s was released by the same change, and stays (%s would be the way back).\n", m, m.how)
	}
	return w.message(ctx, ch, line)
}

// gitRevert reverts the commits, newest first.
func (w *wayBack) gitRevert(ctx context.Context, ch *clone.Change) error {
	for _, commit := range w.reverts {
		args := []string{"revert", "--no-commit"}
		parents, err := ch.Git(ctx, "rev-list", "--parents", "-n1", commit)
		if err != nil {
			return err
		}
		if len(strings.Fields(parents)) > 2 {
			args = append(args, "--mainline", "1")
		}
		if _, err := ch.Git(ctx, append(args, commit)...); err != nil {
			return fmt.Errorf("reverting %s: %w", cli.Short(commit), err)
		}
	}
	return nil
}

// takeBack takes back what the commits changed of what is rendered, and
// returns the files of which it cannot.
func (w *wayBack) takeBack(ctx context.Context, ch *clone.Change) (left []string, err error) {
	objects, err := w.st.clone.Objects()
	if err != nil {
		return nil, err
	}
	head, err := w.st.clone.Head(ctx)
	if err != nil {
		return nil, err
	}
	commits := make([]plumbing.Hash, len(w.reverts))
	for i, c := range w.reverts {
		commits[i] = plumbing.NewHash(c)
	}
	changes, left, err := revert.TakeBack(objects, w.st.source, plumbing.NewHash(head), commits)
	if err != nil {
		return nil, fmt.Errorf("taking back %s: %w", cli.Short(w.reverts[0]), err)
	}
	if len(changes) == 0 {
		return nil, fmt.Errorf("later commits changed the lines that %s brought, in %s; nothing was changed. git revert %s, and solve the "+
			"conflict by hand", cli.Short(w.reverts[0]), strings.Join(left, ", "), cli.Short(w.reverts[0]))
	}
	for _, file := range slices.Sorted(maps.Keys(changes)) {
		if err := ch.Put(ctx, file, changes[file]); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// butLeft tells of files that could not be taken back.
func (w *wayBack) butLeft() string {
	if len(w.left) == 0 {
		return ""
	}
	return "; as they are stay " + strings.Join(w.left, ", ") + ", of which later commits changed the same lines"
}

// message is the message of the commit, with a line for each that it reverts.
func (w *wayBack) message(ctx context.Context, ch *clone.Change, line string) (string, error) {
	var subjects, lines []string
	for _, commit := range w.reverts {
		subject, err := ch.Git(ctx, "log", "-1", "--format=%s", commit)
		if err != nil {
			return "", err
		}
		subjects = append(subjects, subject)
		lines = append(lines, fmt.Sprintf(line, commit))
	}
	message := fmt.Sprintf("Revert %q", subjects[0])
	if more := len(subjects) - 1; more > 0 {
		message = fmt.Sprintf("Revert %q and %d more", subjects[0], more)
	}
	if w.reason != "" {
		message = "Reject" + strings.TrimPrefix(message, "Revert") + "\n\nRejected: " + w.reason
	}
	return message + "\n\n" + strings.Join(lines, "\n"), nil
}
