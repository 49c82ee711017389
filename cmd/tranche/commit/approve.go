package commit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/direct"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/refusal"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/signed"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

type approveOptions struct {
	commitOptions
	step   int32
	all    bool
	direct bool
	plan   bool
}

func NewApprove() *cobra.Command {
	var o approveOptions
	c := &cobra.Command{
		Use:   "approve NAME",
		Short: "Approve a step of the release under way, or a change of the plan, as a commit",
		Long: `Approve a step of the release under way: commit a BatchApproval to the clone of
the source's repository in the current folder. The change is shown first. A clone on
another branch, behind its remote, or with changes of its own in the same file is
refused, and nothing is changed. The first line of the file says which steps the
approval is for. After an edit of the plan, approve again: the command changes
that line, and the new commit brings the approval.

If the source lists signers, the approval has a file of its own, which is shown whole.
A file with anything else in it is refused, since a signature would cover that, too. An
approval in another file that no signer has signed is ignored, as by the controller.

With --plan the command approves the change of the plan that the clone has, and no
release. It shows what governs the Deployment now and what would, and commits a file of
its own with the digest. A source that lists signers needs that.

With --direct the approval is written to the cluster instead, for when Git is not
reachable. It opens the gate of the present step only. It is refused where only signed
approvals count, and where approvals are reviewed.`,
		Example: `  tranche approve web -n shop --push
  tranche approve web --step 2 --push --sign    # steps up to 2 may go on
  tranche approve web --all --push --yes
  tranche approve web --plan --push --sign      # the plan, as the branch has it
  tranche approve web --direct`,
		Args: cobra.ExactArgs(1),
	}
	k := cli.AddCluster(c)
	o.add(c, k)
	f := c.Flags()
	f.Int32Var(&o.step, "step", 0, "approve the steps up to this one, from 0 (default: the present one)")
	f.BoolVar(&o.all, "all", false, "approve all steps")
	f.BoolVar(&o.direct, "direct", false, "write to the cluster instead of Git")
	f.BoolVar(&o.plan, "plan", false, "approve a change of the plan")
	c.MarkFlagsMutuallyExclusive("plan", "step")
	c.MarkFlagsMutuallyExclusive("plan", "all")
	c.MarkFlagsMutuallyExclusive("plan", "direct")
	c.MarkFlagsMutuallyExclusive("step", "all")
	c.MarkFlagsMutuallyExclusive("direct", "all")
	c.MarkFlagsMutuallyExclusive("direct", "push")
	c.MarkFlagsMutuallyExclusive("direct", "sign")
	c.ValidArgsFunction = k.CompleteNames
	c.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd, k, args[0]) }
	addApproveCommit(c, k, &o)
	return c
}

// run approves a step of one release, or a change of its plan.
func (o *approveOptions) run(cmd *cobra.Command, k *cli.Cluster, name string) error {
	at, err := k.Connect()
	if err != nil {
		return err
	}
	br, err := at.Release(cmd.Context(), name)
	if err != nil {
		return err
	}
	if o.plan {
		st, err := o.newCommand(cmd, at, br.Name)
		if err != nil {
			return err
		}
		return planApproval{st}.approve()
	}
	step, err := o.stepOf(br, cmd.Flags().Changed("step"))
	if err != nil {
		return err
	}
	if o.direct {
		return direct.Approve(cmd, at, br, step, o.yes)
	}
	st, err := o.newCommand(cmd, at, br.Name)
	if err != nil {
		return err
	}
	return st.approve(step)
}

// stepOf is the step to approve, checked against the release under way.
func (o *approveOptions) stepOf(br *v1alpha1.BatchRelease, given bool) (int32, error) {
	return refusal.Step{Index: o.step, Given: given, All: o.all, Direct: o.direct}.Of(br)
}

// approve commits the approval of a step.
func (st *commitCommand) approve(step int32) error {
	br := st.release
	if err := errors.Join(hasGates(br, st.source), mustSign(st)); err != nil {
		return err
	}
	st.already = fmt.Sprintf("the branch has an approval of step %d of %s/%s already", step, br.Namespace, br.Name)
	judge := &signed.Approvals{Release: br, Source: st.source, Clone: st.clone, Client: st.at, Say: st.say}
	change := func(ctx context.Context, ch *clone.Change) (string, error) {
		judge.Own = ch
		file, r, err := st.approvalPlace(ctx, judge)
		if err != nil {
			return "", err
		}
		governs := st.governing(r.Plan)
		if err := otherSteps(br, governs, step); err != nil {
			return "", err
		}
		text, err := ch.Read(ctx, file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		others := text // that stay
		if cli.HasSigners(st.source) {
			others = ""
		}
		a := v1alpha1.BatchApproval{Spec: v1alpha1.BatchApprovalSpec{Revision: br.Status.UpdateRevision, Commit: br.Spec.Commit, Step: step}}
		a.Metadata.Namespace, a.Metadata.Name = br.Namespace, br.Name
		put := func(note string) (string, error) {
			content, err := manifest.PutApproval(file, []byte(others), a, note, st.source.DefaultNamespace())
			return string(content), err
		}
		content, err := put(cli.ApprovedFor(governs))
		switch {
		case err != nil || !cli.HasSigners(st.source):
		case !unsigned(br, a.Spec) && madeOn.ReplaceAllString(text, "") == content:
			content = text
		default: // so no other person can have written it, and git cannot have made it of other files
			content, err = put(cli.ApprovedFor(governs) + " Made on " + ch.On + ".")
		}
		if err != nil {
			return "", err
		}
		if cli.HasSigners(st.source) && content != text {
			st.say("%s will be, as a whole:\n\n%s\n", file, content)
		}
		return fmt.Sprintf("Approve step %d of %s", step, br.Name), ch.Write(ctx, file, content)
	}
	check := func(commit string) error { return st.checkApproval(commit, step, judge) }
	return st.commit(change, check, append(st.names(), fmt.Sprintf("Tranche-Step: %d", step))...)
}

// hasGates refuses a release of which an approval in Git opens no gate.
func hasGates(br *v1alpha1.BatchRelease, gs *v1alpha1.GitSource) error {
	if br.Spec.Commit == "" {
		return fmt.Errorf("%s/%s comes from no commit; approve it with --direct", br.Namespace, br.Name)
	}
	if gs.Status.HasEnded(br.Namespace+"/"+br.Spec.WorkloadRef.Name, br.Spec.Commit) {
		return fmt.Errorf("the release of commit %s has ended before, and no approval in Git counts for it; bring the change of %s/%s by a new "+
			"commit", cli.Short(br.Spec.Commit), br.Namespace, br.Name)
	}
	return nil
}

// mustSign refuses to push an approval without a signature, if only signed ones count.
func mustSign(st *commitCommand) error {
	if !st.push || st.sign || !cli.HasSigners(st.source) {
		return nil
	}
	always, err := st.clone.Git(st.cmd.Context(), "config", "--type=bool", "--default=false", "commit.gpgsign")
	if err == nil && strings.TrimSpace(always) != "true" {
		err = fmt.Errorf("GitSource %s/%s takes only signed approvals; give --sign as well", st.source.Namespace, st.source.Name)
	}
	return err
}

// governing returns the plan that an approval is for: that of the branch, which may be ahead
// of a commit that is pinned.
func (st *commitCommand) governing(branch *v1alpha1.BatchRelease) *v1alpha1.BatchRelease {
	if st.source.Spec.Ref.IsPinned() {
		return st.release
	}
	return branch
}

// madeOn is what the note of a signed approval has of its commit. It was a time before.
var madeOn = regexp.MustCompile(` (Made on [0-9a-f]{40,64}|Given (again )?on [0-9TZ:-]+)\.`)

// unsigned reports whether only signed approvals count for a release, and the
// controller has taken none as good that says the same.
func unsigned(br *v1alpha1.BatchRelease, s v1alpha1.BatchApprovalSpec) bool {
	a := br.Spec.Approval
	return br.Spec.RequireSignedApprovals && (a == nil || a.Revision != s.Revision || a.Commit != s.Commit || a.Step != s.Step)
}

// otherSteps refuses an approval that would not count. The branch then has a change of
// the steps that no signer has approved, and the plan in the cluster is another.
func otherSteps(br, branch *v1alpha1.BatchRelease, step int32) error {
	if !br.Spec.RequireSignedApprovals || plan.ChangedStep(plan.StepReplicas(branch.Spec.Strategy.Steps), step, br.Spec.Strategy.Steps) < 0 {
		return nil
	}
	return fmt.Errorf("the branch has the steps %s, and those that govern %s/%s are %s, so the approval would not count; approve the plan "+
		"first (tranche approve %s --plan), or put the old one back",
		cli.StepsText(branch), br.Namespace, br.Name, cli.StepsText(br), br.Name)
}

// names are the trailers that name the release under way.
func (st *commitCommand) names() []string {
	return []string{"Tranche-Revision: " + st.release.Status.UpdateRevision, "Tranche-Commit: " + st.release.Spec.Commit}
}

// approvalPlace returns the file of the release's approval and the release as the
// clone has it. The file is the one that is there, else one of the release's name. If the
// source lists signers, a file of another user elsewhere is not the one that is there.
func (st *commitCommand) approvalPlace(ctx context.Context, judge *signed.Approvals) (string, *plan.Release, error) {
	head, err := st.clone.Head(ctx)
	if err != nil {
		return "", nil, err
	}
	set, tree, err := st.rendering().Set(head)
	if err != nil {
		return "", nil, err
	}
	r, err := st.planned(set)
	if err != nil {
		return "", nil, err
	}
	all, _ := manifest.ReadApprovals(tree, st.source.Spec.ApprovalsPath(), st.source.DefaultNamespace())
	approvals := slices.DeleteFunc(all, func(a plan.Approval) bool {
		return !a.ForRelease() || a.Metadata.Namespace != st.release.Namespace || a.Metadata.Name != st.release.Name
	})
	own, taken := signed.OwnPlace(tree, st.source.Spec.ApprovalsPath(), st.release, approvals)
	file := own
	if cli.HasSigners(st.source) {
		file, err = judge.Place(ctx, head, own, approvals)
	} else if len(approvals) > 0 {
		file = approvals[0].File
	}
	if err == nil && file == "" {
		err = fmt.Errorf("%s is there and no approval of %s/%s; remove it", taken, st.release.Namespace, st.release.Name)
	}
	return file, r, errors.Join(err, tree.Err())
}

// checkApproval makes sure that a commit approves the step, as the controller
// will read it.
func (st *commitCommand) checkApproval(commit string, step int32, judge *signed.Approvals) error {
	set, tree, err := st.rendering().Made(st.cmd.Context(), commit)
	if err != nil {
		return err
	}
	r, err := st.planned(set)
	if err != nil {
		return err
	}
	approvals, _ := manifest.ReadApprovals(tree, st.source.Spec.ApprovalsPath(), st.source.DefaultNamespace())
	var problems plan.Problems
	if cli.HasSigners(st.source) {
		if approvals, problems, err = judge.Counted(st.cmd.Context(), commit, approvals); err != nil {
			return err
		}
	}
	a, more := plan.MatchApproval(r, st.release.Spec.Commit, approvals)
	if a != nil && a.Spec.Step == step && a.Spec.Revision == st.release.Status.UpdateRevision {
		return nil
	}
	if problems = append(problems, more...); len(problems) > 0 {
		return fmt.Errorf("the approval would not count: %w", problems)
	}
	return errors.New("the approval would not count; nothing was changed")
}
