package plan

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// ReleaseName returns namespace and name of a BatchRelease.
func ReleaseName(br *v1alpha1.BatchRelease) string { return br.Namespace + "/" + br.Name }

// WorkloadOf returns namespace and name of the Deployment of a release.
func WorkloadOf(release *Release) types.NamespacedName {
	return types.NamespacedName{Namespace: release.Plan.Namespace, Name: release.Plan.Spec.WorkloadRef.Name}
}
