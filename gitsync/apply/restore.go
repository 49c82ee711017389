package apply

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/apiproblem"
	"github.com/tranche-dev/tranche/gitsync/fieldmanager"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/takeover"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Restored is the pod template with which a governed Deployment that was deleted
// is created again: that of its stable revision. The native controller rolls out
// the template that a Deployment is created with at once (H30). With the template from Git a
// release would so pass all its gates.
type Restored struct {
	Revision string
	template map[string]any
}

// Decode returns the template as an object of its type.
func (r *Restored) Decode() (*corev1.PodTemplateSpec, error) {
	t := &corev1.PodTemplateSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.template, t); err != nil {
		return nil, fmt.Errorf("decoding the template of revision %s: %w", r.Revision, err)
	}
	return t, nil
}

// observeGone finds out how a Deployment that is not in the cluster is created.
func (o *Observer) observeGone(ctx context.Context, t *Target) error {
	plans, err := o.PlansFor(ctx, client.ObjectKeyFromObject(t))
	if err != nil || len(plans) == 0 {
		return err
	}
	if t.Release == nil && inventory.IsOwned(&plans[0], o.Source) {
		t.Mode = AfterHandBack // or the plan that has left Git would take hold of the new Deployment
		return nil
	}
	t.Restored, err = o.stableOf(ctx, t, plans)
	return err
}

// stableOf returns what a Deployment comes back with. It is nil where that is what Git says:
// the stable revision has the template from Git, or none is on record.
func (o *Observer) stableOf(ctx context.Context, t *Target, plans []v1alpha1.BatchRelease) (*Restored, error) {
	owners := make([]types.UID, len(plans))
	for i := range plans {
		owners[i] = plans[i].UID
	}
	revisions, err := takeover.Records(ctx, o.Own, t.GetNamespace(), owners...)
	if err != nil {
		return nil, err
	}
	var records []plan.Record
	for i := range revisions {
		r, err := plan.ReadRecord(&revisions[i])
		if err != nil {
			return nil, t.cannotRestore("", err,
				"correct or delete the ControllerRevision; without it the Deployment is created with the template from Git, on all pods")
		}
		records = append(records, r)
	}
	stable := plan.StableRecord(records)
	if stable == nil || t.Release != nil && stable.Sent != "" && stable.Sent == plan.TemplateDigest(t.Release.Template) {
		return nil, nil
	}
	template := stable.Template.DeepCopy()
	delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	if selector := selectorOf(t.Object); selector != nil && !selector.Matches(labels.Set(template.Labels)) {
		fact := fmt.Errorf("it does not match the pods' labels of the stable revision %s (%s); the Deployment was deleted, and "+
			"comes back at that revision until its release is approved", stable.Revision, labels.Set(template.Labels))
		return nil, t.cannotRestore("spec.selector", fact, "put the old selector back; or remove BatchRelease "+
			plan.ReleaseName(&plans[0])+", which creates the Deployment with the template from Git on all pods; or give the Deployment another name")
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	if err != nil {
		return nil, fmt.Errorf("encoding the template of revision %s: %w", stable.Revision, err)
	}
	fieldmanager.WithoutNulls(m)
	return &Restored{stable.Revision, m}, nil
}

// cannotRestore says why a Deployment that was deleted cannot come back at its
// stable revision.
func (t *Target) cannotRestore(field string, why error, hint string) error {
	where := apiproblem.Where(t.Object)
	if field != "" {
		where += ": " + field
	}
	return &plan.Problem{Reason: v1alpha1.ReasonStableRevisionUnusable, Where: where, Err: why, Hint: hint}
}

// selectorOf decodes the selector of a Deployment's manifest. It is nil where the
// manifest has no valid one, which the dry run says.
func selectorOf(o plan.Object) labels.Selector {
	m, ok, err := unstructured.NestedMap(o.Object, "spec", "selector")
	if !ok || err != nil {
		return nil
	}
	s := &metav1.LabelSelector{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, s); err != nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	return selector
}

// dryRunRestored tries the Deployment as it comes back. The manifest from
// Git is tried besides.
func (a *Applier) dryRunRestored(ctx context.Context, t *Target) plan.Problems {
	ps := apiproblem.Of(v1alpha1.ReasonDryRunFailed, t.Object, a.Source, a.DryRunApply(ctx, a.Body(t)))
	for _, p := range ps {
		p.Err = errors.New("as it comes back, at its stable revision " + t.Restored.Revision + ": " + p.Err.Error())
	}
	return ps
}
