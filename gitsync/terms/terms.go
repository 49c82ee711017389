package terms

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
	"github.com/go-git/go-git/v5/plumbing/object"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apply"
	"github.com/tranche-dev/tranche/gitsync/authors"
	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/gitobject"
	"github.com/tranche-dev/tranche/gitsync/gittree"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/repository"
	"github.com/tranche-dev/tranche/gitsync/signature"
	"github.com/tranche-dev/tranche/gitsync/signers"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// If spec.approvals.signers is set, a commit that is not a signer's changes neither
// the steps of a release nor whether it has any. gitsync compares the terms
// (plan.Terms) that a commit renders for each Deployment with those that govern it:
//
//   - The governing terms are in the status of the GitSource. They survive the
//     BatchRelease, the Deployment and the plan in Git. Before the source had signers,
//     the BatchRelease in the cluster governs.
//   - Other terms count when a signer has approved their digest. Until then the set
//     that is applied has the governing terms in their place, with the template of the
//     commit. A Deployment that the commit does not have stays as it is. Deployments
//     that are new with that commit wait: they may be the same one under another name.
//   - Terms are written to the status before anything is applied by them, and removed
//     after the last object that they govern is. So a controller that dies in between
//     decides the same again.

// Governed is what a commit brings, as far as it counts.
type Governed struct {
	// Set is what to apply.
	Set *plan.Set
	// Plans are the terms that govern from now on.
	Plans []v1alpha1.GoverningPlan
	// Ending are those that no longer govern once the commit is applied.
	Ending []v1alpha1.GoverningPlan
	// Used are the approvals of plans, and UsedInTheEnd those of what is ending.
	Used, UsedInTheEnd []v1alpha1.UsedPlanApproval
	// Keeps stays in the cluster and in the inventory, though the commit does not
	// have it.
	Keeps inventory.Set
	// Withheld are the objects of the commit that are not applied.
	Withheld []string
	// Unapproved says what waits for an approval.
	Unapproved plan.Problems
	// Changes are the differences to what governs, approved or not.
	Changes []Change
}

// Change is a commit's change of what decides about a Deployment's releases.
type Change struct {
	// Namespace and Name of the Deployment, and the name of its BatchRelease.
	Namespace, Name, Plan string
	// Now governs, and Then is what the commit has.
	Now, Then plan.Terms
	// Approved is true if an approval of it counts.
	Approved bool
	// Why has the reasons for which approvals of it do not count.
	Why []string
}

// governor finds out which terms govern.
type governor struct {
	history *desired.History
	// source, snapshot, state and signatures are those of history.
	source     *v1alpha1.GitSource
	snapshot   *repository.Snapshot
	state      *desired.State
	signatures *signers.Policy
	observer   *apply.Observer
	approvals  []plan.Approval
	// unsigned is true if unsigned approvals count, since who asks cannot read the keys.
	unsigned bool
	// live are the BatchReleases of this source whose terms are not on record.
	live map[client.ObjectKey]*v1alpha1.BatchRelease
}

func newGovernor(h *desired.History, o *apply.Observer, approvals []plan.Approval) *governor {
	r := h.Reader
	return &governor{
		history: h, source: r.Source, snapshot: r.Snapshot, state: h.State, signatures: &r.Signatures,
		observer: o, approvals: approvals,
	}
}

// govern finds out what of the commit counts.
func (g *governor) govern(ctx context.Context) (*Governed, error) {
	records, err := g.records(ctx)
	if err != nil {
		return nil, err
	}
	result := &Governed{Keeps: inventory.Set{}}
	var kept []plan.Kept
	var jobs []plan.Object
	var withheld []string
	for _, key := range g.deployments(records) {
		record, ok := records[key]
		then := g.state.Set.Terms(key.Namespace, key.Name)
		if !ok { // a first plan can only tighten
			if then.Govern() {
				result.Plans = append(result.Plans, g.record(key, then))
			}
			continue
		}
		if record.Terms == string(then) {
			record.Name = g.planName(key, record.Name)
			result.Plans = append(result.Plans, record)
			continue
		}
		c := Change{Namespace: key.Namespace, Name: key.Name, Plan: record.Name, Now: plan.Terms(record.Terms), Then: then}
		var used v1alpha1.UsedPlanApproval
		if used, c.Why, err = g.approves(ctx, key, record, then); err != nil {
			return nil, err
		}
		c.Approved = used.Plan != ""
		result.Changes = append(result.Changes, c)
		switch {
		case !c.Approved:
			k, err := g.keep(ctx, key, record)
			if err != nil {
				return nil, err
			}
			kept = append(kept, k)
			result.Plans = append(result.Plans, record)
			result.Unapproved = append(result.Unapproved, g.problem(c))
			g.keepObjects(result, key, record)
			others, names := g.keepJobs(result, key, record)
			jobs, withheld = append(jobs, others...), append(withheld, names...)
		case then.Govern():
			result.Plans = append(result.Plans, g.record(key, then))
			result.Used = append(result.Used, used)
		default:
			result.Ending = append(result.Ending, record)
			result.UsedInTheEnd = append(result.UsedInTheEnd, used)
		}
	}
	g.keepAround(result)
	without := append(g.withhold(result, records), jobs...)
	result.Withheld = append(result.Withheld, withheld...)
	result.Set, err = g.state.Set.Under(kept, without)
	problems := append(plan.ProblemsOf(err), g.secretsNotSigned(result.Set)...)
	return result, append(problems, g.tooLong(result)...).Err()
}

// longest is the maximum number of bytes of the terms of one Deployment, as the CRD has it.
const longest = 64 << 10

// tooLong refuses terms that the status has no room for. Without that, no status could be written.
func (g *governor) tooLong(result *Governed) plan.Problems {
	var ps plan.Problems
	long := map[client.ObjectKey]bool{}
	for _, p := range result.Plans {
		if len(p.Terms) <= longest {
			continue
		}
		namespace, name, _ := strings.Cut(p.Deployment, "/")
		long[client.ObjectKey{Namespace: namespace, Name: name}] = true
		ps = append(ps, &plan.Problem{
			Reason: v1alpha1.ReasonInvalidPlan, Where: "BatchRelease " + namespace + "/" + p.Name,
			Err:  fmt.Errorf("what spec.approvals.signers approve of this plan has %d bytes, and may have %d", len(p.Terms), longest),
			Hint: "use shorter queries, or fewer metrics",
		})
	}
	result.Set.LeaveOut(func(deployment client.ObjectKey) bool { return long[deployment] })
	return ps
}

// deployments are those with a plan in the commit, and those whose terms are on
// record, in order.
func (g *governor) deployments(records map[client.ObjectKey]v1alpha1.GoverningPlan) []client.ObjectKey {
	keys := map[client.ObjectKey]bool{}
	for k := range records {
		keys[k] = true
	}
	for i := range g.state.Set.Releases {
		keys[plan.WorkloadOf(&g.state.Set.Releases[i])] = true
	}
	return slices.SortedFunc(maps.Keys(keys), func(a, b client.ObjectKey) int { return strings.Compare(a.String(), b.String()) })
}

// records returns the terms that govern, by Deployment: those of the status, and
// those of the BatchReleases of this source that are in the cluster.
func (g *governor) records(ctx context.Context) (map[client.ObjectKey]v1alpha1.GoverningPlan, error) {
	records, known := map[client.ObjectKey]v1alpha1.GoverningPlan{}, map[client.ObjectKey]bool{}
	for _, p := range g.source.Status.Plans {
		namespace, name, ok := strings.Cut(p.Deployment, "/")
		if !ok {
			continue
		}
		p.Since = g.sinceOf(p.Since)
		if p.Tip != "" && !g.unsigned && !g.history.Replay.Has(p.Tip) {
			p.Tip = g.snapshot.Tip.String()
		}
		records[client.ObjectKey{Namespace: namespace, Name: name}] = p
		known[client.ObjectKey{Namespace: namespace, Name: p.Name}] = true
	}
	g.live = map[client.ObjectKey]*v1alpha1.BatchRelease{}
	for _, e := range inventory.Read(g.source.Status.Inventory) {
		if inventory.IsRelease(e) && !known[client.ObjectKey{Namespace: e.Namespace, Name: e.Name}] {
			if err := g.recordLive(ctx, e, records); err != nil {
				return nil, err
			}
		}
	}
	for i := range g.state.Set.Releases {
		key := plan.WorkloadOf(&g.state.Set.Releases[i])
		if _, ok := records[key]; ok {
			continue
		}
		plans, err := g.observer.PlansFor(ctx, key)
		if err != nil {
			return nil, err
		}
		for j := range plans {
			if err := g.addLive(ctx, &plans[j], records); err != nil {
				return nil, err
			}
		}
	}
	return records, nil
}

// recordLive adds the terms of a BatchRelease of the inventory.
func (g *governor) recordLive(ctx context.Context, e inventory.Entry, records map[client.ObjectKey]v1alpha1.GoverningPlan) error {
	var br v1alpha1.BatchRelease
	err := g.observer.Own.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, &br)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting %s: %w", e, err)
	}
	return g.addLive(ctx, &br, records)
}

// addLive adds the terms of a BatchRelease in the cluster, unless the Deployment's
// are known.
func (g *governor) addLive(ctx context.Context, br *v1alpha1.BatchRelease, records map[client.ObjectKey]v1alpha1.GoverningPlan) error {
	key := client.ObjectKey{Namespace: br.Namespace, Name: br.Spec.WorkloadRef.Name}
	other, ok := g.live[key]
	_, recorded := records[key]
	byHand := br.Labels[v1alpha1.LabelSource] == "" && br.Name == g.planName(key, "")
	if recorded && !ok || !inventory.IsOwned(br, g.source) && !byHand || ok && plan.ComparePlans(other, br) <= 0 {
		return nil
	}
	var d appsv1.Deployment
	err := g.observer.Own.Get(ctx, key, &d)
	unreadable := apierrors.IsNotFound(err) || g.unsigned && apierrors.IsForbidden(err)
	if err != nil && !unreadable {
		return fmt.Errorf("getting Deployment %s: %w", key, err)
	}
	g.live[key] = br
	terms := plan.NewTerms(key.Namespace, key.Name, &br.Spec.Strategy, br.Spec.DeploymentStrategy, d.Spec.MinReadySeconds,
		g.state.Set.Jobs(key.Namespace, &br.Spec.Strategy)) // what they ran before is not known
	since := g.sinceOf(g.source.Status.AppliedCommit)
	records[key] = v1alpha1.GoverningPlan{Deployment: key.String(), Name: br.Name, Terms: string(terms), Since: since}
	return nil
}

// sinceOf returns the commit, or the tip where it has left the repository: then only
// approvals that come later count.
func (g *governor) sinceOf(commit string) string {
	if g.unsigned || g.history.Replay.Has(commit) {
		return commit
	}
	return g.state.Commit
}

// record returns terms that take effect with this commit.
func (g *governor) record(key client.ObjectKey, terms plan.Terms) v1alpha1.GoverningPlan {
	p := v1alpha1.GoverningPlan{Deployment: key.String(), Name: g.planName(key, ""), Terms: string(terms), Since: g.state.Commit}
	if g.snapshot.Pinned {
		p.Tip = g.snapshot.Tip.String()
	}
	return p
}

// planName is the name that a commit gives to the plan of a Deployment.
func (g *governor) planName(key client.ObjectKey, otherwise string) string {
	for i := range g.state.Set.Releases {
		if r := &g.state.Set.Releases[i]; plan.WorkloadOf(r) == key {
			return r.Plan.Name
		}
	}
	return otherwise
}

// keep returns what goes on governing a Deployment. If the commit has no plan for it,
// a BatchRelease that is paused stays so.
func (g *governor) keep(ctx context.Context, key client.ObjectKey, record v1alpha1.GoverningPlan) (plan.Kept, error) {
	k := plan.Kept{Namespace: key.Namespace, Name: key.Name, Plan: metav1.ObjectMeta{Name: record.Name}, Terms: plan.Terms(record.Terms)}
	var br v1alpha1.BatchRelease
	err := g.observer.Own.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: record.Name}, &br)
	if apierrors.IsNotFound(err) {
		return k, nil
	}
	if err != nil {
		return k, fmt.Errorf("getting BatchRelease %s/%s: %w", key.Namespace, record.Name, err)
	}
	k.Pause = br.Spec.Paused
	return k, nil
}

// keepObjects keeps a Deployment that the commit does not have, and its plan.
func (g *governor) keepObjects(result *Governed, key client.ObjectKey, record v1alpha1.GoverningPlan) {
	if g.deployment(key) != nil {
		return
	}
	e := inventory.Entry{GVK: appsv1.SchemeGroupVersion.WithKind(inventory.DeploymentKind.Kind), Namespace: key.Namespace, Name: key.Name}
	result.Keeps.Add(e)
	gvk := v1alpha1.GroupVersion.WithKind(inventory.ReleaseKind.Kind)
	result.Keeps.Add(inventory.Entry{GVK: gvk, Namespace: key.Namespace, Name: record.Name})
	result.Withheld = append(result.Withheld, "the removal of "+e.String())
}

// keepJobs keeps the CronJobs that the metrics of a governing plan run. It returns those of the
// commit that run something else: until the change is approved they are not applied. The names
// say what is withheld.
func (g *governor) keepJobs(result *Governed, key client.ObjectKey, record v1alpha1.GoverningPlan) (others []plan.Object, names []string) {
	governing := plan.Terms(record.Terms).Jobs()
	for _, name := range slices.Sorted(maps.Keys(governing)) {
		if g.state.Set.JobDigest(key.Namespace, name) == governing[name] {
			continue
		}
		e := inventory.Entry{GVK: batchv1.SchemeGroupVersion.WithKind(cronJobKind.Kind), Namespace: key.Namespace, Name: name}
		if _, kept := result.Keeps[e.ID()]; kept { // by the plan of another Deployment
			continue
		}
		result.Keeps.Add(e)
		removed := "the removal of "
		for _, o := range g.state.Set.Objects {
			if o.GroupVersionKind().GroupKind() == cronJobKind && o.GetNamespace() == key.Namespace && o.GetName() == name {
				others, removed = append(others, o), ""
			}
		}
		names = append(names, removed+e.String())
	}
	return others, names
}

var cronJobKind = schema.GroupKind{Group: batchv1.GroupName, Kind: "CronJob"}

// keepAround keeps what a governed Deployment would go with: its namespace, and with
// the kind of its plan, the plan.
func (g *governor) keepAround(result *Governed) {
	namespaces := map[string]bool{}
	for _, p := range result.Plans {
		namespace, _, _ := strings.Cut(p.Deployment, "/")
		namespaces[namespace] = true
	}
	crd := "batchreleases." + v1alpha1.Group
	for _, e := range inventory.Read(g.source.Status.Inventory) {
		switch gk := e.GVK.GroupKind(); {
		case gk == inventory.NamespaceKind && namespaces[e.Name], gk == inventory.CRDKind && e.Name == crd && len(namespaces) > 0:
			if g.hasObject(gk, "", e.Name) {
				continue
			}
			result.Keeps.Add(e)
			result.Unapproved = append(result.Unapproved, &plan.Problem{
				Reason: plan.ReasonPlanNotApproved, Where: e.String(),
				Err:  errors.New("it has left the branch and stays, since a Deployment that a plan governs would go with it"),
				Hint: "remove the Deployment with its plan, and have that approved; or put it back",
			})
		}
	}
}

// withhold returns the Deployments that are new with a commit which does not have
// all that are governed.
func (g *governor) withhold(result *Governed, records map[client.ObjectKey]v1alpha1.GoverningPlan) []plan.Object {
	if len(result.Withheld) == 0 {
		return nil
	}
	before := inventory.Read(g.source.Status.Inventory)
	var list []plan.Object
	for _, o := range g.state.Set.Objects {
		if o.GroupVersionKind().GroupKind() != inventory.DeploymentKind {
			continue
		}
		_, there := before[inventory.Of(o.Unstructured).ID()]
		_, governed := records[client.ObjectKeyFromObject(o.Unstructured)]
		if !there && !governed {
			list = append(list, o)
			result.Withheld = append(result.Withheld, o.String())
		}
	}
	result.Plans = slices.DeleteFunc(result.Plans, func(p v1alpha1.GoverningPlan) bool {
		return slices.ContainsFunc(list, func(o plan.Object) bool { return p.Deployment == o.GetNamespace()+"/"+o.GetName() })
	})
	return list
}

func (g *governor) deployment(key client.ObjectKey) *unstructured.Unstructured {
	for _, o := range g.state.Set.Objects {
		if o.GroupVersionKind().GroupKind() == inventory.DeploymentKind && o.GetNamespace() == key.Namespace && o.GetName() == key.Name {
			return o.Unstructured
		}
	}
	return nil
}

func (g *governor) hasObject(gk schema.GroupKind, namespace, name string) bool {
	return slices.ContainsFunc(g.state.Set.Objects, func(o plan.Object) bool {
		return o.GroupVersionKind().GroupKind() == gk && o.GetNamespace() == namespace && o.GetName() == name
	})
}

// problem says what waits for an approval, and how to give it.
func (g *governor) problem(c Change) *plan.Problem {
	digest := c.Then.Digest()
	fact := fmt.Sprintf("what decides about its releases has changed (%s), and is not approved; what governed it still does. "+
		"The digest to approve is %s", strings.Join(c.Now.Changes(c.Then), ", "), digest)
	for _, why := range c.Why {
		fact += "; " + why
	}
	return &plan.Problem{
		Reason: plan.ReasonPlanNotApproved, Where: "Deployment " + c.Namespace + "/" + c.Name, Err: errors.New(fact),
		Hint: fmt.Sprintf("have a signer run tranche approve %s -n %s --plan --sign --push, which writes %s; or put back what was there",
			c.Plan, c.Namespace, ApprovalPath(&g.source.Spec, c.Plan)),
	}
}

// ApprovalPath is the file for an approval of a plan. It is not the one for
// approvals of releases: who approves the one signs nothing of the other.
func ApprovalPath(spec *v1alpha1.GitSourceSpec, name string) string {
	return path.Join(spec.ApprovalsPath(), "plans", name+".yaml")
}

// approves returns the approval with which terms take the place of others, and why
// others that name their digest do not count.
func (g *governor) approves(ctx context.Context, key client.ObjectKey, record v1alpha1.GoverningPlan, then plan.Terms) (
	v1alpha1.UsedPlanApproval, []string, error,
) {
	digest := then.Digest()
	names := []string{record.Name, g.planName(key, record.Name)}
	var ignored []string
	for i := range g.approvals {
		a := &g.approvals[i]
		if a.Spec.Plan == "" || a.Metadata.Namespace != key.Namespace || !slices.Contains(names, a.Metadata.Name) {
			continue
		}
		used, why, err := v1alpha1.UsedPlanApproval{}, "it is of another digest", error(nil)
		if a.Spec.Plan == digest {
			used, why, err = g.unapproved(ctx, key, record, a)
		}
		if err != nil {
			return v1alpha1.UsedPlanApproval{}, nil, err
		}
		if why == "" {
			used.Plan = digest
			return used, nil, nil
		}
		ignored = append(ignored, a.File+" does not count: "+why)
	}
	return v1alpha1.UsedPlanApproval{}, ignored, nil
}

// unapproved returns how an approval which names the digest of new terms is known once
// it is used. It also returns why the approval does not count; empty: it does.
func (g *governor) unapproved(ctx context.Context, key client.ObjectKey, record v1alpha1.GoverningPlan, a *plan.Approval) (
	used v1alpha1.UsedPlanApproval, why string, err error,
) {
	if p := a.NotAsSigned(); p != nil {
		return used, fmt.Sprintf("%v; %s", p.Err, p.Hint), nil
	}
	if g.unsigned {
		return used, "", nil
	}
	b, err := g.history.LastChange(a.File)
	if err != nil {
		return used, "", err
	}
	in := plumbing.NewHash(b.In)
	payload, err := gitobject.Payload(g.snapshot, in)
	if err != nil {
		return used, "", err
	}
	c, err := object.GetCommit(g.snapshot, in)
	if err != nil {
		return used, "", gittree.Missing("commit", in, err)
	}
	used = v1alpha1.UsedPlanApproval{Commit: b.In, Payload: payload.String(), Time: &metav1.Time{Time: c.Committer.When}}
	by, why, hint, err := g.signatures.SignerOfFile(ctx, g.snapshot, a.File, b, plumbing.ZeroHash)
	if err != nil {
		return used, "", err
	}
	if why != "" {
		return used, fmt.Sprintf("commit %s brought it: %s; %s", plan.ShortCommit(b.In), why, hint), nil
	}
	if why, err = g.replayed(ctx, record, a.Spec.Plan, used); err != nil || why != "" {
		return used, why, err
	}
	if g.signatures.DistinctAuthor {
		why, err = g.ownChange(ctx, key, record, b.In, by)
	}
	return used, why, err
}

// replayed says why the approval of a plan is of an earlier time, and what to do; empty: it is
// not.
func (g *governor) replayed(ctx context.Context, record v1alpha1.GoverningPlan, digest string, by v1alpha1.UsedPlanApproval) (
	string, error,
) {
	replay, in := g.history.Replay, plumbing.NewHash(by.Commit)
	fact := "was used before"
	if !replay.IsUsed(digest, by.Payload) {
		var err error
		if fact, err = replay.PlanForgotten(in); err != nil {
			return "", err
		}
	}
	if fact == "" {
		old, err := replay.Precedes(ctx, in, plumbing.NewHash(cmp.Or(record.Tip, record.Since)))
		if err != nil || !old {
			return "", err
		}
		fact = "was on the branch when the present plan took effect"
	}
	const again = "commit a change of the file, such as a comment"
	return fmt.Sprintf("commit %s, which brought it, %s; %s", plan.ShortCommit(by.Commit), fact, again), nil
}

// ownChange says why it cannot be shown that the approver has written nothing of a
// difference; empty: it can.
func (g *governor) ownChange(ctx context.Context, key client.ObjectKey, record v1alpha1.GoverningPlan, in string, by signature.Signature) (
	string, error,
) {
	c := &authors.Change{Branch: g.history.Branch(), Commit: g.snapshot.Commit, Of: authors.Compared{Deployment: key}, Was: record.Terms}
	if record.Since != g.state.Commit { // else it stands for one that has left the repository
		c.Base = plumbing.NewHash(record.Since)
	}
	was := plan.Terms(c.Was).Digest()
	c.Key = strings.Join([]string{g.history.Reader.Key(), "plan", key.String(), g.snapshot.Commit.String(), c.Base.String(), was}, " ")
	fact, _, err := c.PartOf(ctx, by, in)
	switch {
	case errors.Is(err, authors.ErrNone):
		return fmt.Sprintf("that the change is by another than %s cannot be shown: no commit of the branch makes it", by), nil
	case authors.IsUncounted(err):
		return err.Error(), nil
	}
	return fact, err
}

// Govern returns what of a commit counts. Without signers that is all of it. With problems, it
// is not to be applied: its set is one that [plan.Collect] returns beside problems.
func Govern(ctx context.Context, r *desired.Reader, d *desired.State, o *apply.Observer) (*Governed, error) {
	if r.Signatures.Signers == nil {
		return &Governed{Set: d.Set, Keeps: inventory.Set{}}, nil
	}
	t, err := gittree.Open(r.Snapshot, r.Snapshot.Tip)
	if err != nil {
		return nil, err
	}
	approvals, _ := manifest.ReadApprovals(t, r.Source.Spec.ApprovalsPath(), r.Source.DefaultNamespace())
	if err := t.Err(); err != nil && !gittree.IsExceeded(err) {
		return nil, err
	}
	return newGovernor(desired.NewHistory(r, d), o, approvals).govern(ctx)
}

// GovernUnsigned returns what of a commit counts if each approval is signed as it has to be. It
// is for a preview, which cannot read the keys.
func GovernUnsigned(ctx context.Context, h *desired.History, o *apply.Observer, approvals []plan.Approval) (*Governed, error) {
	g := newGovernor(h, o, approvals)
	g.unsigned = true
	return g.govern(ctx)
}
