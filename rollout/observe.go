package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/records"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/failures"
	"github.com/tranche-dev/tranche/rollout/jsonpatch"
	"github.com/tranche-dev/tranche/rollout/templates"
)

// indexOwner is the field of the cache's index of ReplicaSets and
// ControllerRevisions. A ControllerRevision without owners has the value unowned.
const (
	indexOwner = "controllerUID"
	unowned    = "none"
)

// observe gathers what a round is decided on.
func (r *reconciler) observe(ctx context.Context, br *v1alpha1.BatchRelease) (engine.Observed, error) {
	o := engine.Observed{Release: br, Minor: r.version.Minor()}
	plans, err := r.plans.of(ctx, br.Namespace, br.Spec.WorkloadRef.Name)
	if err != nil {
		return o, err
	}
	o.Rival = rival(br, plans)
	if o.Rival == "" {
		if err := r.confirm(ctx, br, &o); err != nil {
			return o, err
		}
	}
	err = observeWorkload(ctx, r, types.NamespacedName{Namespace: br.Namespace, Name: br.Spec.WorkloadRef.Name}, br.UID, &o)
	if err != nil || o.Deployment == nil {
		return o, err
	}
	if o.Rival == "" { // of two plans, each would take the records from the other, in turn
		if err := findUnowned(ctx, r, &o); err != nil {
			return o, err
		}
		if err := r.ownRecords(ctx, &o); err != nil {
			return o, err
		}
	}
	completeRecords(ctx, r, r.templates, &o)
	if br.Spec.Template == nil || o.Unconfirmed != "" || !needsTemplate(&o) {
		return o, nil
	}
	return o, r.completeTemplate(ctx, &o)
}

// completeTemplate asks the API server what it makes of the template of the spec. A refusal
// is part of what is observed.
func (r *reconciler) completeTemplate(ctx context.Context, o *engine.Observed) (err error) {
	br := o.Release
	if !engine.Held(o.Deployment) {
		refused, err := r.account.MayHandBack(ctx, cmp.Or(br.Spec.ServiceAccountName, r.byDefault) != "")
		if err != nil {
			return err
		}
		if refused != nil {
			o.Refused, o.RefusedReason = refused, v1alpha1.ReasonHandBackRefused
			return nil
		}
	}
	o.Template, err = r.templates.Complete(r.asAccount(ctx, br), r, br, o.Deployment, br.Spec.Template)
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) || errors.Is(err, templates.ErrNotIdempotent) {
		o.Refused, err = err, nil
	}
	return err
}

// needsTemplate reports whether the API server is asked what it makes of
// spec.template: where no record was sent as it, and before a hold.
func needsTemplate(o *engine.Observed) bool {
	digest := plan.TemplateDigest(o.Release.Spec.Template)
	sent := slices.ContainsFunc(o.Records, func(r plan.Record) bool { return r.Sent == digest })
	stable := plan.StableRecord(o.Records)
	return !sent || !engine.Held(o.Deployment) && (stable == nil || stable.Sent != digest)
}

// findUnowned adds records without owners, as a restore makes them, to a Deployment that
// has no record of its stable revision. Their names must say the Deployment and the content.
// If the status names the stable revision, the newest of them must be of it.
func findUnowned(ctx context.Context, c client.Reader, o *engine.Observed) error {
	if plan.StableRecord(o.Records) != nil {
		return nil
	}
	var list appsv1.ControllerRevisionList
	if err := c.List(ctx, &list, client.InNamespace(o.Deployment.Namespace), client.MatchingFields{indexOwner: unowned}); err != nil {
		return fmt.Errorf("listing the ControllerRevisions without owners of %s: %w", o.Deployment.Namespace, err)
	}
	var found []plan.Record
	for i := range list.Items {
		if kept := &list.Items[i]; !plan.IsFailure(kept) && kept.DeletionTimestamp == nil {
			record, err := plan.ReadRecord(kept)
			if err != nil {
				continue // it is not ours
			}
			name := recordName(o.Deployment.Name, record)
			if kept.Name == name || strings.HasPrefix(kept.Name, name+"-") { // the latter was made again, by orderKeys
				found = append(found, record)
			}
		}
	}
	stable, named := plan.StableRecord(found), o.Release.Status.StableRevision
	if stable != nil && (named == "" || stable.Revision == named) {
		o.Records = append(o.Records, found...)
	}
	return nil
}

// ownRecords gives the records the owners that they are to have: they outlive the
// Deployment by their BatchRelease, and the BatchRelease by their Deployment. It makes
// those again that the garbage collector could not orphan.
func (r *reconciler) ownRecords(ctx context.Context, o *engine.Observed) error {
	for _, record := range o.Records {
		var c appsv1.ControllerRevision
		if err := r.Get(ctx, types.NamespacedName{Namespace: o.Deployment.Namespace, Name: record.Name}, &c); err != nil {
			return fmt.Errorf("getting ControllerRevision %s: %w", record.Name, err)
		}
		if made, err := orderKeys(ctx, r, &c); err != nil || made {
			return cmp.Or(err, failures.ErrChanged)
		}
		ofDeployment := func(owner metav1.OwnerReference) bool { return owner.UID == o.Deployment.UID }
		marked := records.Mark(&c, r.selector, o.Release.Labels)
		if metav1.IsControlledBy(&c, o.Release) && slices.ContainsFunc(c.OwnerReferences, ofDeployment) && !marked {
			continue
		}
		if err := r.fence.Release(ctx, o.Release); err != nil {
			return err
		}
		p := jsonpatch.Patch{}
		p.At(&c)
		p.Add("/metadata/ownerReferences", ownersOf(o.Deployment, o.Release))
		p.Add("/metadata/annotations", c.Annotations)
		if err := r.Patch(ctx, &c, p.Raw(), fieldOwner); err != nil {
			return fmt.Errorf("writing the owners and the annotations of ControllerRevision %s: %w", record.Name, err)
		}
	}
	return nil
}

// completeRecords reads the stable record through the defaults of the cluster, if no
// record is the Deployment's template. An upgrade of Kubernetes adds defaults to a
// Deployment, and not to what is kept of it (H28).
func completeRecords(ctx context.Context, c client.Client, known *templates.Cache, o *engine.Observed) {
	live := &o.Deployment.Spec.Template
	if slices.ContainsFunc(o.Records, func(r plan.Record) bool { return plan.EqualTemplate(r.Template, live) }) {
		return
	}
	for i := range o.Records {
		template, err := known.Complete(ctx, c, o.Release, o.Deployment, o.Records[i].Template)
		if err == nil && plan.EqualTemplate(template, live) {
			o.Records[i].Template, o.Records[i].Kept = template, o.Records[i].Template
		}
	}
}

// rival returns the name of the plan for the same Deployment that counts; empty where
// it is this one.
func rival(br *v1alpha1.BatchRelease, plans []v1alpha1.BatchRelease) string {
	first := br
	for i := range plans {
		if plan.ComparePlans(&plans[i], first) < 0 {
			first = &plans[i]
		}
	}
	if first == br {
		return ""
	}
	return first.Name
}

// observeWorkload gathers the Deployment, what it owns, and the records that the release
// owns. Those of an earlier Deployment of the same name are among them.
func observeWorkload(ctx context.Context, c client.Reader, key types.NamespacedName, release types.UID, o *engine.Observed) error {
	var d appsv1.Deployment
	if err := c.Get(ctx, key, &d); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("getting Deployment %s: %w", key, err)
	}
	owned := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingFields{indexOwner: string(d.UID)}}
	var sets appsv1.ReplicaSetList
	if err := c.List(ctx, &sets, owned...); err != nil {
		return fmt.Errorf("listing the ReplicaSets of Deployment %s: %w", key, err)
	}
	revisions := map[string]*appsv1.ControllerRevision{}
	for _, owner := range []types.UID{d.UID, release} {
		if owner == "" {
			continue
		}
		var list appsv1.ControllerRevisionList
		if err := c.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{indexOwner: string(owner)}); err != nil {
			return fmt.Errorf("listing the ControllerRevisions of Deployment %s: %w", key, err)
		}
		for i := range list.Items {
			if revision := &list.Items[i]; !plan.IsFailure(revision) {
				revisions[revision.Name] = revision
			}
		}
	}
	o.Deployment = &d
	for i := range sets.Items {
		o.ReplicaSets = append(o.ReplicaSets, &sets.Items[i])
	}
	for _, name := range slices.Sorted(maps.Keys(revisions)) {
		record, err := plan.ReadRecord(revisions[name])
		if err != nil {
			return err
		}
		o.Records = append(o.Records, record)
	}
	return nil
}

// indexByWorkload and indexByOwner are the cache's index functions.
func indexByWorkload(o client.Object) []string {
	return []string{o.(*v1alpha1.BatchRelease).Spec.WorkloadRef.Name}
}

// indexByOwners is by all owners of a record.
func indexByOwners(o client.Object) []string {
	if len(o.GetOwnerReferences()) == 0 {
		return []string{unowned}
	}
	var uids []string
	for _, owner := range o.GetOwnerReferences() {
		uids = append(uids, string(owner.UID))
	}
	return uids
}

func indexByOwner(o client.Object) []string {
	if c := metav1.GetControllerOf(o); c != nil && c.Kind == "Deployment" {
		return []string{string(c.UID)}
	}
	return nil
}
