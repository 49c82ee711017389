package diff

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/gitsync/preview"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/foresee"
)

type diffOptions struct {
	source, output        string
	exitCode, remoteBases bool
}

func New() *cobra.Command {
	var o diffOptions
	c := &cobra.Command{
		Use:   "diff [REV]",
		Short: "Show what a commit would release and change, before it is merged",
		Long: `Show what a commit of the clone in the current folder would do to the cluster. For each
Deployment with a plan the output has the images, the pod template and the pods at each
step. It shows whether the commit supersedes a release or rolls back, and what it approves.
It lists the objects that would be created, changed and pruned. REV is a commit or a
branch; default: HEAD. Uncommitted changes are not part of it.

The release engine of the controller decides what begins: a release with gates, a rollback
at once, or nothing. It decides on the ReplicaSets and records of the cluster. If this
account may not read those, the output says so.

If a GitSource names a service account, the output lists each object that the commit
changes and that the service account may not write. This account needs the right to create
SubjectAccessReviews for that. Without it one line says that the rights were not checked.

Nothing is written, and the right to read is enough. If the account may also write an
object, the API server tries it in a dry run. The output then has its defaults and
refusals. Otherwise the result of an apply is computed without the API server, and marked
as estimated. Objects that may not be read are listed. The data of Secrets is not shown.
Signatures (spec.verify) are not checked.

The exit code is 0 if the commit could be applied, and 1 if it could not. With --exit-code
it is 4 if the commit would change anything.`,
		Example: `  tranche diff                                   # HEAD
  tranche diff origin/feature --source shop
  tranche diff -o markdown >> "$GITHUB_STEP_SUMMARY"`,
		Args: cobra.MaximumNArgs(1),
	}
	at := cli.AddCluster(c)
	f := c.Flags()
	f.StringVar(&o.source, "source", "", "the GitSource, NAME or NAMESPACE/NAME, whose repository the clone is of; the URLs may differ "+
		"(default: those of the namespace that follow the clone's repository)")
	cli.AddOutput(c, &o.output, cli.OutputTable, cli.OutputMarkdown, cli.OutputJSON, cli.OutputYAML)
	at.CompleteSources(c)
	f.BoolVar(&o.exitCode, "exit-code", false, "end with exit code 4 if the commit would change anything")
	f.BoolVar(&o.remoteBases, "remote-bases", false, "fetch bases that kustomizations have in other repositories")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if o.output == "text" { // its name before
			o.output = cli.OutputTable
		}
		if err := cli.CheckOutput(o.output, cli.OutputTable, cli.OutputMarkdown, cli.OutputJSON, cli.OutputYAML); err != nil {
			return err
		}
		k, err := at.Connect()
		if err != nil {
			return err
		}
		return o.run(cmd, k, append(args, "HEAD")[0])
	}
	return c
}

// run shows what a revision would do, source by source.
func (o *diffOptions) run(cmd *cobra.Command, at *cli.Connection, rev string) error {
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	sources, c, err := sourcesOf(ctx, at, o.source)
	if err != nil {
		return err
	}
	commit, err := c.Git(ctx, "rev-parse", "--verify", "--end-of-options", rev+"^{commit}")
	if err != nil {
		return fmt.Errorf("%s is no commit of the clone in %s", rev, c.Dir)
	}
	p, doc, problems := newReport(w, o.output), &Document{Head: cli.NewHead("Diff"), Commit: commit, Sources: []diffSource{}}, 0
	for i := range sources {
		d, err := o.difference(ctx, at, c, &sources[i], commit)
		if err != nil {
			return err
		}
		d.write(p)
		doc.Sources = append(doc.Sources, d.document())
		doc.Changes, problems = doc.Changes || d.changes(), problems+len(d.preview.Problems)
	}
	if o.output == cli.OutputJSON || o.output == cli.OutputYAML {
		err = cli.PrintValue(w, o.output, doc)
	} else {
		_, err = io.WriteString(w, terminal.Safe(p.text()))
	}
	if err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	switch {
	case problems > 0:
		return fmt.Errorf("problems: %d; the commit could not be applied", problems)
	case doc.Changes && o.exitCode:
		return cli.WithCode(cli.ExitChanges, fmt.Errorf("commit %s would change the cluster", cli.Short(commit)))
	}
	return nil
}

// sourcesOf returns the source that is named, or those of the namespace that follow the
// repository of the current folder's clone. It also returns that clone.
func sourcesOf(ctx context.Context, at *cli.Connection, name string) ([]v1alpha1.GitSource, *clone.Clone, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, nil, fmt.Errorf("finding the clone: %w", err)
	}
	if name != "" {
		gs, err := at.SourceNamed(ctx, at.Namespace, name)
		if err != nil {
			return nil, nil, err
		}
		in, err := clone.Here(ctx, here)
		return []v1alpha1.GitSource{*gs}, in, err
	}
	var list v1alpha1.GitSourceList
	if err := at.List(ctx, &list, client.InNamespace(at.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing GitSources: %w", err)
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.GitSource) int { return cmp.Compare(a.Name, b.Name) })
	var in *clone.Clone
	var others error
	sources := slices.DeleteFunc(list.Items, func(gs v1alpha1.GitSource) bool {
		found, err := clone.Find(ctx, here, gs.Spec.URL)
		if err != nil {
			others = err
			return true
		}
		in = found
		return false
	})
	switch {
	case len(sources) > 0:
		return sources, in, nil
	case others != nil:
		return nil, nil, fmt.Errorf("no GitSource of namespace %s follows the repository of this clone: %w", at.Namespace, others)
	default:
		return nil, nil, fmt.Errorf("there is no GitSource in namespace %s; name another namespace with -n, or one with --source", at.Namespace)
	}
}

// difference is what a commit would do, for one source.
type difference struct {
	source  *v1alpha1.GitSource
	preview *preview.Preview
	warning string
	// outlooks say what the controller does with the Deployments that have a plan.
	outlooks map[string]outlook
	// rights are those of the account that the source names.
	rights rights
}

func (o *diffOptions) difference(
	ctx context.Context, at *cli.Connection, c *clone.Clone, gs *v1alpha1.GitSource, commit string,
) (*difference, error) {
	objects, err := c.Objects()
	if err != nil {
		return nil, err
	}
	schemas, err := discovery.NewDiscoveryClientForConfig(at.Config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", at.Config.Host, err)
	}
	p := preview.Previewer{Client: at.Client, Schemas: schemas.OpenAPIV3(), RemoteBases: o.remoteBases}
	preview, err := p.Preview(ctx, gs, objects, plumbing.NewHash(commit))
	if err != nil {
		return nil, fmt.Errorf("comparing commit %s with what GitSource %s/%s applies: %w", cli.Short(commit), gs.Namespace, gs.Name, err)
	}
	d := &difference{source: gs, preview: preview, warning: behind(ctx, c, gs, commit), outlooks: map[string]outlook{}}
	f := newForesees(at.Client, schemas)
	for i := range preview.Releases {
		r := &preview.Releases[i]
		if r.Next == nil {
			continue
		}
		if d.outlooks[r.Deployment.String()], err = f.foresee(ctx, r); err != nil {
			return nil, fmt.Errorf("finding what the controller would do with %s: %w", r.Deployment, err)
		}
	}
	if d.rights, err = checkRights(ctx, at.Client, gs, preview); err != nil {
		return nil, err
	}
	preview.Problems = append(preview.Problems, d.rights.lacking...)
	return d, nil
}

// behind warns of a commit that lacks what the cluster has: what came since
// looks as if the commit took it back.
func behind(ctx context.Context, c *clone.Clone, gs *v1alpha1.GitSource, commit string) string {
	applied := gs.Status.AppliedCommit
	if applied == "" {
		return ""
	}
	if _, err := c.Git(ctx, "cat-file", "-e", applied+"^{commit}"); err != nil {
		return fmt.Sprintf("the cluster has commit %s, which the clone lacks: git fetch, and compare again", cli.Short(applied))
	}
	if _, err := c.Git(ctx, "merge-base", "--is-ancestor", applied, commit); err != nil {
		return fmt.Sprintf("%s does not contain commit %s, which the cluster has, so what came with that looks taken back; rebase it, or give "+
			"the result of the merge", cli.Short(commit), cli.Short(applied))
	}
	return ""
}

// changes reports whether the commit would change anything.
func (d *difference) changes() bool {
	for i := range d.preview.Releases {
		if r := &d.preview.Releases[i]; r.Changes() || r.Approval != nil || d.begins(r) {
			return true
		}
	}
	return slices.ContainsFunc(d.preview.Objects, func(o preview.Object) bool {
		return o.Effect == preview.EffectCreate || o.Effect == preview.EffectChange || o.Effect == preview.EffectPrune ||
			o.Effect == preview.EffectHandOver
	})
}

// write adds a difference to a report.
func (d *difference) write(p *report) {
	gs := d.source
	p.heading(fmt.Sprintf("What %s would do", p.code(cli.Short(d.preview.Commit))))
	line := fmt.Sprintf("GitSource %s, %s of %s", p.code(gs.Namespace+"/"+gs.Name), p.code(cli.PinOf(gs.Spec.Ref)), p.plain(gs.Spec.URL))
	if gs.Spec.Path != "" && gs.Spec.Path != "." {
		line += ", path " + p.code(gs.Spec.Path)
	}
	p.line(line + "; the cluster has " + p.code(cli.OrNone(cli.Short(gs.Status.AppliedCommit))))
	if d.warning != "" {
		p.warning(p.plain(d.warning))
	}
	if gs.Spec.Ref.IsPinned() {
		p.warning("spec.ref pins " + p.plain(cli.PinOf(gs.Spec.Ref)) + ": the commit is applied once it is what that leads to.")
	}
	if len(d.preview.Problems) > 0 {
		p.warning("Nothing of it would be applied:")
		p.plainList(errorsOf(d.preview.Problems))
	}
	for i := range d.preview.Plans {
		d.plan(p, &d.preview.Plans[i])
	}
	for i := range d.preview.Releases {
		d.release(p, &d.preview.Releases[i])
	}
	d.objects(p)
	if len(d.preview.Withheld) > 0 {
		p.line("Not before the plans are approved:")
		p.plainList(d.preview.Withheld)
	}
	if len(d.preview.Ignored) > 0 {
		p.line("Without effect:")
		p.plainList(errorsOf(d.preview.Ignored))
	}
	if !d.changes() && len(d.preview.Problems) == 0 {
		p.line("Nothing would change" + d.asFarAsSeen() + ".")
	}
}

// plan says that a change of what decides about releases needs an approval.
func (d *difference) plan(p *report, c *terms.Change) {
	p.heading("Plan of " + p.code("Deployment "+c.Namespace+"/"+c.Name))
	p.line("What decides about its releases changes: " + p.plain(strings.Join(c.Now.Changes(c.Then), ", ")) + ".")
	p.line("Digest: " + p.code(c.Then.Digest()))
	if c.Approved {
		p.line("The commit has an approval of it. It counts if a signer has signed the commit that brought it.")
		return
	}
	p.line("It needs an approval by a signer, and has no effect before: " +
		p.code(fmt.Sprintf("tranche approve %s -n %s --plan --sign", c.Plan, c.Namespace)) + ", once the branch has it.")
	if len(c.Why) > 0 {
		p.plainList(c.Why)
	}
}

// asFarAsSeen limits what is said of a commit of which not all can be compared.
func (d *difference) asFarAsSeen() string {
	if slices.ContainsFunc(d.preview.Objects, func(o preview.Object) bool { return o.Effect == preview.EffectUnknown }) {
		return ", as far as it can be seen"
	}
	return ""
}

func errorsOf(ps plan.Problems) []string {
	list := make([]string, len(ps))
	for i, p := range ps {
		list[i] = p.Error()
	}
	return list
}

// begins reports whether the commit begins something, or changes how a release
// goes on, although the template stays.
func (d *difference) begins(r *preview.Release) bool {
	out, ok := d.outlooks[r.Deployment.String()]
	return ok && out.Unknown == "" && !out.Same && out.Kind != foresee.OutlookNothing
}

// shows reports whether there is something to show of a Deployment's pod template.
func (d *difference) shows(r *preview.Release) bool {
	return r.Approval != nil || r.Changes() || r.Plan == nil || d.begins(r)
}

// release says what becomes of a Deployment's pod template.
func (d *difference) release(p *report, r *preview.Release) {
	if !d.shows(r) {
		return
	}
	p.heading(p.code(r.Deployment.String()))
	out := d.outlooks[r.Deployment.String()]
	if r.Approval != nil {
		p.line(d.how(p, r, &out))
		return
	}
	p.line(d.how(p, r, &out))
	if out.Estimated && out.Kind != foresee.OutlookFirstInstall && r.Before != nil {
		p.line("Estimated: this account may not have the API server try the pod template, so its defaults and checks are not known.")
	}
	if rows := images(r); r.Changes() && slices.ContainsFunc(rows, func(row []string) bool { return row[1] != row[2] }) {
		p.table([]string{"container", "now", "then"}, rows)
	}
	if r.Before == nil {
		return
	}
	if r.Plan != nil {
		if steps := stepsOf(r, &out); len(steps) > 0 { // none of a plan that does not govern it
			p.table([]string{"step", "replicas", fmt.Sprintf("pods of %d", r.Replicas), "then"}, steps)
		}
	}
	if r.Changes() {
		p.diff("Pod template", yamlOf(r.Before), yamlOf(r.After))
	}
}

// how says how the template comes to the pods.
func (d *difference) how(p *report, r *preview.Release, out *outlook) string {
	switch {
	case r.Approval != nil:
		return fmt.Sprintf("Step %d of the release of %s is approved, in %s.",
			r.Approval.Spec.Step, p.code(r.Approval.Spec.Revision), p.code(r.Approval.File))
	case r.Restored != "":
		return fmt.Sprintf("It was deleted. The controller creates it at its stable revision %s with all its %d pods. The pod template from "+
			"Git comes after that, as BatchRelease %s plans it.", p.code(r.Restored), r.Replicas, p.code(r.Plan.Name))
	case r.Before == nil:
		return fmt.Sprintf("It is not there yet, and is installed with all its %d pods at once.", r.Replicas)
	case r.Plan == nil:
		return "No plan governs it any more: it is handed back, and the native controller goes on."
	case out.Unknown != "":
		return fmt.Sprintf("Not checked: whether a release begins, or the controller goes back at once. %s.", p.plain(out.Unknown))
	}
	switch out.Kind {
	case foresee.OutlookRelease:
		return fmt.Sprintf("A new release, as BatchRelease %s plans it.", p.code(r.Plan.Name))
	case foresee.OutlookSupersedes:
		return fmt.Sprintf("A new release supersedes the one of %s, which is at step %s.", p.code(out.Superseded), cli.StepOf(r.Live))
	case foresee.OutlookRollBack:
		return fmt.Sprintf("The controller goes back to %s at once, without approvals.", p.code(out.To))
	case foresee.OutlookPlanChanged:
		return fmt.Sprintf("The plan changes. The release of %s goes on at step %d.", p.code(out.To), out.Step)
	default:
		return p.plain(out.String())
	}
}

// images are what each container has now and then.
func images(r *preview.Release) [][]string {
	now := map[string]string{}
	var rows [][]string
	if r.Before != nil {
		for _, c := range cli.Containers(r.Before) {
			now[c.Name] = c.Image
		}
	}
	for _, c := range cli.Containers(r.After) {
		rows = append(rows, []string{c.Name, cli.OrNone(now[c.Name]), c.Image})
		delete(now, c.Name)
	}
	if r.Before != nil {
		for _, c := range cli.Containers(r.Before) {
			if _, left := now[c.Name]; left {
				rows = append(rows, []string{c.Name, c.Image, "-"})
			}
		}
	}
	return rows
}

// stepsOf are those of the release or rollback from where it begins, with their
// pods. With no outlook they are those of the plan.
func stepsOf(r *preview.Release, out *outlook) [][]string {
	var rows [][]string
	if out.Unknown != "" {
		steps := r.Plan.Spec.Strategy.Steps
		for i, s := range steps {
			then := strings.TrimPrefix(cli.GateOf(s, i == len(steps)-1), ", then ")
			rows = append(rows, []string{
				fmt.Sprint(i), s.Replicas.String(), fmt.Sprint(plan.Target(steps, i, r.Replicas)), cmp.Or(then, "it is complete"),
			})
		}
		return rows
	}
	for i, s := range out.Steps {
		if i < out.Step {
			continue
		}
		then := s.Gate.String()
		if s.Gate.Last {
			then = "it is complete"
		}
		rows = append(rows, []string{fmt.Sprint(i), s.Replicas.String(), fmt.Sprint(s.Target), then})
	}
	return rows
}

// releases reports whether an object is a Deployment that is shown as a release.
func (d *difference) releases(o *preview.Object) bool {
	return slices.ContainsFunc(d.preview.Releases, func(r preview.Release) bool {
		return r.Deployment.String() == o.String() && (r.Changes() || r.Plan == nil || d.begins(&r))
	})
}

// objects lists what is created, changed and pruned, with the changes.
func (d *difference) objects(p *report) {
	by := map[preview.Effect][]string{}
	for i := range d.preview.Objects {
		o := &d.preview.Objects[i]
		line := p.code(o.String())
		if o.Because != "" {
			line += ": " + p.plain(o.Because)
		}
		if o.Merged && o.Effect == preview.EffectChange {
			line += " (estimated)"
		}
		if o.Effect == preview.EffectNone && d.releases(o) {
			continue
		}
		by[o.Effect] = append(by[o.Effect], line)
	}
	p.gap()
	for _, effect := range []preview.Effect{preview.EffectRefuse, preview.EffectCreate, preview.EffectChange, preview.EffectPrune,
		preview.EffectHandOver, preview.EffectKeep, preview.EffectLeave, preview.EffectUnknown} {
		if len(by[effect]) == 0 {
			continue
		}
		p.line(strings.ToUpper(string(effect[:1])) + string(effect[1:]) + ":")
		p.list(by[effect])
	}
	estimated := func(o preview.Object) bool { return o.Merged && o.Effect == preview.EffectChange }
	if slices.ContainsFunc(d.preview.Objects, estimated) {
		p.line("Estimated: this account may not have the API server try it, so its defaults and checks are not known.")
	}
	for i := range d.preview.Objects {
		if o := &d.preview.Objects[i]; o.Effect == preview.EffectChange {
			before, after := masked(o.Before, o.After)
			p.diff(o.String(), yamlOf(before.Object), yamlOf(after.Object))
		}
	}
	if n := len(by[preview.EffectNone]); n > 0 {
		p.line(fmt.Sprintf("Unchanged: %d", n))
	}
	for _, line := range d.unchecked() {
		p.line(p.plain(line))
	}
}

// unchecked says what this account could not check.
func (d *difference) unchecked() (lines []string) {
	if d.rights.unchecked != "" {
		lines = append(lines, d.rights.unchecked)
	}
	prunes := slices.ContainsFunc(d.preview.Objects, func(o preview.Object) bool { return o.Effect == preview.EffectPrune })
	if d.preview.NotListed && prunes {
		lines = append(lines,
			"Not checked: whether a GitSource of another namespace takes what is pruned. This account may not list those of all namespaces.")
	}
	return lines
}
