package stage

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A commit is applied whole or not at all. So one object that the API server refuses
// would close the gates of all other Deployments. It would also keep a revert of one of
// them from counting. gitsync takes three things out of a commit that it does not
// apply. It does so for BatchReleases that are in the cluster and whose own objects are
// not refused. A rollback counts also if the Deployment is refused: its template has run before.
//
//   - the approval of the release that is under way, if the commit has the same terms
//     for the Deployment as the cluster. With other terms the approval might open
//     another gate than the one that its author saw.
//   - the template, if it is that of the stable revision: a rollback. It goes by the
//     rollback steps of the plan in the cluster.
//   - spec.paused, if it is true: it can only keep a release from moving. If it is false, it counts
//     where an approval or a template counts. Else a paused release could not go back.
//
// All other fields of the BatchRelease stay as they are, so nothing begins that needs
// the rest of the commit. Besides, what was deleted or changed of the last commit that
// was applied whole is put right, except for its BatchReleases.

// MoveOn writes what counts of a refused commit to the BatchReleases. It returns the names of
// those for which the commit has more.
func (s *Stage) MoveOn(ctx context.Context) (waiting []string, r Result, ps plan.Problems) {
	for i, t := range s.Releases {
		release, then := &s.Set.Releases[i], s.Then[i]
		now := s.Governing[plan.ReleaseName(then)]
		if t.Live == nil || t.Mode != apply.Full || now == nil || now.Name != then.Name || !inventory.IsOwned(now, s.Applier.Source) {
			continue
		}
		m := &move{stage: s, t: t, release: release, then: then, now: now}
		waits, err := m.decide(ctx)
		if err == nil && m.next != nil {
			err = m.write(ctx)
		}
		switch {
		case apierrors.IsConflict(err):
			s.result.Conflicted = true
		case err != nil:
			ps = append(ps, apiproblem.Of(v1alpha1.ReasonApplyFailed, t.Object, s.Applier.Source, err)...)
		case waits:
			waiting = append(waiting, "BatchRelease "+plan.ReleaseName(then))
		}
	}
	return waiting, s.result, ps
}

// move is what a BatchRelease gets of a commit that is refused.
type move struct {
	stage   *Stage
	t       *apply.Target
	release *plan.Release
	// then is the BatchRelease as the commit has it, and now as the cluster has it.
	then, now *v1alpha1.BatchRelease
	// next is the spec to write; nil: none.
	next *v1alpha1.BatchReleaseSpec
	// back: next leads to the stable revision.
	back bool
}

// decide finds out what counts, and reports whether the commit has more.
func (m *move) decide(ctx context.Context) (waits bool, err error) {
	then, now := &m.then.Spec, &m.now.Spec
	deployment, err := m.deployment(ctx)
	if deployment == nil || err != nil {
		return !m.isSame() || !equality.Semantic.DeepEqual(then.Approval, now.Approval), err
	}
	next := now.DeepCopy()
	next.ReviewApprovals, next.RequireSignedApprovals = then.ReviewApprovals, then.RequireSignedApprovals
	next.Paused = then.Paused
	switch {
	case m.back:
		next.Template, next.Commit = then.Template.DeepCopy(), then.Commit
		next.ApprovalsSince, next.Approval = then.ApprovalsSince.DeepCopy(), then.Approval.DeepCopy()
	case m.isSame() && m.sameTerms(deployment):
		next.Approval = then.Approval.DeepCopy()
	default:
		next.Paused = then.Paused || m.ownsPaused()
		waits = true
	}
	m.setNext(next)
	return waits, nil
}

// deployment returns the Deployment of the release; nil: nothing of the commit counts for it. It
// finds out whether the commit leads back.
func (m *move) deployment(ctx context.Context) (d *apply.Target, err error) {
	d = find(m.stage.Targets, inventory.DeploymentKind, m.release.Deployment.GetNamespace(), m.release.Deployment.GetName())
	if m.t.Refused || d == nil || d.Live == nil || d.Mode != apply.ExceptRollout {
		return nil, nil
	}
	if !m.isSame() {
		m.back, err = m.isBack(ctx)
	}
	if d.Refused && !m.back {
		return nil, err
	}
	return d, err
}

// setNext sets the spec to write, if it is another one than the cluster has.
func (m *move) setNext(next *v1alpha1.BatchReleaseSpec) {
	compared := next.DeepCopy()
	compared.Paused = next.Paused || m.now.Spec.Paused && !m.ownsPaused() // a user's
	if !equality.Semantic.DeepEqual(compared, &m.now.Spec) {
		m.next = next
	}
}

// isSame reports whether the commit has the release that the cluster has.
func (m *move) isSame() bool {
	return m.then.Spec.Commit == m.now.Spec.Commit && plan.EqualTemplate(m.then.Spec.Template, m.now.Spec.Template)
}

// sameTerms reports whether the commit decides about the releases of a Deployment as
// the cluster does.
func (m *move) sameTerms(deployment *apply.Target) bool {
	ready, _, _ := unstructured.NestedInt64(deployment.Live.Object, "spec", "minReadySeconds")
	minReady := int32(ready) //nolint:gosec // the API server has checked it
	spec := &m.now.Spec
	now := plan.NewTerms(m.now.Namespace, spec.WorkloadRef.Name, &spec.Strategy, spec.DeploymentStrategy, minReady, nil)
	return m.release.Terms() == now
}

// ownsPaused reports whether the branch has paused the release, and no user.
func (m *move) ownsPaused() bool {
	owned, err := fieldmanager.AppliedSpec(m.t.Live, "paused")
	return m.now.Spec.Paused && err == nil && len(owned) > 0
}

// isBack reports whether the template of the commit is that of the stable revision, as
// rollout has recorded it. After a release, that of the one before counts, too. The
// ConfigMaps and Secrets of the branch that it refers to have to be there.
func (m *move) isBack(ctx context.Context) (bool, error) {
	revisions, err := takeover.Records(ctx, m.stage.Observer.Own, m.now.Namespace, m.now.UID)
	if err != nil {
		return false, err
	}
	var records []plan.Record
	for i := range revisions {
		if r, err := plan.ReadRecord(&revisions[i]); err == nil && r.Order > 0 {
			records = append(records, r)
		}
	}
	slices.SortFunc(records, func(a, b plan.Record) int { return int(b.Order - a.Order) })
	ways := 1
	if m.now.Status.Phase == v1alpha1.PhaseCompleted {
		ways = 2
	}
	digest := plan.TemplateDigest(m.then.Spec.Template)
	if !slices.ContainsFunc(records[:min(len(records), ways)], func(r plan.Record) bool { return r.Sent != "" && r.Sent == digest }) {
		return false, nil
	}
	return m.hasAll(m.then.Spec.Template)
}

// hasAll reports whether what a template refers to of the branch is in the cluster.
func (m *move) hasAll(template *corev1.PodTemplateSpec) (bool, error) {
	used := inventory.Used{}
	if err := used.AddTemplate("", m.now.Namespace, template); err != nil {
		return false, err
	}
	for _, t := range m.stage.Targets {
		ok := used.Has(t.GroupKind(), t.GetNamespace(), t.GetName())
		if gk := t.GroupKind(); ok && (gk == inventory.ConfigMapKind || gk == inventory.SecretKind) &&
			(t.Live == nil || t.Mode == apply.AfterDeletion) {
			return false, nil
		}
	}
	return true, nil
}

// write applies the next spec, and of all else what gitsync has applied before. Fields
// of others stay theirs.
func (m *move) write(ctx context.Context) error {
	u, err := m.body()
	if err != nil {
		return err
	}
	if err := m.stage.Applier.Write(ctx, u); err != nil {
		return err
	}
	because := "approval and pause count, though the commit is refused"
	if m.back {
		because = "a rollback counts, though the commit is refused"
	}
	m.stage.logApplied(m.t, apply.Configured, because)
	return nil
}

// moved are the fields of a BatchRelease that a refused commit may change.
var moved = []string{"paused", "template", "commit", "approvalsSince", "approval", "reviewApprovals", "requireSignedApprovals"}

func (m *move) body() (*unstructured.Unstructured, error) {
	owned, err := fieldmanager.Fields(m.t.Live, v1alpha1.ManagerGitSync, false)
	if err != nil {
		return nil, err
	}
	spec, _, _ := unstructured.NestedMap(m.t.Live.Object, "spec")
	maps.DeleteFunc(spec, func(name string, _ any) bool {
		field := owned.WithPrefix(fieldmanager.Name("spec"))
		return !field.Members.Has(fieldmanager.Name(name)) && field.WithPrefix(fieldmanager.Name(name)).Empty()
	})
	next, err := runtime.DefaultUnstructuredConverter.ToUnstructured(m.next)
	if err != nil {
		return nil, fmt.Errorf("encoding the spec of BatchRelease %s: %w", plan.ReleaseName(m.now), err)
	}
	for _, name := range moved {
		if delete(spec, name); next[name] != nil {
			spec[name] = next[name]
		}
	}
	fieldmanager.WithoutNulls(spec)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(m.t.Live.GroupVersionKind())
	u.SetNamespace(m.t.Live.GetNamespace())
	u.SetName(m.t.Live.GetName())
	u.SetResourceVersion(m.t.Live.GetResourceVersion())
	u.SetLabels(ownedOf(owned, "labels", m.t.Live.GetLabels()))
	annotations := ownedOf(owned, "annotations", m.t.Live.GetAnnotations())
	for _, key := range apply.CommitAnnotations {
		if delete(annotations, key); m.then.Annotations[key] != "" && m.then.Spec.Commit == m.next.Commit {
			annotations[key] = m.then.Annotations[key]
		} else if now := m.now.Annotations[key]; now != "" && m.now.Spec.Commit == m.next.Commit {
			annotations[key] = now
		}
	}
	u.SetAnnotations(annotations)
	return u, nil
}

// ownedOf returns those labels or annotations that a set of fields has.
func ownedOf(owned *fieldpath.Set, field string, all map[string]string) map[string]string {
	of := owned.WithPrefix(fieldmanager.Name("metadata")).WithPrefix(fieldmanager.Name(field))
	result := map[string]string{}
	for key, value := range all {
		if of.Members.Has(fieldmanager.Name(key)) {
			result[key] = value
		}
	}
	return result
}
