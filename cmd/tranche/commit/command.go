package commit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/render"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// commitOptions are the flags of the commands that commit.
type commitOptions struct {
	source  string
	message string
	yes     bool
	push    bool
	sign    bool
	// coverUnverified lets the signature cover commits that spec.verify does not let pass.
	coverUnverified bool

	// dir is a folder of the clone; empty: the current one.
	dir string
	// decide is asked in place of the user, with the change; nil: the user is asked.
	decide func(st *commitCommand, diff string) error
}

func (o *commitOptions) add(c *cobra.Command, k *cli.Cluster) {
	f := c.Flags()
	f.StringVar(&o.source, "source", "", "the GitSource, NAME or NAMESPACE/NAME, whose repository the clone is of; the URLs may differ "+
		"(default: the one that the release comes from)")
	f.StringVarP(&o.message, "message", "m", "", "first line of the commit message")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask; needed where the input is no terminal")
	f.BoolVar(&o.push, "push", false, "push the commit")
	f.BoolVarP(&o.sign, "sign", "S", false, "sign the commit, with the key that git is configured for")
	f.BoolVar(&o.coverUnverified, "cover-unverified", false,
		"sign on top of commits that spec.verify refuses: the signature covers them, and they are applied")
	k.CompleteSources(c)
	c.PreRunE = func(cmd *cobra.Command, _ []string) error { return cli.CanAsk(cmd, o.yes) }
}

// commitCommand is a release, its source, and the clone to commit to.
type commitCommand struct {
	commitOptions
	cmd     *cobra.Command
	at      *cli.Connection
	release *v1alpha1.BatchRelease
	source  *v1alpha1.GitSource
	clone   *clone.Clone
	ahead   int
	behind  *clone.BehindError // what the clone lacks; nil: nothing
	with    map[string]bool    // releases that may go back, too: namespace/name
	already string             // says that a branch has the change: "... is paused already"
	// together collects what commit is asked for, to be committed as one; nil: at once.
	together *[]pieceOfCommit
}

// edit changes the worktree of a commit, and returns its message without trailers.
type edit func(ctx context.Context, ch *clone.Change) (message string, err error)

// newCommand finds the release and its clone, and makes sure that the clone
// stands where the branch does.
func (o *commitOptions) newCommand(cmd *cobra.Command, at *cli.Connection, name string) (*commitCommand, error) {
	ctx := cmd.Context()
	br, err := at.Release(ctx, name)
	if err != nil {
		return nil, err
	}
	st := &commitCommand{commitOptions: *o, cmd: cmd, at: at, release: br}
	if st.source, err = o.find(ctx, at, br); err != nil {
		return nil, err
	}
	here := o.dir
	if here == "" {
		if here, err = os.Getwd(); err != nil {
			return nil, fmt.Errorf("finding the clone: %w", err)
		}
	}
	if o.source != "" {
		st.clone, err = clone.Here(ctx, here)
	} else {
		st.clone, err = clone.Find(ctx, here, st.source.Spec.URL)
	}
	if err != nil {
		return nil, err
	}
	st.ahead, err = st.clone.Ready(ctx, st.source.Spec.Ref.Branch)
	if errors.As(err, &st.behind) { // commit says what the branch has
		err = nil
	}
	return st, err
}

// newCommandOfBranch is newCommand for a change that takes effect on the branch alone: it
// refuses a source that a tag or commit pins.
func (o *commitOptions) newCommandOfBranch(cmd *cobra.Command, at *cli.Connection, name string) (*commitCommand, error) {
	st, err := o.newCommand(cmd, at, name)
	if err == nil && st.source.Spec.Ref.IsPinned() {
		gs := st.source
		return nil, fmt.Errorf("spec.ref of GitSource %s/%s pins %s, so a commit to %s changes nothing in the cluster; change spec.ref "+
			"instead, or use --direct where the command has it",
			gs.Namespace, gs.Name, cli.PinOf(gs.Spec.Ref), gs.Spec.Ref.Branch)
	}
	return st, err
}

// find returns the GitSource that flag or release name.
func (o *commitOptions) find(ctx context.Context, at *cli.Connection, br *v1alpha1.BatchRelease) (*v1alpha1.GitSource, error) {
	if o.source == "" {
		gs, err := at.SourceOf(ctx, br)
		if err == nil && gs == nil {
			err = fmt.Errorf("the GitSource of BatchRelease %s/%s is not known; name it with --source", br.Namespace, br.Name)
		}
		return gs, err
	}
	return at.SourceNamed(ctx, br.Namespace, o.source)
}

// rendering renders commits of the clone, for the release.
func (st *commitCommand) rendering() render.Release {
	return render.Release{BatchRelease: st.release, Source: st.source, Clone: st.clone, With: st.with}
}

// planned returns the release as a set has it. One of the same name for another Deployment
// is not the release: the API server refuses it.
func (st *commitCommand) planned(set *plan.Set) (*plan.Release, error) {
	for i := range set.Releases {
		r := &set.Releases[i]
		if r.Plan.Namespace != st.release.Namespace || r.Plan.Name != st.release.Name {
			continue
		}
		if was, is := st.release.Spec.WorkloadRef.Name, r.Plan.Spec.WorkloadRef.Name; was != is {
			return nil, fmt.Errorf("%s has BatchRelease %s for Deployment %s, and the cluster for Deployment %s; "+
				"a plan never changes its Deployment: put the old name back, or give the new plan another name", r.File, planName(r), is, was)
		}
		return r, nil
	}
	return nil, fmt.Errorf("the branch has no BatchRelease %s/%s below %s", st.release.Namespace, st.release.Name, st.source.Spec.Path)
}

// commit makes a change, shows it, asks, commits and checks it, and only then
// moves the branch. Until then nothing of the clone is touched.
func (st *commitCommand) commit(change edit, check func(commit string) error, trailers ...string) (err error) {
	if st.together != nil {
		*st.together = append(*st.together, pieceOfCommit{change, check, trailers})
		return nil
	}
	ctx := st.cmd.Context()
	if st.behind != nil {
		return movedOn(ctx, st, st.behind, check)
	}
	ch, err := st.clone.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ch.Close()) }()
	message, err := change(ctx, ch)
	if err != nil {
		return err
	}
	diff, err := ch.Diff(ctx)
	if err != nil {
		return err
	}
	switch {
	case diff == "" && st.ahead == 0:
		st.say("The branch says so already; there is nothing to commit.\n")
		return nil
	case diff == "": // as after a push that the server refused
		st.say("The clone says so already; there is nothing to commit. Commits of it that are not pushed: %d.\n", st.ahead)
		if st.push && !st.ask("Push them to "+st.source.Spec.Ref.Branch+"?") {
			return errors.New("not pushed")
		}
		return st.publish(ctx, ch.On, nil, check)
	}
	if err := ch.Clean(ctx); err != nil {
		return err
	}
	if err := st.agree(ctx, diff); err != nil {
		return err
	}
	commit, err := ch.Commit(ctx, st.full(message, trailers), st.sign)
	if err != nil {
		return err
	}
	if err := check(commit); err != nil {
		return err
	}
	return st.publish(ctx, commit, ch, check)
}

// agree shows a change, and what comes with it, and asks for it.
func (st *commitCommand) agree(ctx context.Context, diff string) error {
	out := st.cmd.OutOrStdout()
	if st.decide == nil {
		if _, err := fmt.Fprintln(out, clone.ColourDiff(terminal.StyleOf(out), diff)); err != nil {
			return fmt.Errorf("showing the change: %w", err)
		}
	}
	if problem := cli.ProblemLines([]v1alpha1.GitSource{*st.source}); problem != "" {
		st.say("\nThe branch has a problem already:\n%s", problem)
	}
	if st.push && st.ahead > 0 {
		list, err := st.clone.Git(ctx, "log", "--format=  %h %s", "--max-count=10", "HEAD", "^FETCH_HEAD")
		if err != nil {
			return err
		}
		st.say("\nOther commits of the clone that are pushed with it: %d.\n%s\n", st.ahead, strings.TrimRight(list, "\n"))
	}
	if err := st.agreeToCover(ctx); err != nil {
		return err
	}
	if st.decide != nil {
		return st.decide(st, diff)
	}
	if !st.ask("Commit this to " + st.source.Spec.Ref.Branch + "?") {
		return errors.New("not committed")
	}
	return nil
}

// full is a message with its trailers.
func (st *commitCommand) full(message string, trailers []string) string {
	if st.message != "" {
		_, body, _ := strings.Cut(message, "\n")
		message = st.message + "\n" + body
	}
	trailers = append([]string{"Tranche-Release: " + st.release.Namespace + "/" + st.release.Name}, trailers...)
	return strings.TrimRight(message, "\n") + "\n\n" + strings.Join(trailers, "\n")
}

// say prints what has been done, as a terminal may show it. An error of the output is
// ignored: the command goes on.
func (st *commitCommand) say(format string, args ...any) {
	_, _ = fmt.Fprint(st.cmd.OutOrStdout(), terminal.Printable(fmt.Sprintf(format, args...)))
}

func (st *commitCommand) ask(question string) bool {
	return st.yes || cli.Ask(st.cmd, question)
}
