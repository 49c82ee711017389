package commit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// planApproval is an approval of the plan of a release's Deployment.
type planApproval struct{ *commitCommand }

// approve commits an approval of what the clone says of the Deployment's plan. It
// is a file of its own, and nothing else is in that file: a signature covers all that
// a commit brings.
func (st planApproval) approve() error {
	if !cli.HasSigners(st.source) {
		return fmt.Errorf("GitSource %s/%s has no spec.approvals.signers, so a change of the plan needs no approval",
			st.source.Namespace, st.source.Name)
	}
	if st.behind != nil {
		return st.behind
	}
	if err := mustSign(st.commitCommand); err != nil {
		return err
	}
	head, err := st.clone.Head(st.cmd.Context())
	if err != nil {
		return err
	}
	then, err := st.terms(head)
	if err != nil {
		return err
	}
	now, err := st.governing()
	if err != nil {
		return err
	}
	if now == then {
		return fmt.Errorf("the clone has the plan that governs %s already; there is nothing to approve", st.deployment())
	}
	st.say("What decides about the releases of %s:\n  now:  %s\n  then: %s\nIt changes: %s\n\n", st.deployment(), now, then,
		strings.Join(now.Changes(then), ", "))
	file, digest := terms.ApprovalPath(&st.source.Spec, st.release.Name), then.Digest()
	change := func(ctx context.Context, ch *clone.Change) (string, error) {
		// The time makes it another file each time, so that this commit brings it.
		note := "Approves the plan as of " + time.Now().UTC().Format(time.RFC3339) + "; changes: " + strings.Join(now.Changes(then), ", ") + "."
		note += " Made on " + ch.On + "."
		text := manifest.PlanApprovalFile(st.release.Namespace, st.release.Name, digest, note)
		return "Approve the plan of " + st.release.Name, ch.Write(ctx, file, string(text))
	}
	st.already = "the branch has an approval of this plan already"
	return st.commit(change, func(commit string) error { return st.check(commit, digest) }, "Tranche-Plan: "+digest)
}

func (st planApproval) deployment() string {
	return "Deployment " + st.release.Namespace + "/" + st.release.Spec.WorkloadRef.Name
}

// terms are those that a commit of the clone has for the release's Deployment.
func (st planApproval) terms(commit string) (plan.Terms, error) {
	set, _, err := st.rendering().Set(commit)
	if err != nil {
		return "", err
	}
	return set.Terms(st.release.Namespace, st.release.Spec.WorkloadRef.Name), nil
}

// governing are the terms that the controller goes by.
func (st planApproval) governing() (plan.Terms, error) {
	name := st.release.Namespace + "/" + st.release.Spec.WorkloadRef.Name
	i := slices.IndexFunc(st.source.Status.Plans, func(p v1alpha1.GoverningPlan) bool { return p.Deployment == name })
	if i < 0 {
		return "", fmt.Errorf("GitSource %s/%s does not say yet which plan governs %s; try again in a moment",
			st.source.Namespace, st.source.Name, st.deployment())
	}
	return plan.Terms(st.source.Status.Plans[i].Terms), nil
}

// check makes sure that a commit has the approval, and still what it approves.
func (st planApproval) check(commit, digest string) error {
	then, err := st.terms(commit)
	if err != nil {
		return err
	}
	_, tree, err := st.rendering().Made(st.cmd.Context(), commit)
	if err != nil {
		return err
	}
	approvals, problems := manifest.ReadApprovals(tree, st.source.Spec.ApprovalsPath(), st.source.DefaultNamespace())
	given := slices.ContainsFunc(approvals, func(a plan.Approval) bool {
		return a.Spec.Plan == digest && a.Metadata.Namespace == st.release.Namespace && a.Metadata.Name == st.release.Name &&
			a.NotAsSigned() == nil
	})
	switch {
	case then.Digest() != digest:
		return errors.New("the approval would change what it approves; nothing was changed")
	case !given && len(problems) > 0:
		return fmt.Errorf("the approval would not count: %w", problems)
	case !given:
		return errors.New("the approval would not count; nothing was changed")
	}
	return nil
}
