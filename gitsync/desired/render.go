package desired

import (
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/queries"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// State is what a commit says, for one GitSource. It is kept in memory and
// never changed.
type State struct {
	// Key is of the parts of the spec that rendering depends on, see [Reader.Key].
	Key    string
	Commit string
	Set    *plan.Set
	// Valid is what [plan.Collect] returns beside the problems of an older commit. Its Set is nil.
	Valid *plan.Set
	// Reads is what was read of the commit's tree.
	Reads gittree.Reads
	// HasBases is true if remote bases were read, too, which change by themselves.
	HasBases bool
	// unknown is why it is not known what an older commit renders; nil: it is known.
	unknown error
}

// Reader renders the commits of one snapshot for one GitSource.
type Reader struct {
	Snapshot *repository.Snapshot
	Source   *v1alpha1.GitSource
	// Mapper knows the kinds of the cluster; nil: no cluster is asked.
	Mapper meta.RESTMapper
	// Bases fetches remote bases; nil: they are refused.
	Bases repository.FetchBase
	// hasBases is true if a folder that was rendered has some.
	hasBases bool
	// ProviderOf tells the providers of metrics that the controller knows; nil: they are not
	// checked.
	ProviderOf plan.ProviderOf
	// past: what is rendered was applied before, and its queries are not checked again.
	past bool
	// Folders renders a folder; nil: this process does.
	Folders FolderRenderer

	// These are of earlier syncs, and added to. Brought is by approval file. If Exceeded is
	// nil, nothing is known.
	Brought  map[string]signers.FileOrigin
	Approved ApprovedSteps
	Order    gitobject.Precedence
	Changes  authors.Known
	Exceeded *ExceededCommits

	// Signatures is what the spec demands of signatures.
	Signatures signers.Policy
	// Approvals is what was read for the approvals.
	Approvals gittree.Reads
	// Sources reads the other GitSources, for approvals of their releases; nil: they are
	// not known.
	Sources func() (*v1alpha1.GitSourceList, error)
	// Ignored is by release why approvals of it do not count.
	Ignored map[string]plan.Problems
	// Failed are by name the BatchReleases to be made again whose template has failed before.
	Failed map[string]*v1alpha1.BatchRelease
}

// Key returns a text of the parts of the spec that rendering depends on.
func (r *Reader) Key() string {
	s := &r.Source.Spec
	ref := fmt.Sprintf("%q", []string{s.Ref.Branch, s.Ref.Tag, s.Ref.SemVer, s.Ref.Commit})
	return fmt.Sprintf("%q", []string{s.URL, ref, s.Path, s.TargetNamespace, s.ApprovalsPath(), fmt.Sprint(r.Bases != nil)})
}

// Read returns what the snapshot's commit says, and whether it was rendered. If nothing changed
// that the last rendering read, that rendering is good for this commit, too. A state beside an
// error is not one to apply: its set is what [plan.Collect] returns beside problems.
func (r *Reader) Read(last *State) (*State, bool, error) {
	commit := r.Snapshot.Commit.String()
	if last != nil && last.Key == r.Key() && !last.HasBases {
		if last.Commit == commit {
			return last, false, nil
		}
		t, err := gittree.Open(r.Snapshot, r.Snapshot.Commit)
		if err != nil {
			return nil, false, err
		}
		same, err := last.Reads.Unchanged(t)
		if err != nil {
			return nil, false, err
		}
		if same {
			return &State{Key: last.Key, Commit: commit, Set: last.Set, Reads: last.Reads}, false, nil
		}
	}
	t, err := gittree.Open(r.Snapshot, r.Snapshot.Commit)
	if err != nil {
		return nil, false, err
	}
	known := r.Exceeded.of(r)
	if err := known.again(t); err != nil {
		return nil, false, err
	}
	r.hasBases = false
	set, err := r.Render(t)
	if !r.hasBases {
		known.note(t, err)
	}
	if set == nil {
		return nil, true, err
	}
	return &State{Key: r.Key(), Commit: commit, Set: set, Reads: t.Reads(), HasBases: r.hasBases}, true, err
}

// Render renders a tree. A set beside an error is not one to apply, see [plan.Collect].
func (r *Reader) Render(t *gittree.Tree) (*plan.Set, error) {
	var ignored plan.Problems
	t.PassedBy = r.Source.Spec.ApprovalsPath()
	objects, err := r.objects(t, manifest.RenderOptions{
		Skip:    r.Source.Spec.ApprovalsPath(),
		Ignored: func(p *plan.Problem) { ignored = append(ignored, p) },
	})
	if err != nil {
		return nil, errors.Join(t.Err(), err)
	}
	if err := checkObjects(t.Limits(), r.Source.Spec.Path, objects); err != nil {
		return nil, err
	}
	options := plan.CollectOptions{
		Namespace: r.Source.Namespace, TargetNamespace: r.Source.Spec.TargetNamespace, Namespaced: manifest.Namespaced,
	}
	if r.Mapper != nil {
		options.Namespaced = r.namespaced
	}
	if !r.past {
		options.CheckMetric, options.ProviderOf = queries.Check, r.ProviderOf
	}
	set, err := plan.Collect(objects, options)
	set.Ignored = append(set.Ignored, ignored...)
	return set, err
}

// renderPast renders the tree of an older commit, or that of a commit with others taken back.
// It asks no cluster. The set is nil where the tree does not render, and failed says why.
func (r *Reader) renderPast(t *gittree.Tree, of plumbing.Hash) (d State, failed, err error) {
	past := *r
	past.Mapper, past.past = nil, true
	set, failed := past.Render(t)
	switch {
	case t.Err() != nil && !gittree.IsExceeded(t.Err()):
		return State{}, nil, t.Err()
	case IsPassing(failed):
		return State{}, nil, failed
	case failed != nil:
		d.Valid = set
	default:
		d.Set = set
	}
	d.Reads, d.HasBases = t.Reads(), past.hasBases
	if IsUnfetched(failed) {
		d.unknown = &unknownRendering{of, failed}
	}
	return d, failed, nil
}

// objects renders a tree with the remote bases that it names. A renderer says which ones
// it needs, and begins again with these.
func (r *Reader) objects(t *gittree.Tree, opts manifest.RenderOptions) ([]plan.Object, error) {
	if r.Bases == nil {
		return r.folder(t, opts)
	}
	b := newBaseTrees(t)
	defer b.close()
	opts.Bases = b.at
	for {
		objects, err := r.folder(b, opts)
		missing, ok := errors.AsType[*manifest.MissingBasesError](err)
		if !ok {
			return objects, err
		}
		r.hasBases = true
		if err := b.add(missing.Bases, r.Bases); err != nil {
			return nil, err
		}
	}
}

// folder renders where the controller has a place for it, and else in this process.
func (r *Reader) folder(t filesys.FileSystem, opts manifest.RenderOptions) ([]plan.Object, error) {
	if r.Folders == nil {
		return manifest.Render(t, r.Source.Spec.Path, opts)
	}
	return r.Folders.Render(r.Source.Namespace, t, r.Source.Spec.Path, opts)
}

// namespaced asks the API server for the scope of a kind.
func (r *Reader) namespaced(gvk schema.GroupVersionKind) (bool, error) {
	gk := gvk.GroupKind()
	mapping, err := r.Mapper.RESTMapping(gk)
	if meta.IsNoMatchError(err) {
		return false, &plan.Problem{
			Reason: v1alpha1.ReasonUnknownKind, Err: errors.New("the cluster does not know " + gk.String()),
			Hint: "install its CustomResourceDefinition, or put it below the same spec.path", Retry: true,
		}
	}
	if err != nil {
		return false, fmt.Errorf("asking for the scope of %s: %w", gk, err)
	}
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace, nil
}

// TemplateIn returns the template that a commit has for a release's
// Deployment, and nil where it has none.
func TemplateIn(set *plan.Set, release *plan.Release) *corev1.PodTemplateSpec {
	// By the Deployment: two plans may have exchanged their names.
	for i := range set.Releases {
		if other := &set.Releases[i]; plan.WorkloadOf(other) == plan.WorkloadOf(release) {
			return other.Template
		}
	}
	// A commit before the plan was added: the Deployment is there all the same.
	d := release.Deployment
	for _, o := range set.Objects {
		if o.GroupVersionKind() == d.GroupVersionKind() && o.GetNamespace() == d.GetNamespace() && o.GetName() == d.GetName() {
			template, err := TemplateOf(o)
			if err != nil {
				return nil // not one that could be released
			}
			return template
		}
	}
	return nil
}

// CommitName returns a commit as messages name it, with the branch or tag that it is of.
func CommitName(branch, commit string) string { return branch + "@" + plan.ShortCommit(commit) }

// checkObjects bounds what a commit renders.
func checkObjects(l gittree.Limits, where string, objects []plan.Object) error {
	if len(objects) <= l.Objects {
		return nil
	}
	fact := fmt.Sprintf("%d objects are rendered, and a GitSource has at most %d", len(objects), l.Objects)
	return gittree.Exceeded(where, fact, "--max-objects, or divide it among several GitSources")
}

// TemplateOf decodes the pod template of a workload.
func TemplateOf(o plan.Object) (*corev1.PodTemplateSpec, error) {
	m, ok, _ := unstructured.NestedMap(o.Object, "spec", "template")
	if !ok {
		return nil, nil
	}
	t := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, t); err != nil {
		return nil, nil //nolint:nilerr // a manifest that does not decode renders no template
	}
	return t, nil
}

// FolderRenderer is [manifest.Render] somewhere else, as package sandbox does it.
type FolderRenderer interface {
	Render(tenant string, fsys filesys.FileSystem, dir string, opts manifest.RenderOptions) ([]plan.Object, error)
}

// Reviews reports whether what is written back is reviewed before it counts.
func Reviews(spec *v1alpha1.GitSourceSpec) bool {
	w := spec.WriteBack
	return w != nil && w.Enabled && w.Branch != "" && w.Branch != spec.Ref.Branch
}
