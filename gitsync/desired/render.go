package desired

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// State is what a commit says, for one GitSource. It is kept in memory and
// never changed.
type State struct {
	Key    string // of the parts of the spec that rendering depends on
	Commit string
	Set    *plan.Set
	Reads  gittree.Reads
	// hasBases: remote bases were read, too, which change by themselves.
	HasBases bool
	// unknown is why it is not known what an older commit renders; nil: it is known.
	unknown error
}

// Reader renders the commits of one snapshot for one GitSource.
type Reader struct {
	Snapshot *repository.Snapshot
	Source   *v1alpha1.GitSource
	Mapper   meta.RESTMapper               // nil: no cluster is asked
	Bases    repository.FetchBase          // nil: remote bases are refused
	hasBases bool                          // a folder that was rendered has some
	Folders  FolderRenderer                // nil: this process
	Brought  map[string]signers.FileOrigin // by approval file, from earlier syncs; added to
	Approved ApprovedSteps                 // from earlier syncs; added to
	Order    gitobject.Precedence          // from earlier syncs; added to
	Changes  authors.Known                 // from earlier syncs; added to
	Exceeded *OverLimits                   // from earlier syncs; added to. nil: nothing is known

	Signatures signers.Policy
	Approvals  gittree.Reads // what was read for the approvals
	// sources reads the other GitSources, for approvals of their releases; nil: they are
	// not known.
	Sources func() (*v1alpha1.GitSourceList, error)
	// ignored is by release why approvals of it do not count.
	Ignored map[string]plan.Problems
	// failed is by release what [look.failed] returns.
	Failed map[string]*v1alpha1.BatchRelease
}

// ApprovalsPath is where the approvals of a GitSource are.
func ApprovalsPath(spec *v1alpha1.GitSourceSpec) string {
	if spec.Approvals != nil && spec.Approvals.Path != "" {
		return spec.Approvals.Path
	}
	return path.Join(spec.Path, "approvals")
}

func (r *Reader) Key() string {
	s := &r.Source.Spec
	return fmt.Sprintf("%q", []string{s.URL, fmt.Sprintf("%q", []string{s.Ref.Branch, s.Ref.Tag, s.Ref.SemVer, s.Ref.Commit}), s.Path, s.TargetNamespace, ApprovalsPath(s), fmt.Sprint(r.Bases != nil)})
}

// Read returns what the snapshot's commit says. If nothing changed that the last
// rendering read, that rendering is good for this commit, too.
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
	if err != nil {
		return nil, true, err
	}
	return &State{Key: r.Key(), Commit: commit, Set: set, Reads: t.Reads(), HasBases: r.hasBases}, true, nil
}

// Render renders a tree.
func (r *Reader) Render(t *gittree.Tree) (*plan.Set, error) {
	var ignored plan.Problems
	objects, err := r.objects(t, manifest.RenderOptions{
		Skip:    ApprovalsPath(&r.Source.Spec),
		Ignored: func(p *plan.Problem) { ignored = append(ignored, p) },
	})
	if err != nil {
		return nil, errors.Join(t.Err(), err)
	}
	if err := checkObjects(t.Limits(), r.Source.Spec.Path, objects); err != nil {
		return nil, err
	}
	options := plan.CollectOptions{Namespace: r.Source.Namespace, TargetNamespace: r.Source.Spec.TargetNamespace, Namespaced: manifest.Namespaced}
	if r.Mapper != nil {
		options.Namespaced = r.namespaced
	}
	set, err := plan.Collect(objects, options)
	if err != nil {
		return nil, err
	}
	set.Ignored = append(set.Ignored, ignored...)
	return set, nil
}

// renderPast renders the tree of an older commit, or that of a commit with others taken back.
// It asks no cluster. The set is nil where the tree does not render, and failed says why.
func (r *Reader) renderPast(t *gittree.Tree, of plumbing.Hash) (d State, failed, err error) {
	past := *r
	past.Mapper = nil
	set, failed := past.Render(t)
	switch {
	case t.Err() != nil && !gittree.IsExceeded(t.Err()):
		return State{}, nil, t.Err()
	case IsPassing(failed):
		return State{}, nil, failed
	case failed != nil:
		set = nil
	}
	d = State{Set: set, Reads: t.Reads(), HasBases: past.hasBases}
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
	for _, o := range set.Objects {
		if o.GroupVersionKind() == release.Deployment.GroupVersionKind() && o.GetNamespace() == release.Deployment.GetNamespace() && o.GetName() == release.Deployment.GetName() {
			template, err := TemplateOf(o)
			if err != nil {
				return nil // not one that could be released
			}
			return template
		}
	}
	return nil
}

// ForReleases returns the approvals that name a release.
func ForReleases(approvals []plan.Approval) []plan.Approval {
	return slices.DeleteFunc(approvals, func(a plan.Approval) bool { return !a.ForRelease() })
}

// Releases returns the BatchReleases to apply for releases of a commit, with all that
// Git says of them, and the approvals that count for nothing.
func (r *Reader) Releases(ctx context.Context, d *State, releases []plan.Release, live map[string]*v1alpha1.BatchRelease) ([]*v1alpha1.BatchRelease, plan.Problems, error) {
	t, err := gittree.Open(r.Snapshot, r.Snapshot.Tip)
	if err != nil {
		return nil, nil, err
	}
	// Apart from what is rendered, so that an approval needs no new rendering.
	approvals, ignored := manifest.ReadApprovals(t, ApprovalsPath(&r.Source.Spec), r.Source.Namespace, r.Source.Spec.TargetNamespace)
	if err := t.Err(); err != nil && !gittree.IsExceeded(err) {
		return nil, nil, err
	}
	r.Approvals = t.Reads()
	approvals = ForReleases(approvals)
	ignored = append(ignored, d.Set.Ignored...)
	unknown, err := r.unknown(releases, approvals)
	if err != nil {
		return nil, nil, err
	}
	ignored = append(ignored, unknown...)
	h := NewHistory(r, d)
	var list []*v1alpha1.BatchRelease
	r.Ignored = map[string]plan.Problems{}
	for i := range releases {
		release := &releases[i]
		before := len(ignored)
		now := live[release.Plan.Namespace+"/"+release.Plan.Name]
		commit, err := h.ReleaseCommit(ctx, release, cmp.Or(now, r.Failed[plan.ReleaseName(release.Plan)]))
		if err != nil {
			return nil, nil, err
		}
		since := h.Replay.Since(commit, now)
		approval, more, err := h.Approval(ctx, release, commit, since, approvals, now)
		if err != nil {
			return nil, nil, err
		}
		ignored = append(ignored, more...)
		br, more, err := h.batchRelease(release, commit, approval, now)
		if err != nil {
			return nil, nil, err
		}
		ignored = append(ignored, more...)
		r.Ignored[plan.ReleaseName(release.Plan)] = slices.Clone(ignored[before:])
		br.Spec.ApprovalsSince = since
		list = append(list, br)
	}
	return list, ignored, nil
}

// Approval returns the approval that counts for a release, and why others that
// name it do not.
//
// An approval of a release that has ended is history. It is reported only where it was
// brought while another release is under way, because its author may have meant that
// one.
func (h *History) Approval(ctx context.Context, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince, approvals []plan.Approval, now *v1alpha1.BatchRelease) (*plan.Approval, plan.Problems, error) {
	signed, ignored, err := h.signed(ctx, release, commit, since, approvals)
	if err != nil {
		return nil, nil, err
	}
	unused, more, err := h.unused(ctx, release, commit, since, signed, now)
	if err != nil {
		return nil, nil, err
	}
	ignored = append(ignored, more...)
	approval, more := plan.MatchApproval(release, commit, unused)
	if now == nil && h.Reader.Source.Status.AppliedCommit == "" {
		return approval, append(ignored, more...), nil
	}
	current, err := h.current(ctx, release, commit, since, unused, now)
	if err != nil {
		return nil, nil, err
	}
	_, more = plan.MatchApproval(release, commit, current)
	if now == nil {
		return approval, append(ignored, more...), nil
	}
	if !IsUnderWay(now, commit) && now.Status.Phase == v1alpha1.PhaseCompleted && now.Status.UpdateCommit == commit {
		ignored = nil // those are of a release that has ended, too
	}
	return approval, append(ignored, more...), nil
}

// current returns the approvals that are no history: those of releases that have not
// ended. An approval of another release than the one under way must have come after the
// one under way began. If the BatchRelease was deleted and made again, its release has
// another commit than before. Approvals from before that are history, too.
func (h *History) current(ctx context.Context, release *plan.Release, commit string, since *v1alpha1.ApprovalsSince, approvals []plan.Approval, now *v1alpha1.BatchRelease) ([]plan.Approval, error) {
	underWay := now != nil && IsUnderWay(now, commit)
	var current []plan.Approval
	for i := range approvals {
		a := &approvals[i]
		past := (now != nil && hasEnded(now, a) || h.Replay.KnowsEnded(release, a)) && (!underWay || !a.IsFor(commit))
		if names := a.Metadata.Namespace == release.Plan.Namespace && a.Metadata.Name == release.Plan.Name; names && (underWay || !past) && !a.IsFor(commit) {
			b, err := h.LastChange(a.File)
			if err != nil {
				return nil, err
			}
			why, err := h.Replay.Predates(ctx, plumbing.NewHash(b.In), since)
			if err != nil {
				return nil, err
			}
			past = why != ""
		}
		if !past {
			current = append(current, *a)
		}
	}
	return current, nil
}

// IsUnderWay reports whether the status says that the release from a commit has
// begun and has not ended, and that it is no rollback.
func IsUnderWay(br *v1alpha1.BatchRelease, commit string) bool {
	s := &br.Status
	return s.Phase != "" && s.Phase != v1alpha1.PhaseCompleted && !s.RollingBack && s.UpdateCommit == commit
}

// hasEnded reports whether an approval is for a release that has ended.
func hasEnded(br *v1alpha1.BatchRelease, a *plan.Approval) bool {
	s := &br.Status
	return s.Phase == v1alpha1.PhaseCompleted && a.IsFor(s.UpdateCommit) ||
		slices.ContainsFunc(s.History, func(r v1alpha1.ReleaseRecord) bool { return a.IsFor(r.Commit) }) ||
		slices.ContainsFunc(s.EndedReleases, func(r v1alpha1.ReleaseName) bool { return a.IsFor(r.Commit) })
}

// Releasing returns the revision that the release from a commit brings; empty
// where none is under way.
func Releasing(br *v1alpha1.BatchRelease, commit string) string {
	if br == nil || !IsUnderWay(br, commit) {
		return ""
	}
	return br.Status.UpdateRevision
}

// batchRelease returns a plan with the fields that only the controller sets, and
// why its approval does not count for all that it names.
func (h *History) batchRelease(release *plan.Release, commit string, approval *plan.Approval, now *v1alpha1.BatchRelease) (*v1alpha1.BatchRelease, plan.Problems, error) {
	br := release.Plan.DeepCopy()
	br.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BatchRelease"))
	br.Spec.Template = release.Template.DeepCopy()
	br.Spec.DeploymentStrategy = release.Strategy.DeepCopy()
	br.Spec.ServiceAccountName = h.Reader.Source.Spec.ServiceAccountName
	br.Spec.RequireSignedApprovals = h.Reader.Signatures.Signers != nil
	br.Spec.Commit = commit
	h.describe(br, now)
	br.Spec.ReviewApprovals = Reviews(&h.Reader.Source.Spec)
	if approval == nil {
		return br, nil, nil
	}
	var ignored plan.Problems
	if revision := Releasing(now, commit); revision != "" && revision != approval.Spec.Revision {
		// The approval is handed on all the same: the gate is where it is judged.
		ignored = append(ignored, plan.OtherRevision(approval, revision))
	}
	given, err := h.Given(release, commit, approval, now)
	if unknown, ok := errors.AsType[*unknownRendering](err); ok {
		p := approval.Ignored("spec.step", "the steps that it approves are not known yet: "+unknown.Error(), authors.HintUnknown)
		return br, plan.Problems{p}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	done := now != nil && isDone(now, commit, approval)
	if len(given.Steps) == 0 {
		if !done {
			ignored = append(ignored, approval.StepsUnknown(release, given.ApprovedIn))
		}
		return br, ignored, nil
	}
	br.Spec.Approval = given
	if p := approval.StepsChanged(given.Steps, given.ApprovedIn, br.Spec.Strategy.Steps); p != nil && !done {
		ignored = append(ignored, p)
	}
	return br, ignored, nil
}

// Given returns an approval of a release as the BatchRelease has it. It has no steps
// where the commit that brought it has no plan of its name for the Deployment; such an
// approval opens no gate.
func (h *History) Given(release *plan.Release, commit string, approval *plan.Approval, now *v1alpha1.BatchRelease) (*v1alpha1.Approval, error) {
	b, err := h.LastChange(approval.File)
	if err != nil {
		return nil, err
	}
	steps, err := h.stepsSeen(commit, b, release, now)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.Approval{
		Revision: approval.Spec.Revision, Commit: commit, Step: approval.Spec.Step, Steps: steps,
		ApprovedBy: h.approvedBy(approval.File, b), ApprovedIn: b.In,
	}, nil
}

// stepsSeen are the steps that who gave an approval has seen: those of the commit with the
// approval. If a commit or tag is pinned, they are those of the pin when the approval was
// seen first, which spec.approval keeps. In both cases the commit with the approval says
// for which Deployment it is, or another pin could say so afterwards.
func (h *History) stepsSeen(commit string, b signers.FileOrigin, release *plan.Release, now *v1alpha1.BatchRelease) ([]intstr.IntOrString, error) {
	steps, err := h.StepsIn(b.In, release)
	if err != nil || len(steps) == 0 || !h.Reader.Source.Spec.Ref.IsPinned() {
		return steps, err
	}
	if now != nil && now.Spec.Approval != nil && now.Spec.Approval.Commit == commit && now.Spec.Approval.ApprovedIn == b.In {
		return now.Spec.Approval.Steps, nil
	}
	return h.StepsIn(h.State.Commit, release)
}

// isDone reports whether the gates that an approval names have all opened.
func isDone(br *v1alpha1.BatchRelease, commit string, a *plan.Approval) bool {
	s := &br.Status
	return s.UpdateCommit == commit && (s.Phase == v1alpha1.PhaseCompleted || s.RollingBack || IsPast(br, a.Spec.Step))
}

// IsPast reports whether a release is beyond the gate of a step.
func IsPast(br *v1alpha1.BatchRelease, step int32) bool {
	return br.Status.Phase != "" && br.Status.CurrentStepIndex > step
}

// LastChange returns the commit that brought a file's content as it is at the tip.
func (h *History) LastChange(file string) (signers.FileOrigin, error) {
	b, err := signers.LastChange(h.Reader.Snapshot, h.Reader.Snapshot.Tip, file, h.Reader.Brought[file])
	if err == nil {
		h.Reader.Brought[file] = b
	}
	return b, err
}

func CommitAt(branch, commit string) string { return branch + "@" + plan.ShortCommit(commit) }

// checkObjects bounds what a commit renders.
func checkObjects(l gittree.Limits, where string, objects []plan.Object) error {
	if len(objects) <= l.Objects {
		return nil
	}
	return gittree.Exceeded(where, fmt.Sprintf("%d objects are rendered, and a GitSource has at most %d", len(objects), l.Objects), "--max-objects, or divide it among several GitSources")
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
