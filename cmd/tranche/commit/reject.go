package commit

import (
	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/refusal"
)

func NewReject() *cobra.Command {
	var o commitOptions
	var reason string
	var with []string
	c := &cobra.Command{
		Use:   "reject NAME --reason TEXT",
		Short: "Close the release under way at its gate, as a commit that reverts it",
		Long: `Close the release under way: revert its commit, with a reason. The commit is made in the
clone of the source's repository in the current folder, as by tranche rollback. The
controller then rolls back to the stable revision at once. The reason is part of the commit (trailer
Tranche-Rejected), of tranche history, of the release's Git note and of the notification
of the rollback. The result is rendered and checked before the commit is made, and other
Deployments that the same commit released stay.`,
		Example: `  tranche reject web --reason "5 % of the requests fail" --push`,
		Args:    cobra.ExactArgs(1),
	}
	k := cli.AddCluster(c)
	o.add(c, k)
	c.Flags().StringVar(&reason, "reason", "", "why; required")
	c.Flags().StringSliceVar(&with, "with", nil,
		"BatchReleases that may go back, too, where the same lines released them: NAME or NAMESPACE/NAME")
	k.CompleteFlag(c, "with", cli.ReleaseNames)
	c.ValidArgsFunction = k.CompleteNames
	var why string
	asks := c.PreRunE
	c.PreRunE = func(cmd *cobra.Command, args []string) (err error) {
		if why, err = refusal.Reason(reason); err != nil {
			return err
		}
		return asks(cmd, args)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := k.Connect()
		if err != nil {
			return err
		}
		st, err := o.newCommandOfBranch(cmd, at, args[0])
		if err != nil {
			return err
		}
		return st.reject(why, with)
	}
	return c
}

// reject commits the way back from the release under way, with the reason.
func (st *commitCommand) reject(reason string, with []string) error {
	if err := refusal.Reject(st.release); err != nil {
		return err
	}
	return st.goBack("", with, reason)
}
