package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func newSync() *cobra.Command {
	var timeout time.Duration
	c := &cobra.Command{
		Use:   "sync SOURCE",
		Short: "Ask for a sync of a GitSource, and wait for its outcome",
		Long: `Ask the controller to fetch the branch of a GitSource and to apply its tip now, by the
annotation tranche.dev/reconcile, and wait for the outcome. SOURCE is NAME or
NAMESPACE/NAME. The right to patch the GitSource is needed.

The exit code is 0 when the tip of the branch is applied, and 2 when it is refused or cannot
be fetched. It is 3 when there is no outcome within --timeout.`,
		Example: `  tranche sync shop -n shop
  tranche sync shop/shop --timeout 0    # ask, and do not wait`,
		Args: cobra.ExactArgs(1),
	}
	k := cli.AddCluster(c)
	c.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait for the outcome; 0: not at all")
	c.ValidArgsFunction = k.Complete(func(ctx context.Context, at *cli.Connection, args []string) ([]string, error) {
		if len(args) > 0 {
			return nil, nil
		}
		return cli.SourceNames(ctx, at, args)
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if timeout < 0 {
			return errors.New("--timeout must not be negative")
		}
		at, err := k.Connect()
		if err != nil {
			return err
		}
		gs, err := at.SourceNamed(cmd.Context(), at.Namespace, args[0])
		if err != nil {
			return err
		}
		asked := time.Now().UTC().Format(time.RFC3339Nano)
		if err := askForSync(cmd.Context(), at, gs, asked); err != nil {
			return err
		}
		name := gs.Namespace + "/" + gs.Name
		if timeout == 0 {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "Asked for a sync of GitSource %s.\n", name)
			return err
		}
		said, err := awaitSync(cmd.Context(), at, client.ObjectKeyFromObject(gs), asked, timeout)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "GitSource %s: %s\n", name, terminal.Printable(said))
		return err
	}
	return c
}

// askForSync sets the annotation that asks for a sync.
func askForSync(ctx context.Context, at *cli.Connection, gs *v1alpha1.GitSource, asked string) error {
	name := gs.Namespace + "/" + gs.Name
	switch {
	case gs.Spec.Suspend:
		return fmt.Errorf("GitSource %s is suspended, so nothing is synced; set spec.suspend to false", name)
	case gs.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled:
		return fmt.Errorf("GitSource %s has the annotation %s: %s; remove it, then ask again",
			name, v1alpha1.AnnotationReconcile, v1alpha1.AnnotationReconcileDisabled)
	}
	patch := client.MergeFrom(gs.DeepCopy())
	if gs.Annotations == nil {
		gs.Annotations = map[string]string{}
	}
	gs.Annotations[v1alpha1.AnnotationReconcile] = asked
	if err := at.Patch(ctx, gs, patch, client.FieldOwner(managerCLI)); err != nil {
		return fmt.Errorf("asking for a sync of GitSource %s: %w", name, err)
	}
	return nil
}

// managerCLI is the field manager of what the commands write.
const managerCLI = "tranche-cli"

// syncPoll is the time between two reads of the source that is waited for.
const syncPoll = 250 * time.Millisecond

// awaitSync waits until the sync that was asked for has an outcome, and returns that.
func awaitSync(ctx context.Context, at *cli.Connection, key client.ObjectKey, asked string, timeout time.Duration) (string, error) {
	said := ""
	err := wait.PollUntilContextTimeout(ctx, syncPoll, timeout, true, func(ctx context.Context) (bool, error) {
		var gs v1alpha1.GitSource
		if err := at.Get(ctx, key, &gs); err != nil {
			if ctx.Err() != nil {
				return false, nil
			}
			return false, fmt.Errorf("reading GitSource %s: %w", key, err)
		}
		var over bool
		var err error
		said, over, err = syncOutcome(&gs, asked)
		return over, err
	})
	switch {
	case ctx.Err() != nil:
		return said, errors.New("interrupted")
	case wait.Interrupted(err):
		return said, cli.WithCode(cli.ExitTimeout, fmt.Errorf("GitSource %s: no outcome after %s: %s", key, timeout, said))
	}
	return said, err
}

// syncOutcome returns what a source says of the sync that was asked for, and whether that
// is its outcome. A sync that waits for another source, or for pods, has none yet.
func syncOutcome(gs *v1alpha1.GitSource, asked string) (said string, over bool, err error) {
	name := gs.Namespace + "/" + gs.Name
	if gs.Status.LastHandledReconcileAt != asked || gs.Status.ObservedGeneration != gs.Generation {
		return "the controller has not synced it yet; kubectl -n tranche-system logs deploy/tranche-controller", false, nil
	}
	ready := cli.ReadyOf(gs)
	said = ready.Reason + ": " + ready.Message
	failed := cli.WithCode(cli.ExitFailed, fmt.Errorf("GitSource %s: %s", name, said))
	switch {
	case ready.Status == metav1.ConditionTrue:
		return said, true, nil
	case meta.IsStatusConditionTrue(gs.Status.Conditions, "Stalled"):
		return said, true, failed
	case ready.Status == metav1.ConditionFalse:
		again := meta.FindStatusCondition(gs.Status.Conditions, "Reconciling")
		if again == nil || again.Status != metav1.ConditionTrue || again.Reason == "Progressing" {
			return said, true, failed // another try is of another sync
		}
	}
	return said, false, nil
}
