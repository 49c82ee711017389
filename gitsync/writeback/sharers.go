package writeback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/konfig"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// sharer is another GitSource of the branch that is written to. Both may render one base.
type sharer struct {
	*v1alpha1.GitSource
	renderer *desired.Reader
	tree     plumbing.Hash // that before is of
	before   *sharedRendering
}

// sharedRendering is what a sharer renders of a tree.
type sharedRendering struct {
	set   *plan.Set // nil with err
	reads gittree.Reads
	err   error
}

// isKnown reports whether a tree in which all reads are the same renders the same.
func (r *sharedRendering) isKnown() bool {
	return r.err == nil || !desired.IsPassing(r.err) && !desired.IsUnfetched(r.err)
}

// elsewhere is what a tree would move in the cluster of other GitSources.
type elsewhere struct {
	moved, unknown []string // of the same namespace
	// hidden and unclear count the GitSources of other namespaces. Their names are not
	// passed on.
	hidden, unclear int
}

func (e *elsewhere) isEmpty() bool {
	return len(e.moved) == 0 && len(e.unknown) == 0 && e.hidden == 0 && e.unclear == 0
}

// names lists what would move, and unsure the sources of which that is not known.
func (e *elsewhere) names() []string {
	return withHidden(e.moved, "releases of ", e.hidden)
}

func (e *elsewhere) unsure() []string {
	return withHidden(e.unknown, "", e.unclear)
}

// withHidden adds how many GitSources of other namespaces there are.
func withHidden(list []string, what string, n int) []string {
	switch n {
	case 0:
		return list
	case 1:
		return append(slices.Clone(list), what+"1 GitSource in another namespace")
	default:
		return append(slices.Clone(list), fmt.Sprintf("%s%d GitSources in other namespaces", what, n))
	}
}

// sharers are the other sources of the branch.
type sharers struct {
	*Input
	list []*sharer // nil until they are asked for
}

// of returns the other GitSources of the branch, once in an attempt. A source that
// never read its branch has brought nothing from it.
func (w *sharers) of(ctx context.Context) ([]*sharer, error) {
	if w.list != nil {
		return w.list, nil
	}
	sources, err := siblings.OfBranch(ctx, w.Own, w.Source)
	if err != nil {
		return nil, err
	}
	w.list = []*sharer{}
	for _, other := range sources {
		r := &desired.Reader{Snapshot: w.Snapshot, Source: other, Bases: w.Siblings.Bases, Folders: w.Siblings.Folders}
		w.list = append(w.list, &sharer{GitSource: other, renderer: r})
	}
	return w.list, nil
}

// movedBy returns what a tree would move of other GitSources. If a source read
// none of the files that differ, nothing is rendered.
func (w *sharers) movedBy(ctx context.Context, scratch *gitobject.Store, head, tree plumbing.Hash) (*elsewhere, error) {
	sharers, err := w.of(ctx)
	if err != nil {
		return nil, err
	}
	e := &elsewhere{}
	t, err := gittree.OpenTree(scratch, tree) // one for all, since it keeps the folders that it has read
	if err != nil {
		return nil, err
	}
	for _, s := range sharers {
		moved, unknown, err := w.movedOf(ctx, s, scratch, head, tree, t)
		if err = cmp.Or(ctx.Err(), err); err != nil {
			return nil, err
		}
		name := client.ObjectKeyFromObject(s.GitSource).String()
		same := s.Namespace == w.Source.Namespace
		switch {
		case unknown && same:
			e.unknown = append(e.unknown, "GitSource "+name)
		case unknown:
			e.unclear++
		case len(moved) > 0 && same:
			e.moved = append(e.moved, plan.JoinNames(moved)+" of GitSource "+name)
		case len(moved) > 0:
			e.hidden++
		}
	}
	return e, nil
}

// movedOf returns the releases and Deployments of one source that a tree would move. It
// is unknown where the tree changes what the source read and either side does not render.
func (w *sharers) movedOf(
	ctx context.Context, s *sharer, scratch *gitobject.Store, head, tree plumbing.Hash, t *gittree.Tree,
) (moved []string, unknown bool, err error) {
	if s.before == nil || s.tree != head {
		if s.before, err = s.renderingOf(scratch, head, w.Siblings.Rendered(client.ObjectKeyFromObject(s.GitSource))); err != nil {
			return nil, false, err
		}
		s.tree = head
	}
	same, err := s.before.reads.Unchanged(t)
	if err == nil && same && !s.before.isKnown() {
		unknown, err = s.mayRead(scratch, tree)
	}
	if err != nil || same {
		return nil, unknown, err
	}
	if s.before.err != nil {
		return nil, true, nil
	}
	after, err := s.renderingOf(scratch, tree, nil)
	if err != nil || after.err != nil {
		return nil, err == nil, err
	}
	was, is := templatesOf(s.before.set), templatesOf(after.set)
	for key := range is {
		if _, ok := was[key]; !ok {
			was[key] = deployed{name: is[key].name} // it would be created
		}
	}
	return w.changedOf(ctx, s, was, is), false, nil
}

// changedOf returns the names of what has another template after than before, in order.
func (w *sharers) changedOf(ctx context.Context, s *sharer, was, is map[client.ObjectKey]deployed) (moved []string) {
	for _, key := range slices.SortedFunc(maps.Keys(was), func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) }) {
		from, to := was[key], is[key]
		if from.template != nil && to.template != nil && plan.EqualTemplate(from.template, to.template) ||
			w.hasGoneBack(ctx, s, from.release, to.template) {
			continue
		}
		moved = append(moved, from.name)
	}
	return moved
}

// mayRead reports whether a tree changes a file that a source may read, of which the
// rendering did not come to its end. The kustomizations are read first, and those read
// only what lies below them.
func (s *sharer) mayRead(scratch *gitobject.Store, tree plumbing.Hash) (bool, error) {
	if _, ok := errors.AsType[desired.Busy](s.before.err); ok {
		return true, nil
	}
	folders := []string{path.Clean("/" + s.Spec.Path)}
	for p, r := range s.before.reads {
		if slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(p)) {
			folders = append(folders, path.Dir(p), path.Dir(r.Real))
		}
	}
	changes, err := gitobject.Diff(scratch, s.tree, tree)
	for p := range changes {
		if slices.ContainsFunc(folders, func(dir string) bool { return dir == "/" || strings.HasPrefix("/"+p, dir+"/") }) {
			return true, err
		}
	}
	return false, err
}

// renderingOf renders a tree for a source. If the tree has what the last rendering
// read, that rendering is good.
func (s *sharer) renderingOf(scratch *gitobject.Store, tree plumbing.Hash, last *desired.State) (*sharedRendering, error) {
	t, err := gittree.OpenTree(scratch, tree)
	if err != nil {
		return nil, err
	}
	if last != nil && last.Key == s.renderer.Key() && !last.HasBases {
		if same, err := last.Reads.Unchanged(t); err != nil || same {
			return &sharedRendering{set: last.Set, reads: last.Reads}, err
		}
	}
	r := &sharedRendering{}
	if r.set, r.err = s.renderer.Render(t); r.err != nil {
		r.set = nil
	}
	if err := t.Err(); err != nil && !gittree.IsExceeded(err) {
		return nil, err // of the mirror
	}
	r.reads = t.Reads()
	return r, nil
}

// deployed is a Deployment of a rendering: its template, and its release where a plan
// governs it.
type deployed struct {
	name     string // of the BatchRelease or of the Deployment, with its kind
	template *corev1.PodTemplateSpec
	release  *plan.Release
}

// templatesOf returns the Deployments of a rendering.
func templatesOf(set *plan.Set) map[client.ObjectKey]deployed {
	found := map[client.ObjectKey]deployed{}
	for _, o := range set.Objects {
		if o.GroupVersionKind().GroupKind() != inventory.DeploymentKind {
			continue
		}
		if template, err := desired.TemplateOf(o); err == nil {
			found[client.ObjectKeyFromObject(o.Unstructured)] = deployed{name: o.String(), template: template}
		}
	}
	for i := range set.Releases {
		r := &set.Releases[i]
		found[client.ObjectKeyFromObject(r.Deployment.Unstructured)] = deployed{"BatchRelease " + plan.ReleaseName(r.Plan), r.Template, r}
	}
	return found
}

// hasGoneBack reports whether the cluster rolled back a release of another source to a
// template already. The branch may then say so, too, and no pod of it moves. A release
// of which that is not known counts as one that would move.
func (w *sharers) hasGoneBack(ctx context.Context, s *sharer, r *plan.Release, template *corev1.PodTemplateSpec) bool {
	if r == nil || template == nil {
		return false
	}
	br := &v1alpha1.BatchRelease{}
	if err := w.Own.Get(ctx, client.ObjectKeyFromObject(r.Plan), br); err != nil || !inventory.IsOwned(br, s.GitSource) || !speaksOf(br, r) {
		return false
	}
	if _, ok := rolledBack(r, br); !ok {
		return false
	}
	as, err := w.Siblings.As(s.Namespace, s.Spec.ServiceAccountName)
	if err != nil {
		return false
	}
	runs, err := running(ctx, as, s.GitSource, r)
	if err != nil {
		return false
	}
	now, err := runs(template)
	return err == nil && now
}
