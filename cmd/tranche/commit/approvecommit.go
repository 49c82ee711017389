package commit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// addApproveCommit gives approve the flag --commit, and its flags their completion.
// With it the command approves all releases of a commit, in one commit.
func addApproveCommit(c *cobra.Command, k *cli.Cluster, o *approveOptions) {
	var commit string
	c.Use = "approve {NAME | --commit SHA}"
	c.Flags().StringVar(&commit, "commit", "",
		"approve each release under way that comes from this commit, in one commit with a file for each")
	c.MarkFlagsMutuallyExclusive("commit", "direct")
	c.MarkFlagsMutuallyExclusive("commit", "plan")
	k.CompleteFlag(c, "step", cli.OfRelease(cli.StepNames))
	k.CompleteFlag(c, "commit", commitNames)
	args, run := c.Args, c.RunE
	c.Args = func(cmd *cobra.Command, names []string) error {
		if !cmd.Flags().Changed("commit") {
			return args(cmd, names)
		}
		if len(names) > 0 {
			return fmt.Errorf("--commit approves all releases of a commit; remove %s, or --commit to approve only that", names[0])
		}
		return cli.CheckCommit(commit)
	}
	c.RunE = func(cmd *cobra.Command, names []string) error {
		if !cmd.Flags().Changed("commit") {
			return run(cmd, names)
		}
		at, err := k.Connect()
		if err != nil {
			return err
		}
		return o.approveCommit(cmd, at, commit)
	}
}

// commitNames are the commits of the releases under way, with their names.
func commitNames(ctx context.Context, at *cli.Connection, _ []string) ([]string, error) {
	list, err := at.Releases(ctx, at.Namespace)
	names := map[string][]string{}
	var commits []string
	for i := range list {
		if br := &list[i]; isUnderWay(br) && br.Spec.Commit != "" {
			if names[br.Spec.Commit] == nil {
				commits = append(commits, br.Spec.Commit)
			}
			names[br.Spec.Commit] = append(names[br.Spec.Commit], br.Name)
		}
	}
	for i, c := range commits {
		commits[i] = cli.Short(c) + "\t" + strings.Join(names[c], ", ")
	}
	return commits, err
}

// isUnderWay reports whether a release may wait at a gate, now or later.
func isUnderWay(br *v1alpha1.BatchRelease) bool {
	s := &br.Status
	return s.Phase != "" && s.Phase != v1alpha1.PhaseCompleted && !s.RollingBack && s.UpdateRevision != ""
}

// approveCommit commits the approvals of all releases of a commit.
func (o *approveOptions) approveCommit(cmd *cobra.Command, at *cli.Connection, commit string) error {
	list, err := o.ofCommit(cmd.Context(), at, commit)
	if err != nil {
		return err
	}
	var all []approving
	for i := range list {
		br := &list[i]
		step, err := o.stepOf(br, cmd.Flags().Changed("step"))
		if err != nil {
			return err
		}
		if all == nil {
			at.Namespace = br.Namespace
			st, err := o.newCommand(cmd, at, br.Name)
			if err != nil {
				return err
			}
			all = append(all, approving{st, step})
			continue
		}
		st := *all[0].commitCommand
		st.release = br
		all = append(all, approving{&st, step})
	}
	return approveAll(all)
}

// ofCommit returns the releases under way that come from a commit. They are of one
// source: one clone can approve no others.
func (o *approveOptions) ofCommit(ctx context.Context, at *cli.Connection, commit string) ([]v1alpha1.BatchRelease, error) {
	list, err := at.Releases(ctx, at.Namespace)
	if err != nil {
		return nil, err
	}
	if o.source != "" {
		gs, err := at.SourceNamed(ctx, at.Namespace, o.source)
		if err != nil {
			return nil, err
		}
		if list, err = at.ReleasesOf(ctx, gs); err != nil {
			return nil, err
		}
	}
	return ofOneSource(slices.DeleteFunc(list, func(br v1alpha1.BatchRelease) bool {
		return !isUnderWay(&br) || !strings.HasPrefix(br.Spec.Commit, commit)
	}), commit, at.Namespace)
}

func ofOneSource(list []v1alpha1.BatchRelease, commit, namespace string) ([]v1alpha1.BatchRelease, error) {
	if len(list) == 0 {
		return nil, fmt.Errorf("no release under way in namespace %s comes from commit %s; see tranche get -o wide, or name another namespace "+
			"with -n", namespace, commit)
	}
	var sources []string
	for i := range list {
		l := list[i].Labels
		if name := l[v1alpha1.LabelSourceNamespace] + "/" + l[v1alpha1.LabelSource]; !slices.Contains(sources, name) {
			sources = append(sources, name)
		}
		if list[i].Spec.Commit != list[0].Spec.Commit {
			return nil, fmt.Errorf("--commit %s: both %s and %s begin with it; write more of it", commit, list[0].Spec.Commit, list[i].Spec.Commit)
		}
	}
	if len(sources) > 1 {
		return nil, fmt.Errorf("the releases of commit %s come from the GitSources %s; name one with --source",
			commit, strings.Join(sources, ", "))
	}
	return list, nil
}

// approving is the approval of a step of a release.
type approving struct {
	*commitCommand
	step int32
}

// pieceOfCommit is a change that is committed together with others.
type pieceOfCommit struct {
	change   edit
	check    func(commit string) error
	trailers []string
}

// approveAll commits the approvals of several releases of one source: a file for each.
func approveAll(all []approving) error {
	var pieces []pieceOfCommit
	var names []string
	for _, a := range all {
		a.together = &pieces
		if err := a.approve(a.step); err != nil {
			return err
		}
		names = append(names, a.release.Name)
	}
	first := all[0].commitCommand
	first.together = nil
	if len(all) > 1 {
		first.already = "the branch has an approval of the releases of " + cli.Short(first.release.Spec.Commit) + " already"
	}
	change := func(ctx context.Context, ch *clone.Change) (message string, err error) {
		for i, p := range pieces {
			if message, err = p.change(ctx, ch); err != nil {
				return "", fmt.Errorf("%s/%s: %w", all[i].release.Namespace, names[i], err)
			}
		}
		if len(pieces) > 1 {
			message = fmt.Sprintf("Approve the %d releases of %s\n\n%s",
				len(pieces), cli.Short(first.release.Spec.Commit), strings.Join(names, ", "))
		}
		return message, nil
	}
	check := func(commit string) error {
		for i, p := range pieces {
			if err := p.check(commit); err != nil {
				return fmt.Errorf("%s/%s: %w", all[i].release.Namespace, names[i], err)
			}
		}
		return nil
	}
	var trailers []string
	for i, p := range pieces {
		if i > 0 { // the first one is named by the commit itself
			trailers = append(trailers, "Tranche-Release: "+all[i].release.Namespace+"/"+names[i])
		}
		trailers = append(trailers, p.trailers...)
	}
	if slices.ContainsFunc(all, func(a approving) bool { return a.step != all[0].step }) {
		// Beside several releases the trailer does not say whose step it is.
		trailers = slices.DeleteFunc(trailers, func(t string) bool { return strings.HasPrefix(t, "Tranche-Step: ") })
	}
	return first.commit(change, check, trailers...)
}
