package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/terminal"
	"github.com/tranche-dev/tranche/gitsync"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func newDiff() *cobra.Command {
	var source, output string
	c := &cobra.Command{
		Use:   "diff [REV]",
		Short: "Show what a commit would release and change, before it is merged",
		Long: `Show what a commit of the clone that one stands in would do to the cluster: for each
Deployment with a plan the images and the pod template that would be released, with the
number of pods at each step, and which objects would be created, changed and pruned. REV is
a commit or a branch; default: HEAD. Uncommitted changes are not part of it.

Nothing is written, and reading is enough of a right: what the account may not have the API
server try is compared with the live object as far as the manifest goes, and marked as
estimated. What is in Secrets is not shown.

The exit code is 0 where the commit could be applied, whether or not it changes anything,
and 1 where it could not.`,
		Example: `  tranche diff                                   # HEAD
  tranche diff origin/feature --source shop
  tranche diff -o markdown >> "$GITHUB_STEP_SUMMARY"`,
		Args: cobra.MaximumNArgs(1),
	}
	at := addCluster(c)
	c.Flags().StringVar(&source, "source", "", "the GitSource, NAME or NAMESPACE/NAME, whose repository the clone is of, be it by another URL (default: those of the namespace that follow the clone's repository)")
	c.Flags().StringVarP(&output, "output", "o", "text", "text or markdown")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if output != "text" && output != "markdown" {
			return fmt.Errorf("--output %s: must be text or markdown", output)
		}
		k, err := at.connect()
		if err != nil {
			return err
		}
		return diff(cmd, k, source, append(args, "HEAD")[0], output == "markdown")
	}
	return c
}

func diff(cmd *cobra.Command, k *connected, source, rev string, markdown bool) error {
	ctx := cmd.Context()
	sources, in, err := k.sourcesOf(ctx, source)
	if err != nil {
		return err
	}
	commit, err := in.Git(ctx, "rev-parse", "--verify", "--end-of-options", rev+"^{commit}")
	if err != nil {
		return fmt.Errorf("%s is no commit of the clone in %s", rev, in.Dir)
	}
	var failed error
	for i := range sources {
		p, err := k.preview(ctx, in, &sources[i], commit)
		if err != nil {
			return fmt.Errorf("GitSource %s/%s: %w", sources[i].Namespace, sources[i].Name, err)
		}
		w := &diffWriter{style: terminal.StyleOf(cmd.OutOrStdout()), markdown: markdown}
		w.preview(p)
		if _, err := fmt.Fprint(cmd.OutOrStdout(), w.String()); err != nil {
			return err
		}
		if len(p.problems) > 0 {
			failed = fmt.Errorf("problems: %d; the commit could not be applied", len(p.problems))
		}
	}
	return failed
}

// sourcesOf returns the source that is named, or those of the namespace that
// follow the repository of the clone that one stands in; and that clone.
func (k *connected) sourcesOf(ctx context.Context, name string) ([]v1alpha1.GitSource, *clone.Clone, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, nil, fmt.Errorf("finding the clone: %w", err)
	}
	if name != "" {
		gs, err := k.sourceNamed(ctx, k.namespace, name)
		if err != nil {
			return nil, nil, err
		}
		in, err := clone.Here(ctx, here)
		return []v1alpha1.GitSource{*gs}, in, err
	}
	var list v1alpha1.GitSourceList
	if err := k.List(ctx, &list, client.InNamespace(k.namespace)); err != nil {
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
		return nil, nil, fmt.Errorf("no GitSource of namespace %s follows the repository of this clone: %w", k.namespace, others)
	default:
		return nil, nil, fmt.Errorf("there is no GitSource in namespace %s; name another namespace with -n, or one with --source", k.namespace)
	}
}

// sourceNamed reads a GitSource by NAME or NAMESPACE/NAME.
func (k *connected) sourceNamed(ctx context.Context, namespace, name string) (*v1alpha1.GitSource, error) {
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if before, after, ok := strings.Cut(name, "/"); ok {
		key = client.ObjectKey{Namespace: before, Name: after}
	}
	var gs v1alpha1.GitSource
	if err := k.Get(ctx, key, &gs); err != nil {
		return nil, fmt.Errorf("reading GitSource %s: %w", key, err)
	}
	return &gs, nil
}

// preview is what a commit would do for one source.
type preview struct {
	source   *v1alpha1.GitSource
	commit   string
	releases []wouldRelease
	objects  []gitsync.Difference
	problems plan.Problems
}

// wouldRelease is what would become of one Deployment's pods.
type wouldRelease struct {
	*plan.Release
	live       *v1alpha1.BatchRelease // nil: the plan is new
	deployment *appsv1.Deployment     // nil: it is not there
	before     *corev1.PodTemplateSpec
}

// preview renders a commit and compares it with the cluster.
func (k *connected) preview(ctx context.Context, in *clone.Clone, gs *v1alpha1.GitSource, commit string) (*preview, error) {
	p := &preview{source: gs, commit: commit}
	set, _, err := render(in, gs, commit, k.isNamespaced)
	if p.problems, err = asProblems(err); err != nil || len(p.problems) > 0 {
		return p, err
	}
	p.objects, err = gitsync.Preview(ctx, k, gs, set)
	if p.problems, err = asProblems(err); err != nil {
		return p, err
	}
	for i := range set.Releases {
		r, err := k.wouldRelease(ctx, &set.Releases[i])
		if err != nil {
			return p, err
		}
		p.releases = append(p.releases, r)
	}
	return p, nil
}

// asProblems tells what is wrong with the commit from what went wrong here.
func asProblems(err error) (plan.Problems, error) {
	if ps, ok := errors.AsType[plan.Problems](err); ok {
		return ps, nil
	}
	if p, ok := errors.AsType[*plan.Problem](err); ok {
		return plan.Problems{p}, nil
	}
	return nil, err
}

func (k *connected) isNamespaced(gk schema.GroupKind) (bool, error) {
	m, err := k.RESTMapper().RESTMapping(gk)
	if meta.IsNoMatchError(err) {
		return false, &plan.Problem{Where: gk.String(), Err: errors.New("the cluster does not know this kind"), Hint: "install its CustomResourceDefinition, or put it below the same spec.path"}
	}
	if err != nil {
		return false, fmt.Errorf("asking for the scope of %s: %w", gk, err)
	}
	return m.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

func (k *connected) wouldRelease(ctx context.Context, r *plan.Release) (wouldRelease, error) {
	w := wouldRelease{Release: r}
	var br v1alpha1.BatchRelease
	switch err := k.Get(ctx, client.ObjectKeyFromObject(r.Plan), &br); {
	case err == nil:
		w.live, w.before = &br, br.Spec.Template
	case !apierrors.IsNotFound(err):
		return w, fmt.Errorf("reading %s: %w", r, err)
	}
	var d appsv1.Deployment
	switch err := k.Get(ctx, client.ObjectKey{Namespace: r.Plan.Namespace, Name: r.Deployment.GetName()}, &d); {
	case err == nil:
		w.deployment = &d
		if w.before == nil {
			w.before = &d.Spec.Template
		}
	case !apierrors.IsNotFound(err):
		return w, fmt.Errorf("reading %s: %w", r.Deployment, err)
	}
	return w, nil
}

// render renders a commit of a repository for a source, as the controller will.
func render(in *clone.Clone, gs *v1alpha1.GitSource, commit string, namespaced func(schema.GroupKind) (bool, error)) (*plan.Set, gitsync.Tree, error) {
	objects, err := in.Objects()
	if err != nil {
		return nil, nil, err
	}
	tree, err := gitsync.TreeOf(objects, plumbing.NewHash(commit))
	if err != nil {
		return nil, nil, err
	}
	spec := &gs.Spec
	rendered, err := plan.Render(tree, spec.Path, plan.RenderOptions{Skip: approvalsPath(spec)})
	if err != nil {
		return nil, nil, err
	}
	set, err := plan.Collect(rendered, plan.CollectOptions{Namespace: gs.Namespace, TargetNamespace: spec.TargetNamespace, Namespaced: namespaced})
	return set, tree, errors.Join(err, tree.Err())
}

// diffWriter writes previews, as text or as Markdown.
type diffWriter struct {
	strings.Builder
	style    terminal.Style
	markdown bool
}

func (w *diffWriter) line(format string, args ...any) {
	_, _ = fmt.Fprintf(w, format+"\n", args...) // to memory
}

// heading begins a part.
func (w *diffWriter) heading(level int, text string) {
	if w.markdown {
		w.line("%s %s\n", strings.Repeat("#", level), text)
		return
	}
	w.line("%s", w.style.Bold(text))
}

func (w *diffWriter) preview(p *preview) {
	w.heading(3, fmt.Sprintf("GitSource %s/%s at %s", p.source.Namespace, p.source.Name, p.commit[:12]))
	for _, problem := range p.problems {
		w.marked(w.style.Bad("✘"), problem.Error())
	}
	quiet := len(p.problems) == 0
	for _, r := range p.releases {
		quiet = !w.release(r) && quiet
	}
	for _, d := range p.objects {
		quiet = false
		w.object(d)
	}
	if quiet {
		w.line("Nothing would change.")
	}
	if slices.ContainsFunc(p.objects, func(d gitsync.Difference) bool { return d.Estimated }) {
		w.line("\nEstimated: this account may not have the API server try it, so its defaults and checks are not known.")
	}
	w.line("")
}

func (w *diffWriter) item(text string) {
	if w.markdown {
		text = "- " + text
	}
	w.line("%s", text)
}

// release writes what would be released, and reports whether there is anything.
func (w *diffWriter) release(r wouldRelease) bool {
	if r.before == nil {
		return false // the Deployment is created, whole: among the objects
	}
	if plan.EqualTemplate(r.before, r.Template) {
		return false
	}
	name := r.Plan.Namespace + "/" + r.Deployment.GetName()
	w.heading(4, "Deployment "+name+" would be released")
	for _, image := range changedImages(r.before, r.Template) {
		w.item(image)
	}
	if s := r.live; s != nil && s.Status.Phase != "" && s.Status.Phase != v1alpha1.PhaseCompleted {
		w.item(fmt.Sprintf("the release of %s, at step %d, would be superseded", s.Status.UpdateRevision, s.Status.CurrentStepIndex))
	}
	w.steps(r)
	w.unified(yamlOf(r.before), yamlOf(r.Template))
	return true
}

// changedImages are the images that differ, by container.
func changedImages(before, after *corev1.PodTemplateSpec) []string {
	was := map[string]string{}
	for _, c := range containers(before) {
		was[c.Name] = c.Image
	}
	var changed []string
	for _, c := range containers(after) {
		switch old, ok := was[c.Name]; {
		case !ok:
			changed = append(changed, "container "+c.Name+" is new: "+c.Image)
		case old != c.Image:
			changed = append(changed, c.Name+": "+old+" → "+c.Image)
		}
	}
	return changed
}

func (w *diffWriter) steps(r wouldRelease) {
	n := int32(1)
	if r.deployment != nil {
		n = ptr.Deref(r.deployment.Spec.Replicas, 1)
	}
	steps := r.Plan.Spec.Strategy.Steps
	if w.markdown {
		w.line("\n| step | pods | then |\n|---|---|---|")
	}
	for i, s := range steps {
		pods := fmt.Sprintf("%d of %d", plan.Limit(s.Replicas, n), n)
		gate := gateOf(s, i == len(steps)-1)
		if w.markdown {
			w.line("| %d | %s | %s |", i, pods, strings.TrimPrefix(gate, ", then "))
			continue
		}
		w.line("  step %d: %s%s", i, pods, gate)
	}
	if w.markdown {
		w.line("")
	}
}

func (w *diffWriter) object(d gitsync.Difference) {
	name := d.Object
	if d.Estimated {
		name += " (estimated)"
	}
	switch {
	case d.Applied == nil && d.Kept != "":
		w.marked(w.style.Faint("·"), name+" has left the branch and would stay: "+d.Kept)
	case d.Applied == nil:
		w.marked(w.style.Bad("-"), name+" would be deleted")
	case d.Live == nil:
		w.marked(w.style.Good("+"), name+" would be created")
	case d.Recreated:
		w.marked(w.style.Bad("±"), name+" would be deleted and created anew")
		w.unified(shown(d))
	default:
		w.marked(w.style.Waits("~"), name+" would be changed")
		w.unified(shown(d))
	}
}

// marked is a line with a mark where that is no Markdown.
func (w *diffWriter) marked(mark, text string) {
	if !w.markdown {
		text = mark + " " + text
	}
	w.item(text)
}

// shown are the two sides of a difference, without what is in Secrets.
func shown(d gitsync.Difference) (before, after string) {
	live, applied := d.Live.DeepCopy(), d.Applied.DeepCopy()
	if gvk := live.GroupVersionKind(); gvk.Group == "" && gvk.Kind == "Secret" {
		for _, field := range []string{"data", "stringData"} {
			hide(live, applied, field)
		}
	}
	return yamlOf(live.Object), yamlOf(applied.Object)
}

// hide replaces the values of a field by whether they change.
func hide(live, applied *unstructured.Unstructured, field string) {
	was, _, _ := unstructured.NestedMap(live.Object, field)
	is, _, _ := unstructured.NestedMap(applied.Object, field)
	for k, v := range is {
		if old, ok := was[k]; ok && old != v {
			was[k], is[k] = "(hidden, before)", "(hidden, after)"
			continue
		}
		is[k] = "(hidden)"
	}
	for k, v := range was {
		if v != "(hidden, before)" {
			was[k] = "(hidden)"
		}
	}
	for u, values := range map[*unstructured.Unstructured]map[string]any{live: was, applied: is} {
		if values != nil {
			u.Object[field] = values
		}
	}
}

func yamlOf(v any) string {
	text, err := yaml.Marshal(v)
	if err != nil {
		return err.Error() // values from YAML and the API server all encode
	}
	return string(text)
}

// unified writes a difference as diff -u does.
func (w *diffWriter) unified(before, after string) {
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: difflib.SplitLines(before), B: difflib.SplitLines(after), Context: 3})
	if err != nil {
		panic("writing to memory: " + err.Error())
	}
	if w.markdown {
		w.line("\n```diff\n%s```\n", text)
		return
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch line[:min(1, len(line))] {
		case "+":
			line = w.style.Good(line)
		case "-":
			line = w.style.Bad(line)
		case "@":
			line = w.style.Faint(line)
		}
		w.line("    %s", line)
	}
}
