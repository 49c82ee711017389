package facts

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Label reports whether a ReplicaSet of a Deployment has the label of a hold after a write
// that wants it so. The label stays as it is if the pod template has one of that name, or if
// the selector of the Deployment names it. By a change of that the native controller would
// release the ReplicaSet (H18).
func Label(d *appsv1.Deployment, rs *appsv1.ReplicaSet, wanted bool) bool {
	names := func(e metav1.LabelSelectorRequirement) bool { return e.Key == v1alpha1.LabelHeld }
	selector := d.Spec.Selector
	if v1alpha1.HasHeld(rs.Spec.Template.Labels) || selector != nil && slices.ContainsFunc(selector.MatchExpressions, names) {
		return v1alpha1.HasHeld(rs.Labels)
	}
	return wanted
}

// Labelled reports whether a ReplicaSet has the label of a hold from Tranche.
func Labelled(d *appsv1.Deployment, rs *appsv1.ReplicaSet) bool {
	return v1alpha1.HasHeld(rs.Labels) && !Label(d, rs, false)
}

// SetLabel gives a ReplicaSet that is to be made for a Deployment the label of a hold.
func SetLabel(d *appsv1.Deployment, rs *appsv1.ReplicaSet, held bool) {
	if Label(d, rs, held) && !v1alpha1.HasHeld(rs.Labels) {
		rs.Labels[v1alpha1.LabelHeld] = "true"
	}
}
