package preview

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/openapi"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/credentials"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/prune"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/siblings"
	"github.com/tranche-dev/tranche/gitsync/terms"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Preview is what a commit would do to the cluster, for one GitSource.
type Preview struct {
	// Commit that was rendered.
	Commit string
	// Problems for which nothing of the commit would be applied.
	Problems plan.Problems
	// Ignored is what counts for nothing, such as an approval of another release.
	Ignored plan.Problems
	// Objects in the order of application, and after them those that left
	// the branch. The pod templates of Releases are not part of them.
	Objects []Object
	// Releases are the Deployments of which a plan governs the pod template,
	// or did up to now.
	Releases []Release
	// Plans are the changes of what decides about releases that a signer has to
	// approve. Those that no approval of the commit names have no effect, and the
	// rest of the Preview is without them. Whether approvals are signed is not
	// looked at.
	Plans []terms.Change
	// Withheld is what of the commit is not done before they are approved.
	Withheld []string
	// NotListed is true if the account may not list the GitSources of all namespaces. A
	// source of another namespace may take what is said to be pruned.
	NotListed bool
}

// Effect is what becomes of an object.
type Effect string

// The effects of a commit on an object.
const (
	EffectNone   Effect = "unchanged"
	EffectCreate Effect = "created"
	EffectChange Effect = "changed"
	// EffectPrune deletes it, since it left the branch.
	EffectPrune Effect = "pruned"
	// EffectKeep leaves it in the cluster although it left the branch.
	EffectKeep Effect = "kept"
	// EffectHandOver leaves it to another GitSource, to whose path it moves.
	EffectHandOver Effect = "handed over"
	// EffectLeave: an annotation says that it is not to be applied.
	EffectLeave Effect = "left alone"
	// EffectRefuse: the API server refuses it; Problems say why.
	EffectRefuse Effect = "refused"
	// EffectUnknown: the user who asks may not read it.
	EffectUnknown Effect = "not to be seen"
)

// Object is an object of the commit, or one that left the branch.
type Object struct {
	plan.Object
	Effect Effect
	// Because says why, where the effect does not.
	Because string
	// Before and After are the object in the cluster, now and then, without
	// what only the API server sets. Data of Secrets is in them.
	Before, After *unstructured.Unstructured
	// Merged: it is not known what the API server fills in and refuses. The user who asks
	// may not write the object, or what it needs is not there yet.
	Merged bool
}

// Release is a Deployment whose template a plan governs.
type Release struct {
	// Deployment as Git has it.
	Deployment plan.Object
	// Plan of the commit; nil where it is gone, and the native controller
	// takes over.
	Plan *v1alpha1.BatchRelease
	// Live is the plan in the cluster; nil where there is none.
	Live *v1alpha1.BatchRelease
	// Next is the BatchRelease that the controller would write: metadata and
	// status of the live one, the spec of the commit. It is nil where Plan is.
	Next *v1alpha1.BatchRelease
	// Rival is the name of the plan that governs the same Deployment instead of Next;
	// empty without one.
	Rival string
	// Before is the template that was released last, or is on its way; nil
	// where the Deployment is not there.
	Before *corev1.PodTemplateSpec
	After  *corev1.PodTemplateSpec
	// Restored is the stable revision with which the controller creates the
	// Deployment again, since it was deleted; empty where it does not. After is the
	// template of that revision then.
	Restored string
	// Replicas of the Deployment once the commit is applied.
	Replicas int32
	// Approval is what the commit approves of the release under way; nil:
	// nothing new.
	Approval *plan.Approval
}

// Changes reports whether the template is another one than before.
func (r *Release) Changes() bool { return !plan.EqualTemplate(r.Before, r.After) }

// Previewer finds out what commits would do. It only reads: what it lets the
// API server try is a dry run.
type Previewer struct {
	// Client reads, and has the API server try what its user may write.
	Client client.Client
	// Schemas of the API server, for merging what may not be tried.
	Schemas openapi.Client
	// RemoteBases lets kustomizations have bases in other repositories.
	RemoteBases bool
}

// Preview renders a commit as the controller does and compares it with the
// cluster, all with the rights of the client. Whether the commit is signed as
// spec.verify asks is not looked at. The error is one of reading; what is
// wrong with the commit is in the Preview.
func (p Previewer) Preview(
	ctx context.Context, gs *v1alpha1.GitSource, store storer.EncodedObjectStorer, commit plumbing.Hash,
) (*Preview, error) {
	t, err := gittree.Open(store, commit)
	if err != nil {
		return nil, err
	}
	v := &preview{
		Preview: Preview{Commit: commit.String()}, gs: gs, c: p.Client, merger: newMerger(p.Schemas), tree: t,
		observer: apply.NewObserver(gs, p.Client, p.Client), applier: &apply.Applier{Source: gs, Client: p.Client}, wanted: inventory.Set{},
	}
	r := &desired.Reader{Source: gs, Mapper: p.Client.RESTMapper()}
	v.renderer = r
	if p.RemoteBases {
		dir, err := os.MkdirTemp("", "tranche-bases-")
		if err != nil {
			return nil, fmt.Errorf("making a folder for remote bases: %w", err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a leftover does no harm
		r.Bases = repository.NewBases(dir, gittree.Limits{}).Within(ctx, new(repository.BasesFor), time.Now())
	}
	set, err := r.Render(t)
	if err == nil {
		err = prune.RefuseEmpty(gs, set)
	}
	if err == nil {
		v.branch = newBranch(r, store, commit, set, t)
		set, err = v.govern(ctx, r, set, t)
	}
	if err == nil {
		v.branch.set = set
		err = v.look(ctx, set)
	}
	if ps := plan.ProblemsOf(err); len(ps) > 0 {
		v.Problems, err = append(v.Problems, ps...), nil
	}
	return &v.Preview, errors.Join(err, t.Err())
}

// preview is a Preview in the making.
type preview struct {
	Preview
	gs       *v1alpha1.GitSource
	c        client.Client
	merger   *merger
	tree     *gittree.Tree
	observer *apply.Observer
	applier  *apply.Applier
	set      *plan.Set
	wanted   inventory.Set
	branch   *branch
	renderer *desired.Reader
	// unread: another source of the branch has bases that are not read here.
	unread bool
}

// govern returns what of a commit counts, as far as that can be known without the keys
// of signers.
func (v *preview) govern(ctx context.Context, r *desired.Reader, set *plan.Set, t *gittree.Tree) (*plan.Set, error) {
	if v.gs.Spec.Approvals == nil || v.gs.Spec.Approvals.Signers == nil {
		return set, nil
	}
	approvals, _ := manifest.ReadApprovals(t, v.gs.Spec.ApprovalsPath(), v.gs.DefaultNamespace())
	h := desired.NewHistory(r, &desired.State{Commit: v.Commit, Set: set, Reads: t.Reads()})
	result, err := terms.GovernUnsigned(ctx, h, v.observer, approvals)
	if err != nil {
		return nil, err
	}
	v.Plans, v.Withheld, v.wanted = result.Changes, result.Withheld, result.Keeps
	return result.Set, nil
}

// look goes through what a commit says, and what it no longer says.
func (v *preview) look(ctx context.Context, set *plan.Set) error {
	v.set, v.Ignored = set, set.Ignored
	approvals, ignored := manifest.ReadApprovals(v.tree, v.gs.Spec.ApprovalsPath(), v.gs.DefaultNamespace())
	err := v.observer.ReadSources(ctx)
	if apierrors.IsForbidden(err) {
		v.observer.Sources, v.observer.LabelsOnly, err = &v1alpha1.GitSourceList{}, true, nil
	}
	if err != nil {
		return err
	}
	unknown := plan.UnknownApprovals(set.Releases, desired.WithoutOthers(approvals, v.observer.Sources, v.gs))
	v.Ignored = append(append(v.Ignored, ignored...), unknown...)
	early := apply.Prerequisites(set)
	for _, object := range set.Objects {
		if err := v.object(ctx, apply.NewTarget(set, object, early), approvals); err != nil {
			return err
		}
	}
	for i := range set.Releases {
		r := &set.Releases[i]
		object, err := apply.ReleaseObject(inventory.WithKind(r.Plan), r.File)
		if err != nil {
			return err
		}
		if err := v.object(ctx, &apply.Target{Object: object, Deferred: early[r.Plan.Namespace]}, nil); err != nil {
			return err
		}
	}
	before := inventory.Read(v.gs.Status.Inventory)
	gone := before.Without(v.wanted)
	v.NotListed = v.observer.LabelsOnly
	heirs, err := v.heirsOf(ctx, gone)
	if err != nil {
		return err
	}
	if err := v.gone(ctx, gone, heirs); err != nil {
		return err
	}
	elsewhere, err := desired.Elsewhere(ctx, v.branch.store, v.branch.commit, v.gs)
	if err != nil {
		return err
	}
	change := prune.Change{
		Source: v.gs, Before: before, Wanted: heirs.Certain().Union(v.wanted), Commit: v.Commit, Elsewhere: elsewhere, Releases: set.Releases,
	}
	if !v.unread {
		change.Unclear = heirs.Unclear()
	}
	return prune.CheckLimit(ctx, v.observer.As, change)
}

// heirsOf returns the GitSources to whose paths the commit moves objects. Whether the
// account of one may write them, and whether it takes the commit, is known to the
// controller alone.
func (v *preview) heirsOf(ctx context.Context, gone []inventory.Entry) (siblings.Heirs, error) {
	found, sources := siblings.Heirs{}, v.observer.Sources
	if v.observer.LabelsOnly { // this client may not list those of all namespaces
		sources = &v1alpha1.GitSourceList{}
		if err := v.c.List(ctx, sources, client.InNamespace(v.gs.Namespace)); err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("listing the GitSources of %s: %w", v.gs.Namespace, err)
		}
	}
	for i := range sources.Items {
		other := &sources.Items[i]
		if len(gone) == 0 || !siblings.Shares(other, v.gs) {
			continue
		}
		t, err := v.tree.Reopen()
		if err != nil {
			return nil, err
		}
		r := &desired.Reader{Source: other, Mapper: v.renderer.Mapper, Bases: v.renderer.Bases}
		set, err := r.Render(t)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			v.unread = v.unread || v.lacksBases(err)
			found.Add(other, gone, nil, "which may have it then and does not render")
		default:
			found.Add(other, gone, inventory.OfSet(set), "")
		}
	}
	return found, nil
}

// lacksBases reports whether a path does not render here for its remote bases. The controller may have them.
func (v *preview) lacksBases(err error) bool {
	return desired.IsUnfetched(err) || v.renderer.Bases == nil && strings.Contains(err.Error(), "remote bases are off")
}

// object finds out what becomes of an object of the commit.
func (v *preview) object(ctx context.Context, t *apply.Target, approvals []plan.Approval) error {
	v.wanted.Add(t.Entry())
	if p := credentials.NotFromGit(v.gs, t.Object); p != nil {
		v.Problems = append(v.Problems, p)
		return nil
	}
	o := Object{Object: t.Object}
	err := v.observer.Observe(ctx, t)
	ps := plan.ProblemsOf(err)
	switch {
	case apierrors.IsForbidden(err):
		o.Effect, o.Because = EffectUnknown, "no right to read it"
	case len(ps) > 0:
		v.Problems = append(v.Problems, ps...)
		return nil
	case err != nil:
		return err
	case t.Mode == apply.Skip:
		o.Effect, o.Because = EffectLeave, "annotation "+v1alpha1.AnnotationReconcile+" is "+v1alpha1.AnnotationReconcileDisabled
	default:
		if err := v.compare(ctx, t, &o); err != nil {
			return err
		}
		if err := v.release(ctx, t, o.After, approvals); err != nil {
			return err
		}
	}
	v.Objects = append(v.Objects, o)
	return nil
}

// compare finds out how an object would change.
func (v *preview) compare(ctx context.Context, t *apply.Target, o *Object) error {
	after, merged, err := v.trial(ctx, t)
	if err != nil {
		ps := apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, v.gs, err)
		if !apiproblem.IsImmutable(err) || !apply.MayRecreate(t) {
			v.Problems = append(v.Problems, ps...)
			o.Effect = EffectRefuse
			return nil
		}
		o.Because = "deleted and created again, as annotation " + v1alpha1.AnnotationForce + " lets it"
		after = v.applier.Manifest(t.Object)
	}
	o.Merged, o.After = merged, shown(t, after)
	if t.Live == nil {
		o.Effect = EffectCreate
		return nil
	}
	o.Before = shown(t, t.Live)
	if o.Effect = EffectChange; equality.Semantic.DeepEqual(o.Before.Object, o.After.Object) {
		o.Effect = EffectNone
	}
	return nil
}

// trial returns an object as it would be, by the API server where it lets the
// client try, else merged here.
func (v *preview) trial(ctx context.Context, t *apply.Target) (u *unstructured.Unstructured, merged bool, err error) {
	u, err = v.body(t)
	if err == nil && t.GroupKind() == inventory.ReleaseKind {
		v.mark(u, t.Live)
	}
	if err != nil || t.Deferred {
		return u, true, err
	}
	asked := u.DeepCopy()
	err = v.applier.DryRunApply(ctx, asked)
	if err == nil && t.Mode == apply.ExceptRollout && t.Live != nil && !isHeld(t.Live) {
		// The template is tried for what is wrong with it; only the controller may write that
		// of a held Deployment.
		err = v.applier.DryRunRollout(ctx, t)
	}
	switch {
	case err == nil:
		return asked, false, nil
	case !isForbidden(err):
		return nil, false, err
	case t.Live == nil:
		return u, true, nil
	}
	u, err = v.merger.merge(t.Live, u)
	return u, true, err
}

// mark gives a plan the labels of its source that it has got from a controller
// that shares the work with others.
func (v *preview) mark(u, live *unstructured.Unstructured) {
	if live == nil {
		return
	}
	labels := u.GetLabels()
	for k, value := range v.gs.Labels {
		if live.GetLabels()[k] == value {
			labels[k] = value
		}
	}
	u.SetLabels(labels)
}

// isForbidden tells a missing right from the answer of a policy.
func isForbidden(err error) bool {
	return apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy")
}

func isHeld(u *unstructured.Unstructured) bool { return v1alpha1.HasHeld(u.GetLabels()) }

// body is what would be applied of an object. If a plan governs a Deployment, or did,
// its template and the fields of its hold stay as they are.
func (v *preview) body(t *apply.Target) (*unstructured.Unstructured, error) {
	if !templateApart(t) || t.Live == nil {
		u := v.applier.Body(&apply.Target{Object: t.Object, Autoscaled: t.Autoscaled, Live: t.Live})
		return u, keepReplicas(t, u)
	}
	u, err := v.applier.Rest(t)
	if err != nil {
		return nil, err
	}
	if strategy, ok, _ := unstructured.NestedFieldCopy(t.Object.Object, "spec", "strategy"); ok && !isHeld(t.Live) {
		if err := unstructured.SetNestedField(u.Object, strategy, "spec", "strategy"); err != nil {
			return nil, fmt.Errorf("setting spec.strategy of %s: %w", t, err)
		}
	}
	return u, keepReplicas(t, u)
}

// keepReplicas gives what is tried the size that an apply leaves as it is. It hands the
// field over before, which a dry run cannot.
func keepReplicas(t *apply.Target, u *unstructured.Unstructured) error {
	if !t.KeepsReplicas() {
		return nil
	}
	return apply.KeepLive(u, t.Live, "replicas")
}

// shown is an object as it is shown: without what the API server sets, and
// without what only the controller does.
func shown(t *apply.Target, u *unstructured.Unstructured) *unstructured.Unstructured {
	u = apply.WithoutServerFields(u)
	unstructured.RemoveNestedField(u.Object, "metadata", "finalizers")
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", "deployment.kubernetes.io/revision")
	if t.GroupKind() == inventory.ReleaseKind {
		for _, key := range apply.CommitAnnotations {
			unstructured.RemoveNestedField(u.Object, "metadata", "annotations", key)
		}
	}
	if annotations, ok, _ := unstructured.NestedMap(u.Object, "metadata", "annotations"); ok && len(annotations) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	switch {
	case templateApart(t):
		unstructured.RemoveNestedField(u.Object, "spec", "template")
	case t.GroupKind() == inventory.SecretKind:
		foldStringData(u)
	case t.GroupKind() == inventory.ReleaseKind:
		for _, field := range []string{"template", "deploymentStrategy", "commit", "approvalsSince", "approval", "serviceAccountName",
			"reviewApprovals", "requireSignedApprovals"} {
			unstructured.RemoveNestedField(u.Object, "spec", field)
		}
	}
	return u
}

// foldStringData puts what a Secret has as text to its data, as the API server does.
func foldStringData(u *unstructured.Unstructured) {
	text, _, _ := unstructured.NestedStringMap(u.Object, "stringData")
	data, _, _ := unstructured.NestedStringMap(u.Object, "data")
	if data == nil {
		data = map[string]string{}
	}
	for k, v := range text {
		data[k] = base64.StdEncoding.EncodeToString([]byte(v))
	}
	unstructured.RemoveNestedField(u.Object, "stringData")
	if len(data) > 0 {
		_ = unstructured.SetNestedStringMap(u.Object, data, "data") // the object is a map
	}
}

// release finds out what becomes of the pod template of a Deployment.
func (v *preview) release(ctx context.Context, t *apply.Target, after *unstructured.Unstructured, approvals []plan.Approval) error {
	if !templateApart(t) {
		return nil
	}
	r := Release{Deployment: t.Object, Replicas: replicasOf(after)}
	plans, err := v.observer.PlansFor(ctx, client.ObjectKeyFromObject(t))
	if err != nil {
		return err
	}
	if len(plans) > 0 {
		r.Live = &plans[0]
	}
	if t.Release != nil && (isLeftAlone(t.Release.Plan) || isLeftAlone(r.Live)) {
		return nil // no release begins
	}
	if t.Release != nil {
		r.Plan = t.Release.Plan
		if r.Next, err = v.next(ctx, t.Release, plans); err != nil {
			return err
		}
		r.Rival = v.branch.rival(v.gs, r.Next, plans)
	}
	if err := v.templates(ctx, t, &r); err != nil {
		return err
	}
	v.approve(t, &r, approvals)
	v.Releases = append(v.Releases, r)
	return nil
}

// isLeftAlone is [inventory.IsLeftAlone] for a plan, which may be nil.
func isLeftAlone(br *v1alpha1.BatchRelease) bool {
	return br != nil && br.Annotations[v1alpha1.AnnotationReconcile] == v1alpha1.AnnotationReconcileDisabled
}

// approve finds the approval that the commit brings for the release under way.
func (v *preview) approve(t *apply.Target, r *Release, approvals []plan.Approval) {
	if t.Release == nil || r.Live == nil || r.Live.Status.Phase == v1alpha1.PhaseCompleted || r.Changes() {
		return
	}
	a, ignored := plan.MatchApproval(t.Release, r.Live.Spec.Commit, approvals)
	v.Ignored = append(v.Ignored, ignored...)
	if now := r.Live.Spec.Approval; a != nil && (now == nil || now.Step != a.Spec.Step || now.Revision != a.Spec.Revision) {
		r.Approval = a
	}
}

// templates finds the templates before and after. If Git brought both, they are as Git
// has them. A Deployment that was there before its plan has a template with the API
// server's defaults, and then the other has them, too.
func (v *preview) templates(ctx context.Context, t *apply.Target, r *Release) (err error) {
	if t.Restored != nil {
		r.Restored = t.Restored.Revision
		r.After, err = t.Restored.Decode()
		return err
	}
	if r.After, err = desired.TemplateOf(t.Object); err != nil || t.Live == nil {
		return err
	}
	if r.Live != nil && r.Live.Spec.Template != nil {
		r.Before = r.Live.Spec.Template
		return nil
	}
	if r.Before, err = desired.TemplateOf(plan.Object{Unstructured: t.Live}); err != nil {
		return err
	}
	whole, _, err := v.trial(ctx, &apply.Target{Object: t.Object, Live: t.Live, Autoscaled: t.Autoscaled})
	if err != nil {
		return nil //nolint:nilerr // what is wrong with it has been said already
	}
	r.After, err = desired.TemplateOf(plan.Object{Unstructured: whole})
	return err
}

// replicasOf is spec.replicas, or what the API server sets.
func replicasOf(u *unstructured.Unstructured) int32 {
	if u == nil {
		return 0
	}
	if n, ok, _ := unstructured.NestedInt64(u.Object, "spec", "replicas"); ok {
		return int32(n)
	}
	return 1
}

// gone finds out what becomes of what left the branch.
func (v *preview) gone(ctx context.Context, gone []inventory.Entry, heirs siblings.Heirs) error {
	used, err := inventory.ReadUsed(ctx, v.c, gone)
	if err != nil {
		return err
	}
	for _, e := range gone {
		o := Object{Object: plan.Object{Unstructured: inventory.Named(e)}}
		live, err := inventory.GetServed(ctx, v.c, e)
		switch {
		case apierrors.IsForbidden(err):
			o.Effect, o.Because = EffectUnknown, "it left the branch; no right to read it"
		case err != nil:
			return err
		case live == nil:
			continue
		default:
			o.Before = live
			o.Effect, o.Because = v.fate(live, used)
			if h, ok := heirs[e.ID()]; ok && inventory.IsOwned(live, v.gs) {
				o.Effect, o.Because = effectOf(h)
			}
		}
		v.Objects = append(v.Objects, o)
	}
	return nil
}

// effectOf is what becomes of an object with an heir, and why.
func effectOf(h siblings.Heir) (Effect, string) {
	if h.Cannot != "" {
		return EffectKeep, h.String() + ", " + h.Cannot
	}
	if h.Suspended {
		return EffectHandOver, h.String() + " is suspended, and applies it once it is resumed, where its account may"
	}
	return EffectHandOver, h.String() + " applies it then, where its account may"
}

// fate is what becomes of an object that left the branch, and why.
func (v *preview) fate(live *unstructured.Unstructured, used inventory.Used) (Effect, string) {
	if live.GroupVersionKind().GroupKind() == inventory.ReleaseKind && inventory.IsOwned(live, v.gs) {
		return EffectPrune, v.afterPlan(live)
	}
	if !v.gs.Spec.Prune {
		return EffectKeep, "spec.prune is false"
	}
	if verdict, because := prune.Decide(live, v.gs, used); verdict != prune.Delete {
		return EffectKeep, because
	}
	return EffectPrune, ""
}

// afterPlan says what becomes of the Deployment of a plan that goes, which it
// does even where nothing else is pruned.
func (v *preview) afterPlan(live *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(live.Object, "spec", "workloadRef", "name")
	d := inventory.Entry{GVK: appsv1.SchemeGroupVersion.WithKind(inventory.DeploymentKind.Kind), Namespace: live.GetNamespace(), Name: name}
	for i := range v.set.Releases {
		if p := v.set.Releases[i].Plan; p.Namespace == d.Namespace && p.Spec.WorkloadRef.Name == d.Name {
			return "BatchRelease " + plan.ReleaseName(p) + " takes over from it, with the release that is under way"
		}
	}
	if _, stays := v.wanted[d.ID()]; stays {
		return "its Deployment goes on without a plan"
	}
	return ""
}

// templateApart reports whether the template of an object is shown as a release, and not with
// the object.
func templateApart(t *apply.Target) bool {
	return t.GroupKind() == inventory.DeploymentKind && (t.Release != nil || t.Mode != apply.Full)
}
