package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// uninstall is a run of the command: its flags, and what it has found.
type uninstall struct {
	keep, prune, complete, yes bool
	helmRelease                string // the command is a hook of helm uninstall
	deleteCRDs                 bool   // the hook deletes them, too
	timeout                    time.Duration

	cmd       *cobra.Command
	at        *cli.Connection
	installed installation
	sources   []v1alpha1.GitSource
	held      []string  // Deployments of releases under way: namespace/name
	until     time.Time // when the timeout is over
}

func newUninstall() *cobra.Command {
	u := &uninstall{}
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Delete Tranche from the cluster",
		Long: `Delete Tranche from the cluster: first the GitSources, then the BatchReleases, and at last
the controller, the CustomResourceDefinitions, its rights and policies. The command
lists what it would delete, and asks.

If Helm has installed Tranche, use helm uninstall. It runs this command as a hook, with
--helm-release, and then deletes what the release has installed.

A GitSource with spec.prune: true that is deleted deletes all that it applied. If there is
one, choose: --keep sets spec.prune to false first, and --prune lets it delete.

A release under way goes to 100 % without its gates. The command refuses that unless
--complete allows it. The Deployments stay, as ordinary ones.

The controller has to run until the GitSources and BatchReleases are gone: it removes their
finalizers and hands the Deployments back. If that takes longer than --timeout, the exit
code is 3, and the rest stays. The message names what is left, and why. A second run
continues. Accounts and Secrets that tranche bootstrap has made stay.`,
		Example: `  tranche uninstall --keep
  tranche uninstall --prune --yes`,
		Args: cobra.NoArgs,
	}
	k := cli.AddWholeCluster(c)
	f := c.Flags()
	f.BoolVar(&u.keep, "keep", false, "keep what GitSources with spec.prune: true have applied")
	f.BoolVar(&u.prune, "prune", false, "delete what GitSources with spec.prune: true have applied")
	f.BoolVar(&u.complete, "complete", false, "let releases under way go to 100 % without their gates")
	f.BoolVarP(&u.yes, "yes", "y", false, "do not ask; needed where the input is no terminal")
	f.DurationVar(&u.timeout, "timeout", 5*time.Minute, "how long to wait for the controller, in all")
	f.StringVar(&u.helmRelease, "helm-release", "",
		"for the hook of this Helm release: leave to Helm what it has installed, except for the policies")
	f.BoolVar(&u.deleteCRDs, "delete-crds", false, "with --helm-release: delete the CustomResourceDefinitions, too")
	c.MarkFlagsMutuallyExclusive("keep", "prune")
	c.PreRunE = func(cmd *cobra.Command, _ []string) error { return cli.CanAsk(cmd, u.yes) }
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		switch {
		case u.timeout <= 0:
			return errors.New("--timeout must be above 0")
		case u.deleteCRDs && u.helmRelease == "":
			return errors.New("--delete-crds is for the hook of Helm; without --helm-release the command deletes them anyway")
		}
		u.cmd = cmd
		if u.at, err = k.Connect(); err != nil {
			return err
		}
		return u.run(cmd.Context())
	}
	return c
}

func (u *uninstall) run(ctx context.Context) error {
	if err := u.find(ctx); err != nil {
		return err
	}
	if _, err := io.WriteString(u.cmd.OutOrStdout(), terminal.Printable(u.text())); err != nil {
		return err
	}
	if err := u.refusal(); err != nil {
		return err
	}
	if err := cli.Agree(u.cmd, u.yes, "Delete these?"); err != nil {
		return err
	}
	u.until = time.Now().Add(u.timeout)
	for _, step := range []func(context.Context) error{u.deleteSources, u.deleteReleases, u.stopController, u.deleteInstallation} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rightsWithin is how long the rights of a hook may take to reach all API servers: Helm has
// made them a moment before.
const rightsWithin = 15 * time.Second

// find reads what there is. A cluster without the CustomResourceDefinitions has none.
func (u *uninstall) find(ctx context.Context) error {
	if u.helmRelease == "" {
		return u.findOnce(ctx)
	}
	var last error
	err := wait.PollUntilContextTimeout(ctx, syncPoll, rightsWithin, true, func(context.Context) (bool, error) {
		last = u.findOnce(ctx) // with the time that it takes, as in await
		if apierrors.IsForbidden(last) {
			return false, nil
		}
		return true, last
	})
	if wait.Interrupted(err) && last != nil {
		return last
	}
	return err
}

func (u *uninstall) findOnce(ctx context.Context) error {
	var err error
	if u.installed, err = findInstallation(ctx, u.at); err != nil {
		return err
	}
	if err := u.installed.checkHelm(u.helmRelease); err != nil {
		return err
	}
	sources, err := u.at.Sources(ctx, "")
	if err != nil && !isNoKind(err) {
		return err
	}
	u.sources = sources
	u.held, err = u.at.Held(ctx, "")
	return err
}

// isNoKind reports whether a kind is not, or not any more, in the cluster.
func isNoKind(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

// text says what would be deleted.
func (u *uninstall) text() string {
	var b strings.Builder
	if len(u.sources) > 0 {
		rows := [][]string{{"GITSOURCE", "PRUNE", "OBJECTS", "THEY"}}
		for i := range u.sources {
			gs := &u.sources[i]
			they := "stay"
			if gs.Spec.Prune && !u.keep {
				they = "are deleted"
			}
			rows = append(rows, []string{gs.Namespace + "/" + gs.Name, fmt.Sprint(gs.Spec.Prune), fmt.Sprint(applied(gs)), they})
		}
		b.WriteString(cli.Table(rows) + "\n")
	}
	for _, d := range u.held {
		fmt.Fprintf(&b, "Deployment %s is under release. It goes to 100 %% without its gates.\n", d)
	}
	switch {
	case u.deleteCRDs:
		b.WriteString("Deleted at last: the CustomResourceDefinitions and the policies. Helm deletes the rest.\n")
	case u.helmRelease != "":
		b.WriteString("Deleted at last: the policies. Helm deletes the rest.\n")
	case u.installed.namespace == defaultNamespace:
		b.WriteString("Deleted at last: the namespace tranche-system with the controller, the CustomResourceDefinitions, " +
			"its rights and policies.\n")
	default:
		fmt.Fprintf(&b, "Deleted at last: the controller in namespace %s, the CustomResourceDefinitions, its rights and policies. "+
			"The namespace stays.\n", u.installed.namespace)
	}
	return b.String()
}

// applied is how many objects a source has applied.
func applied(gs *v1alpha1.GitSource) int {
	if gs.Status.Inventory == nil {
		return 0
	}
	return len(gs.Status.Inventory.Entries)
}

// refusal is what a user has to choose first. --yes does not choose it.
func (u *uninstall) refusal() error {
	var pruning []string
	for i := range u.sources {
		if u.sources[i].Spec.Prune {
			pruning = append(pruning, u.sources[i].Namespace+"/"+u.sources[i].Name)
		}
	}
	switch {
	case len(pruning) > 0 && !u.keep && !u.prune:
		return fmt.Errorf("GitSources with spec.prune: true delete what they applied: %s; give --keep to keep it, or --prune to delete it",
			plan.JoinNames(pruning))
	case len(u.held) > 0 && !u.complete:
		return fmt.Errorf("under release: %s; complete the releases or roll them back first, "+
			"or give --complete to let them go to 100 %% without their gates", plan.JoinNames(u.held))
	}
	return nil
}

// deleteSources deletes the GitSources, with or without what they applied.
func (u *uninstall) deleteSources(ctx context.Context) error {
	for i := range u.sources {
		gs := &u.sources[i]
		if gs.Spec.Prune && u.keep {
			patch := client.MergeFrom(gs.DeepCopy())
			gs.Spec.Prune = false
			if err := u.at.Patch(ctx, gs, patch, client.FieldOwner(managerCLI)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("setting spec.prune of GitSource %s/%s to false: %w", gs.Namespace, gs.Name, err)
			}
		}
		if err := u.at.Delete(ctx, gs); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting GitSource %s/%s: %w", gs.Namespace, gs.Name, err)
		}
	}
	err := u.await(ctx, "the GitSources to be gone", u.sourcesLeft)
	if cli.ExitCode(err) != cli.ExitTimeout {
		return err
	}
	return fmt.Errorf("%w. These GitSources are deleted as soon as a controller runs, and releases under way then go to 100 %% without "+
		"their gates. To prevent that, set spec.suspend of each to true: docs/install.md, Taking a removal back", err)
}

// deleteReleases deletes the BatchReleases, and waits until no Deployment is held.
func (u *uninstall) deleteReleases(ctx context.Context) error {
	list, err := u.at.Releases(ctx, "")
	if err != nil && !isNoKind(err) {
		return err
	}
	for i := range list {
		if err := u.at.Delete(ctx, &list[i]); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting BatchRelease %s/%s: %w", list[i].Namespace, list[i].Name, err)
		}
	}
	return u.await(ctx, "the Deployments to be handed back", u.releasesLeft)
}

// await waits until nothing is left. The controller has to do its part.
func (u *uninstall) await(ctx context.Context, what string, list func(context.Context) ([]string, error)) error {
	var left []string
	err := wait.PollUntilContextTimeout(ctx, syncPoll, time.Until(u.until), true, func(context.Context) (bool, error) {
		now, err := list(ctx) // with the time that it takes: a client refuses a request that may not end within its time
		if err == nil || isNoKind(err) {
			left = now
			return len(left) == 0, nil
		}
		return false, err
	})
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; run the command again to continue")
	case wait.Interrupted(err):
		return cli.WithCode(cli.ExitTimeout, fmt.Errorf("waiting for %s: after %s these are left: %s; does the controller run? "+
			"kubectl -n %s logs deploy/tranche-controller; then run the command again",
			what, u.timeout, plan.JoinNames(left), u.installed.namespace))
	}
	return err
}
