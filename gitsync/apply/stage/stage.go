package stage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Input is what a [Stage] works on.
type Input struct {
	Applier  *apply.Applier
	Observer *apply.Observer
	// Status writes the status of BatchReleases, as the controller.
	Status client.Client
	// Set is what of the commit is applied, Targets are its objects, and Releases its
	// BatchReleases, in the order of Set.Releases.
	Set      *plan.Set
	Targets  []*apply.Target
	Releases []*apply.Target
	// Then are the BatchReleases as the commit has them, in the same order.
	Then []*v1alpha1.BatchRelease
	// Governing are the BatchReleases of the cluster that govern the Deployments of Set, by
	// namespace and name of the commit's.
	Governing map[string]*v1alpha1.BatchRelease
	// Before is the inventory at the start of the sync.
	Before *v1alpha1.Inventory
	// Autoscaled are the entries that had an autoscaler when all of a commit was applied last.
	Autoscaled map[string]bool
	// Asked is true if a user has asked for the sync.
	Asked bool
	// Branch and Tip are what the sync is about. The Applier has the commit to apply, which is
	// an older one while the tip waits for other sources or is refused.
	Branch, Tip string
	// Cache and Contests are of earlier syncs. A Stage adds to them.
	Cache    DryRunCache
	Contests Contests

	Log logr.Logger
	// Record is called for each event at once. A crash later in the stage would else lose it,
	// since the next sync finds the object as it has to be.
	Record func(Event)
	// BeforeEnd is called before a BatchRelease is deleted whose plan is gone from Git. The
	// releases that have ended by then have to be in the status of the GitSource.
	BeforeEnd func(context.Context, inventory.Entry) error
}

// Event is about an object that was applied.
type Event struct {
	Object *unstructured.Unstructured
	// Type is [corev1.EventTypeNormal] or [corev1.EventTypeWarning].
	Type string
	apply.Note
}

// Result is what a [Stage] leaves to be done.
type Result struct {
	// Waiting are the Deployments whose hand-back is waited for. Nothing is pruned before.
	Waiting []client.ObjectKey
	// Replaced are the BatchReleases that others have taken over from. Staying are those that
	// no other could take over from yet.
	Replaced, Staying []inventory.Entry
	// Due is when drift is to be reverted that stays until then; zero: none does.
	Due time.Time
	// Conflicted is true if an object has changed since it was read, so that the next sync has
	// to restore it.
	Conflicted bool
	// Refused is true if the first object of the commit was refused, so that nothing of it is
	// in the cluster.
	Refused bool
}

// Stage applies one commit. It tries all objects with the API server ([Stage.DryRun]), and then
// writes those that the cluster does not have ([Stage.Apply]). It restores single objects of
// a commit that was applied ([Stage.Restore]).
type Stage struct {
	Input
	result Result
}

// New returns a stage that has written nothing.
func New(in Input) *Stage { return &Stage{Input: in} }

// all returns the targets in the order of application.
func (s *Input) all() []*apply.Target { return slices.Concat(s.Targets, s.Releases) }

// DryRun has the API server check everything, except for objects that need a CRD or Namespace
// of the same commit. [Stage.Apply] checks those, and the first object of a first sync. An earlier
// answer of the API server counts for a while. The error has the problems of all objects.
func (s *Stage) DryRun(ctx context.Context) error {
	first := s.leaveFirst()
	err := s.dryRun(ctx, false)
	if first == nil || len(plan.ProblemsOf(err)) == 0 {
		return err
	}
	first.Untried = false
	ps, failed := s.dryRunOne(ctx, first)
	if failed != nil {
		return failed
	}
	return append(ps, plan.ProblemsOf(err)...)
}

// dryRun checks the objects that are deferred, or those that are not. CRDs are first: of a kind
// whose CRD stays as it is, nothing has to wait.
func (s *Stage) dryRun(ctx context.Context, deferred bool) error {
	var crds, others []*apply.Target
	for _, t := range s.all() {
		if t.GroupKind() == inventory.CRDKind {
			crds = append(crds, t)
		} else {
			others = append(others, t)
		}
	}
	ps, err := s.dryRunAll(ctx, crds, deferred)
	if err != nil {
		return err
	}
	same := map[schema.GroupKind]bool{}
	for _, t := range crds {
		if t.Deferred == deferred && t.Unchanged {
			same[inventory.DefinedBy(t.Unstructured)] = true
		}
	}
	for _, t := range others {
		if same[t.GroupKind()] {
			t.Deferred = t.NamespacePending
		}
	}
	more, err := s.dryRunAll(ctx, others, deferred)
	if err != nil {
		return err
	}
	return apiproblem.Or(append(ps, more...), nil)
}

// fewTargets is how many objects are tried one after the other. A thousand small sources that
// come up together keep the API server busy as it is.
const fewTargets = 8

// dryRunAll checks those of some objects that are deferred, or those that are not. Many are
// checked a few at the same time: an answer is mostly waited for.
func (s *Stage) dryRunAll(ctx context.Context, targets []*apply.Target, deferred bool) (plan.Problems, error) {
	targets = slices.DeleteFunc(slices.Clone(targets), func(t *apply.Target) bool { return t.Deferred != deferred || t.Untried })
	found, failed := make([]plan.Problems, len(targets)), make([]error, len(targets))
	try := func(i int) { found[i], failed[i] = s.dryRunOne(ctx, targets[i]) }
	if len(targets) > fewTargets {
		apply.AtOnce(len(targets), try)
	} else {
		for i := range targets {
			try(i)
		}
	}
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(found...), nil
}

// dryRunOne checks an object, unless an earlier answer counts.
func (s *Stage) dryRunOne(ctx context.Context, t *apply.Target) (plan.Problems, error) {
	if absent, ps, err := s.Observer.SettleAssumed(ctx, s.Applier, t); absent || err != nil || len(ps) > 0 {
		return ps, err
	}
	if t.Unchanged = s.Cache.Has(s.Applier, t); t.Unchanged {
		return nil, nil
	}
	found, err := s.Applier.DryRun(ctx, t)
	if err != nil {
		return nil, err
	}
	t.Refused = len(found) > 0
	return found, nil
}

// servedWithin is how long the API server may take to serve a CRD that was there already and
// has changed. The API server does not report when it does.
const servedWithin = 10 * time.Second

// dryRunDeferred checks what had to wait, again and again if a CRD has changed.
func (s *Stage) dryRunDeferred(ctx context.Context, redefined bool) error {
	err := s.dryRun(ctx, true)
	if err == nil || !redefined {
		return err
	}
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, servedWithin, false, func(ctx context.Context) (bool, error) {
		err = s.dryRun(ctx, true)
		return err == nil, nil
	}) // its own error is that of the time, and the last one is reported
	return err
}

// Apply writes everything in the order of application: first the objects that others need, and
// last the BatchReleases, which begin releases. The result counts also with an error.
func (s *Stage) Apply(ctx context.Context) (Result, error) {
	redefined, err := s.applyPrerequisites(ctx)
	if err != nil {
		return s.result, err
	}
	if err := s.dryRunDeferred(ctx, redefined); err != nil {
		return s.result, hintAtPrerequisites(err, s.Targets)
	}
	for _, t := range s.Targets {
		if t.Prerequisite {
			continue
		}
		if err := s.afterHandBack(ctx, t); err != nil {
			return s.result, err
		}
		if err := s.applyOne(ctx, t); err != nil {
			return s.result, err
		}
	}
	for _, t := range s.Releases {
		if err := s.applyRelease(ctx, t); err != nil {
			return s.result, err
		}
	}
	return s.result, s.endRivals(ctx)
}

// applyPrerequisites writes CRDs and Namespaces. It reports whether a CRD has changed that was
// there already.
func (s *Stage) applyPrerequisites(ctx context.Context) (redefined bool, err error) {
	for _, t := range s.Targets {
		if !t.Prerequisite {
			continue
		}
		if err := s.applyOne(ctx, t); err != nil {
			return redefined, err
		}
		if t.GroupKind() != inventory.CRDKind {
			continue
		}
		redefined = redefined || t.Live != nil && t.Applied != nil && t.Applied.GetGeneration() != t.Live.GetGeneration()
		if t.Mode != apply.Full || t.Live != nil && apply.IsEstablished(t.Live) {
			continue
		}
		if err := s.Applier.AwaitCRD(ctx, t); err != nil {
			return redefined, s.problemOf(v1alpha1.ReasonApplyFailed, t.Object, err)
		}
	}
	return redefined, nil
}

// problemOf returns the problems of an object that an error has, or the error.
func (s *Input) problemOf(reason string, o plan.Object, err error) error {
	return apiproblem.Or(apiproblem.Of(reason, o, s.Applier.Source, err), err)
}

// hintAtPrerequisites says what of a commit is there already when the rest is refused.
func hintAtPrerequisites(err error, targets []*apply.Target) error {
	var done []string
	for _, t := range targets {
		if t.Prerequisite && t.Mode == apply.Full && !t.Unchanged {
			done = append(done, t.String())
		}
	}
	if len(done) == 0 {
		return err
	}
	for _, p := range plan.ProblemsOf(err) {
		p.Hint = strings.TrimPrefix(p.Hint+"; nothing of the commit is applied but "+plan.JoinNames(done)+
			", which had to be there to try it", "; ")
	}
	return err
}

// applyRelease writes a BatchRelease, after it has lost what it may not hand on.
func (s *Stage) applyRelease(ctx context.Context, t *apply.Target) error {
	if err := s.markReturn(ctx, t); err != nil {
		return err
	}
	heir := apply.Takeover{Applier: s.Applier, Own: s.Observer.Own, Status: s.Status}
	taken, err := heir.Disinherit(ctx, t, s.Governing[t.GetNamespace()+"/"+t.GetName()])
	if taken != nil {
		s.Record(Event{t.Unstructured, corev1.EventTypeWarning, *taken})
	}
	if err != nil {
		return err
	}
	return s.applyOne(ctx, t)
}

func (s *Input) successor() takeover.Successor {
	return takeover.Successor{Source: s.Applier.Source, Client: s.Applier.Client, Own: s.Observer.Own, Status: s.Status}
}

// markReturn marks the BatchRelease of a plan that is created again once the BatchRelease is
// gone.
func (s *Input) markReturn(ctx context.Context, t *apply.Target) error {
	if t.Mode != apply.AfterDeletion || !inventory.IsOwned(t.Live, s.Applier.Source) {
		return nil
	}
	err := inventory.MarkReturn(ctx, s.Applier.Client, t.Live, s.Tip)
	return s.problemOf(v1alpha1.ReasonApplyFailed, t.Object, err)
}

// applyOne writes one object, and says so.
func (s *Stage) applyOne(ctx context.Context, t *apply.Target) error {
	if created, err := s.createUntried(ctx, t); created || err != nil {
		return err
	}
	if s.leaves(t) {
		return nil
	}
	before := t.Live
	change, err := s.Applier.Apply(ctx, t)
	// If rollout has held it since, the apply ends in a conflict, and the next sync finds
	// a Deployment that is there.
	restored := t.Restored != nil && change == apply.Created
	if restored {
		s.record(t, corev1.EventTypeWarning, v1alpha1.ReasonDriftUndone,
			fmt.Sprintf("%s was deleted, and is there again at its stable revision %s", t, t.Restored.Revision))
		s.logApplied(t, change, "it was deleted")
	}
	switch {
	case apierrors.IsConflict(err):
		return err
	case err != nil && s.Applier.IsHeldSince(ctx, t):
		return t.HeldSince()
	case err != nil:
		t.Refused = true
		return s.problemOf(v1alpha1.ReasonApplyFailed, t.Object, err)
	case change == apply.Unchanged:
		s.Cache.Add(s.Applier, t)
		return nil
	case restored:
		return nil
	}
	s.Cache.AddApplied(s.Applier, t)
	return s.report(t, before, change)
}

// report says what an apply has changed, and why it did so.
func (s *Stage) report(t *apply.Target, before *unstructured.Unstructured, change apply.Change) error {
	because, taken := "the branch says so", len(t.Conflicts) > 0 && change == apply.Configured
	commit := s.Branch + "@" + plan.ShortCommit(s.Applier.Commit)
	if apply.IsApplied(s.Applier.Source, s.Applier.Commit) && !t.HandedOver {
		id := t.Entry().ID()
		drifted, err := t.Drift(before, change, inventory.Has(s.Before, id), s.Autoscaled[id])
		if err != nil {
			return err
		}
		if drifted == "" && change == apply.Configured {
			return nil // others wrote what is theirs meanwhile, or what Git says
		}
		if drifted != "" {
			because, taken = "another hand changed it", false
			s.Contests.revert(t, time.Now(), drifted)
			s.record(t, corev1.EventTypeWarning, v1alpha1.ReasonDriftUndone, fmt.Sprintf("%s, and is again as %s says", drifted, commit))
		}
	}
	if taken {
		s.record(t, corev1.EventTypeWarning, v1alpha1.ReasonFieldConflict, fmt.Sprintf("%s: other managers had other values of "+
			"%s; it is as %s says now. Where they write again, take the fields out of one of the two", t, plan.JoinNames(t.Conflicts), commit))
	}
	if change == apply.Recreated {
		s.record(t, corev1.EventTypeNormal, v1alpha1.ReasonRecreated,
			fmt.Sprintf("%s was deleted and created again, as annotation %s lets it", t, v1alpha1.AnnotationForce))
	}
	s.logApplied(t, change, because)
	return nil
}

func (s *Input) record(t *apply.Target, kind, reason, message string) {
	s.Record(Event{t.Unstructured, kind, apply.Note{Reason: reason, Message: message}})
}

func (s *Input) logApplied(t *apply.Target, change apply.Change, because string) {
	s.Log.Info("Object applied", "object", t.String(), "change", change.String(), "commit", s.Applier.Commit, "because", because)
}

// leaves reports whether drift of an object stays for a while, since another manager changes
// it again after each revert. A new commit, and a user who asks for a sync, do not wait.
func (s *Stage) leaves(t *apply.Target) bool {
	if t.Live == nil || t.Unchanged || s.Asked || !apply.IsApplied(s.Applier.Source, s.Applier.Commit) {
		return false
	}
	now := time.Now()
	wait := s.Contests[t.Entry().ID()].Due(now)
	if wait <= 0 {
		return false
	}
	if due := now.Add(wait); s.result.Due.IsZero() || due.Before(s.result.Due) {
		s.result.Due = due
	}
	return true
}

// afterHandBack ends what a plan that is gone from Git has begun. The plan goes first,
// then rollout hands back, and only then gitsync applies the whole manifest. The plan
// goes even where nothing is pruned, or two would write the template.
func (s *Stage) afterHandBack(ctx context.Context, t *apply.Target) error {
	if t.Mode != apply.AfterHandBack {
		return nil
	}
	plans, err := s.Observer.PlansFor(ctx, client.ObjectKeyFromObject(t))
	if err != nil {
		return err
	}
	for i := range plans {
		if p := &plans[i]; inventory.IsOwned(p, s.Applier.Source) {
			if err := s.endPlan(ctx, inventory.OfRelease(p)); err != nil {
				return err
			}
		}
	}
	for _, br := range s.Observer.Ending(client.ObjectKeyFromObject(t)) {
		if err := inventory.UnmarkReturn(ctx, s.Applier.Client, s.Applier.Source, &br); err != nil {
			return err
		}
	}
	live, err := inventory.Get(ctx, s.Applier.Client, t.Entry())
	if err != nil {
		return err
	}
	if live != nil && v1alpha1.HasHeld(live.GetLabels()) {
		s.result.Waiting = append(s.result.Waiting, client.ObjectKeyFromObject(t))
		return nil
	}
	t.Live, t.Mode = live, apply.Full
	return nil
}

// endPlan deletes a BatchRelease that is gone from Git.
func (s *Input) endPlan(ctx context.Context, e inventory.Entry) error {
	if err := s.BeforeEnd(ctx, e); err != nil {
		return err
	}
	live, err := inventory.Get(ctx, s.Applier.Client, e)
	if err == nil && live != nil && inventory.IsOwned(live, s.Applier.Source) {
		err = client.IgnoreNotFound(inventory.Delete(ctx, s.Applier.Client, live))
	}
	if err != nil {
		return s.problemOf(v1alpha1.ReasonPruneFailed, plan.Object{Unstructured: inventory.Named(e)}, err)
	}
	s.Log.Info("Object deleted", "object", e.String(), "commit", s.Tip, "because", "its plan is gone from Git")
	return nil
}

// endRivals lets plans take over from those under whose names their Deployments
// were governed, and deletes these. That comes after the new plan is there, or
// rollout would take the gap for the end of the plan. It is done even where
// nothing is pruned, or the older of two plans would be the one that counts.
func (s *Stage) endRivals(ctx context.Context) error {
	for i := range s.Set.Releases {
		release := &s.Set.Releases[i]
		plans, err := s.Observer.PlansFor(ctx, plan.WorkloadOf(release))
		if err != nil {
			return err
		}
		plans = slices.Clone(plans)
		slices.SortFunc(plans, func(a, b v1alpha1.BatchRelease) int { return plan.ComparePlans(&b, &a) })
		// The one that counts goes last: what it has decided is copied last.
		for j := range plans {
			p := &plans[j]
			if apply.HasPlan(s.Set, p) || !inventory.IsOwned(p, s.Applier.Source) {
				continue
			}
			if err := s.replace(ctx, p, release.Plan); err != nil {
				return err
			}
		}
	}
	return nil
}

// replace lets a BatchRelease of the commit take over from another one.
func (s *Stage) replace(ctx context.Context, old, successor *v1alpha1.BatchRelease) error {
	e, name := inventory.OfRelease(old), client.ObjectKeyFromObject(successor)
	done, err := s.successor().Replace(ctx, e, name)
	switch {
	case err != nil:
		return err
	case !done:
		s.result.Staying = append(s.result.Staying, e) // and so does the Deployment's hold
	default:
		s.result.Replaced = append(s.result.Replaced, e) // finalizers may keep it
		s.Log.Info("Object deleted", "object", e.String(), "commit", s.Tip, "because", "BatchRelease "+name.String()+" has taken over from it")
	}
	return nil
}

// Unfinished returns why a commit is not applied whole though all was done that could be.
// Some objects are being deleted, and are to be created again.
func (s *Stage) Unfinished() error {
	var ps plan.Problems
	for _, t := range s.all() {
		if t.Mode != apply.AfterDeletion {
			continue
		}
		hint := ""
		if finalizers := t.Live.GetFinalizers(); len(finalizers) > 0 {
			hint = "it has the finalizers " + plan.JoinNames(finalizers) + ": " + apply.FinalizersAdvice(finalizers)
		}
		fact := "it is being deleted, and is created again once it is gone"
		if held := heldBy(t, s.Targets); held != "" {
			fact += "; Deployment " + held + " stays held until then"
		}
		ps = append(ps, t.Problem(v1alpha1.ReasonApplyFailed, fact, hint))
	}
	return apiproblem.Or(ps, nil)
}

// heldBy returns the name of the held Deployment of a plan; empty: none is.
func heldBy(t *apply.Target, targets []*apply.Target) string {
	if t.GroupKind() != inventory.ReleaseKind {
		return ""
	}
	name, _, _ := unstructured.NestedString(t.Object.Object, "spec", "workloadRef", "name")
	d := find(targets, inventory.DeploymentKind, t.GetNamespace(), name)
	if d == nil || d.Live == nil || !v1alpha1.HasHeld(d.Live.GetLabels()) {
		return ""
	}
	return name
}

// find returns a target of a commit; nil: it has none, or a problem was found before
// it was tried.
func find(targets []*apply.Target, gk schema.GroupKind, namespace, name string) *apply.Target {
	for _, t := range targets {
		if t.GroupKind() == gk && t.GetNamespace() == namespace && t.GetName() == name {
			return t
		}
	}
	return nil
}

// Restore brings again what was deleted or changed of a commit that was applied. It does so
// object by object: one that is refused today keeps no other from coming back. It brings only
// those BatchReleases that are gone. Objects that may be meant to go because of the commit of
// the stage refused stay away; refused may be nil.
func (s *Stage) Restore(ctx context.Context, refused *Stage) (Result, plan.Problems) {
	var ps plan.Problems
	for _, prerequisites := range []bool{true, false} {
		for _, t := range s.Targets {
			if t.Prerequisite == prerequisites && !refused.mayBeMeantToGo(t) {
				ps = append(ps, s.restore(ctx, t)...)
			}
		}
	}
	for _, t := range s.Releases {
		if t.Live == nil {
			ps = append(ps, s.restore(ctx, t)...)
		}
	}
	return s.result, ps
}

// restore brings one object again.
func (s *Stage) restore(ctx context.Context, t *apply.Target) plan.Problems {
	if t.Refused || ctx.Err() != nil || t.Mode != apply.Full && t.Mode != apply.ExceptRollout {
		return nil
	}
	var err error
	if !t.Unchanged {
		var ps plan.Problems
		ps, err = s.dryRunOne(ctx, t)
		err = apiproblem.Or(ps, err)
	}
	if err == nil {
		err = s.applyOne(ctx, t)
	}
	if apierrors.IsConflict(err) {
		s.result.Conflicted = true
		return nil
	}
	return apiproblem.OfSource(s.Applier.Source, err)
}

// mayBeMeantToGo reports whether an object is gone that the commit has in a way that cannot
// be tried at all. An example is a Deployment with another selector: the user who deleted
// it may have done so for that. The problem of the commit names the ways on.
func (s *Stage) mayBeMeantToGo(t *apply.Target) bool {
	if s == nil || t.Live != nil || find(s.Targets, t.GroupKind(), t.GetNamespace(), t.GetName()) != nil {
		return false
	}
	return slices.ContainsFunc(s.Set.Objects, func(o plan.Object) bool {
		return o.GroupVersionKind().GroupKind() == t.GroupKind() && o.GetNamespace() == t.GetNamespace() && o.GetName() == t.GetName()
	})
}

// Gone says what is not in the cluster of a commit that was not applied whole. It was
// deleted, or the write was refused; there is no state to bring it back to.
func (s *Stage) Gone() plan.Problems {
	if s == nil {
		return nil // the commit does not render
	}
	var ps plan.Problems
	for _, t := range s.Targets {
		if t.Live == nil && inventory.Has(s.Before, t.Entry().ID()) {
			ps = append(ps, t.Problem(v1alpha1.ReasonApplyFailed, "it is not in the cluster, and comes with the commit", ""))
		}
	}
	return ps
}
