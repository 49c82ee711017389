package commit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/kustomizations"
	"github.com/tranche-dev/tranche/cmd/tranche/planfile"
	"github.com/tranche-dev/tranche/cmd/tranche/yamlnode"
	"github.com/tranche-dev/tranche/plan"
)

func NewPause() *cobra.Command {
	return pauseCommand(true, "pause NAME", "Freeze a release where it stands, as a commit",
		`Freeze a release where it stands: commit spec.paused: true to the plan, in the
clone of the source's repository in the current folder. No step begins and no gate
opens until it is resumed. Comments and formatting of the file stay.

If the plan's file governs more, such as a base that several overlays take, the
command names it and asks. --overlay pauses the release of this source alone, by a
patch in the kustomization of its path; --base edits the file, for all of them. If another
source has that kustomization, too, --overlay is refused.`)
}

func NewResume() *cobra.Command {
	return pauseCommand(false, "resume NAME", "Let a paused release go on, as a commit",
		`Let a paused release go on: commit spec.paused: false to the plan, in the clone of
the source's repository in the current folder. Comments and formatting of the file stay.
A patch that tranche pause --overlay added is removed. If the plan's file governs
more, --overlay and --base are as for tranche pause.

The pause of a step runs on while the plan is paused. If it has elapsed, the gate opens
as soon as the plan is resumed: tranche status says so.`)
}

// pauseOptions say where spec.paused is written.
type pauseOptions struct {
	commitOptions
	overlay, base bool
}

func pauseCommand(paused bool, use, short, long string) *cobra.Command {
	var o pauseOptions
	verb, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{Use: use, Short: short, Long: long, Example: "  tranche " + verb + " web -n shop --push", Args: cobra.ExactArgs(1)}
	k := cli.AddCluster(c)
	o.add(c, k)
	c.Flags().BoolVar(&o.overlay, "overlay", false, "write a patch into the kustomization of the source's path")
	c.Flags().BoolVar(&o.base, "base", false, "edit the plan's file, whatever else it governs")
	c.MarkFlagsMutuallyExclusive("overlay", "base")
	c.ValidArgsFunction = k.CompleteNames
	c.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := k.Connect()
		if err != nil {
			return err
		}
		st, err := o.newCommandOfBranch(cmd, at, args[0])
		if err != nil {
			return err
		}
		return st.pause(paused, o.overlay, o.base)
	}
	return c
}

// pausing is a change of spec.paused.
type pausing struct {
	*commitCommand
	paused, overlay, base bool

	head    *plan.Set
	planned *plan.Release
}

// pause commits spec.paused of the plan.
func (st *commitCommand) pause(paused, overlay, base bool) error {
	st.already = fmt.Sprintf("spec.paused of %s/%s is %t already", st.release.Namespace, st.release.Name, paused)
	p := &pausing{commitCommand: st, paused: paused, overlay: overlay, base: base}
	check := func(commit string) error {
		set, _, err := st.rendering().Made(st.cmd.Context(), commit)
		if err != nil {
			return err
		}
		r, err := st.planned(set)
		if err != nil {
			return err
		}
		if r.Plan.Spec.Paused != paused {
			return fmt.Errorf("the plan would still have spec.paused: %t, since something else than %s sets it; nothing was changed",
				r.Plan.Spec.Paused, r.File)
		}
		return nil
	}
	return st.commit(p.change, check)
}

// change writes spec.paused to where it governs no more than was asked for.
func (p *pausing) change(ctx context.Context, ch *clone.Change) (string, error) {
	subject := "Resume " + p.release.Name
	if p.paused {
		subject = "Pause " + p.release.Name
	}
	head, err := p.clone.Head(ctx)
	if err != nil {
		return "", err
	}
	if p.head, _, err = p.rendering().Set(head); err != nil {
		return "", err
	}
	if p.planned, err = p.commitCommand.planned(p.head); err != nil || p.planned.Plan.Spec.Paused == p.paused {
		return subject, err
	}
	k, err := kustomizations.Read(ctx, ch)
	if err != nil {
		return "", err
	}
	if done, err := p.drop(ctx, ch, k); done || err != nil {
		return subject, err
	}
	if p.overlay {
		return subject, p.patch(ctx, ch, k)
	}
	text, err := ch.Read(ctx, p.planned.File)
	if err != nil {
		return "", err
	}
	edited, err := planfile.SetPaused(text, p.planned.Plan.Name, p.paused)
	if err != nil {
		return "", fmt.Errorf("%s: %w", p.planned.File, err)
	}
	if err := ch.Write(ctx, p.planned.File, edited); err != nil || p.base {
		return subject, err
	}
	return subject, p.confine(ctx, ch, k, text)
}

// kustomizationOf is the kustomization of the source's path; empty without one.
func (p *pausing) kustomizationOf(k kustomizations.Set) string {
	return k[path.Clean(p.source.Spec.Path)].File
}

// drop removes a patch that set spec.paused in the overlay. It reports whether that is
// all there is to do.
func (p *pausing) drop(ctx context.Context, ch *clone.Change, k kustomizations.Set) (bool, error) {
	file := p.kustomizationOf(k)
	if file == "" {
		return false, nil
	}
	text, err := ch.Read(ctx, file)
	if err != nil {
		return false, err
	}
	text, there := planfile.DropPausePatch(text, p.original(ctx, ch))
	if !there {
		return false, nil
	}
	if err := ch.Write(ctx, file, text); err != nil {
		return false, err
	}
	set, err := p.tried(ctx, ch)
	if err != nil {
		return false, err
	}
	r, err := p.commitCommand.planned(set)
	return err == nil && r.Plan.Spec.Paused == p.paused, err
}

// original is the name of the plan in its file, by which a patch finds it.
func (p *pausing) original(ctx context.Context, ch *clone.Change) string {
	text, err := ch.Read(ctx, p.planned.File)
	if err != nil {
		return p.planned.Plan.Name
	}
	plans, err := planfile.Plans(text)
	if err != nil || len(plans) != 1 {
		return p.planned.Plan.Name
	}
	return cmp.Or(yamlnode.ValueOf(yamlnode.ValueOf(plans[0], "metadata"), "name").Text(), p.planned.Plan.Name)
}

// patch writes spec.paused as a patch of the overlay.
func (p *pausing) patch(ctx context.Context, ch *clone.Change, k kustomizations.Set) error {
	file := p.kustomizationOf(k)
	if file == "" {
		return fmt.Errorf("--overlay: %s has no kustomization; give --base to edit %s", path.Clean(p.source.Spec.Path), p.planned.File)
	}
	if also := p.alsoGoverned(ctx, k, file); len(also) > 0 {
		return fmt.Errorf("%s governs more than %s/%s: %s; nothing was changed. Give --base to edit %s for all of them",
			file, p.release.Namespace, p.release.Name, strings.Join(also, ", "), p.planned.File)
	}
	text, err := ch.Read(ctx, file)
	if err != nil {
		return err
	}
	if text, err = planfile.AddPausePatch(text, p.original(ctx, ch), p.paused); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return ch.Write(ctx, file, text)
}

// confine makes sure that the edited file governs nothing else, or takes the overlay
// instead. --yes does not agree to another file.
func (p *pausing) confine(ctx context.Context, ch *clone.Change, k kustomizations.Set, before string) error {
	set, err := p.tried(ctx, ch)
	if err != nil {
		return err
	}
	also := slices.Concat(p.alsoPaused(p.head, set), p.alsoGoverned(ctx, k, p.planned.File))
	if len(also) == 0 {
		return nil
	}
	text := p.planned.File + " governs more than " + p.release.Namespace + "/" + p.release.Name + ": " + strings.Join(also, ", ")
	overlay := p.kustomizationOf(k)
	switch {
	case overlay == "":
		return fmt.Errorf("%s; nothing was changed. Give --base to edit it all the same", text)
	case p.yes:
		return fmt.Errorf("%s; nothing was changed. Give --overlay to write a patch into %s, or --base to edit it for all of them", text, overlay)
	case !cli.Ask(p.cmd, text+".\nWrite a patch into "+overlay+" instead, for that path alone?"):
		return errors.New("not committed; give --base to edit it for all of them")
	}
	if err := ch.Write(ctx, p.planned.File, before); err != nil {
		return err
	}
	return p.patch(ctx, ch, k)
}
