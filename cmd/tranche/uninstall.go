package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// uninstall is a run of the command: its flags, and what it has found.
type uninstall struct {
	keep, prune, complete, yes bool
	timeout                    time.Duration

	cmd     *cobra.Command
	at      *cli.Connection
	sources []v1alpha1.GitSource
	held    []string // Deployments of releases under way: namespace/name
}

func newUninstall() *cobra.Command {
	u := &uninstall{}
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Delete Tranche from the cluster",
		Long: `Delete Tranche from the cluster: first the GitSources, then the BatchReleases, and at last
the controller, its rights and policies, and the CustomResourceDefinitions. The command
lists what it would delete, and asks.

A GitSource with spec.prune: true that is deleted deletes all that it applied. If there is
one, choose: --keep sets spec.prune to false first, and --prune lets it delete.

A release under way goes to 100 % without its gates. The command refuses that unless
--complete allows it. The Deployments stay, as ordinary ones.

The controller has to run until the GitSources and BatchReleases are gone: it removes their
finalizers and hands the Deployments back. If that takes longer than --timeout, the exit
code is 3, and the rest stays. A second run continues. Accounts and Secrets that
tranche bootstrap has made stay.`,
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
	f.DurationVar(&u.timeout, "timeout", 5*time.Minute, "how long to wait for the controller, in each of the two steps that need it")
	c.MarkFlagsMutuallyExclusive("keep", "prune")
	c.PreRunE = func(cmd *cobra.Command, _ []string) error { return cli.CanAsk(cmd, u.yes) }
	c.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if u.timeout <= 0 {
			return errors.New("--timeout must be above 0")
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
	if _, err := io.WriteString(u.cmd.OutOrStdout(), u.text()); err != nil {
		return err
	}
	if err := u.refusal(); err != nil {
		return err
	}
	if err := cli.Agree(u.cmd, u.yes, "Delete these?"); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{u.deleteSources, u.deleteReleases, u.deleteController} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// find reads what there is. A cluster without the CustomResourceDefinitions has none.
func (u *uninstall) find(ctx context.Context) error {
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
	b.WriteString("Deleted at last: the namespace tranche-system with the controller, its rights and policies, and the " +
		"CustomResourceDefinitions.\n")
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
			strings.Join(pruning, ", "))
	case len(u.held) > 0 && !u.complete:
		return fmt.Errorf("under release: %s; complete the releases or roll them back first, "+
			"or give --complete to let them go to 100 %% without their gates", strings.Join(u.held, ", "))
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
	return u.await(ctx, "the GitSources to be gone", func(ctx context.Context) ([]string, error) {
		var left []string
		list, err := u.at.Sources(ctx, "")
		for i := range list {
			left = append(left, list[i].Namespace+"/"+list[i].Name)
		}
		return left, err
	})
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
	return u.await(ctx, "the Deployments to be handed back", func(ctx context.Context) ([]string, error) {
		left, err := u.at.Held(ctx, "")
		if err != nil {
			return nil, err
		}
		list, err := u.at.Releases(ctx, "")
		for i := range list {
			left = append(left, list[i].Namespace+"/"+list[i].Name)
		}
		return left, err
	})
}

// await waits until nothing is left. The controller has to do its part.
func (u *uninstall) await(ctx context.Context, what string, list func(context.Context) ([]string, error)) error {
	var left []string
	err := wait.PollUntilContextTimeout(ctx, syncPoll, u.timeout, true, func(context.Context) (bool, error) {
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
			"kubectl -n tranche-system logs deploy/tranche-controller; then run the command again", what, u.timeout, strings.Join(left, ", ")))
	}
	return err
}

// deleteController deletes what tranche install prints, in any of its variants, last
// object first.
func (u *uninstall) deleteController(ctx context.Context) error {
	text, err := manifests("", "cluster-admin") // it has all that the others have
	if err != nil {
		return fmt.Errorf("rendering the manifests: %w", err)
	}
	var objects []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("reading the manifests: %w", err)
		}
		objects = append(objects, o)
	}
	deleted := 0
	for _, o := range slices.Backward(objects) {
		err := u.at.Delete(ctx, o)
		if isNoKind(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("deleting %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		deleted++
	}
	_, err = fmt.Fprintf(u.cmd.OutOrStdout(), "Deleted %d GitSources and %d objects of the installation.\n", len(u.sources), deleted)
	return err
}
