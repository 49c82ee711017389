// Package order knows the order in which kinds are applied. It is the customary one of kubectl,
// kustomize and Flux. Objects that others need come first, and those that can refuse others come
// last. Kinds that are not listed come after the workloads.
package order

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	first = kinds(
		"CustomResourceDefinition.apiextensions.k8s.io", "Namespace", "ResourceQuota",
		"StorageClass.storage.k8s.io", "PriorityClass.scheduling.k8s.io", "RuntimeClass.node.k8s.io",
		"ServiceAccount", "Role.rbac.authorization.k8s.io", "ClusterRole.rbac.authorization.k8s.io",
		"RoleBinding.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io",
		"ConfigMap", "Secret", "LimitRange", "NetworkPolicy.networking.k8s.io",
		"Endpoints", "EndpointSlice.discovery.k8s.io", "Service",
		"PersistentVolume", "PersistentVolumeClaim", "PodDisruptionBudget.policy",
		"DaemonSet.apps", "Deployment.apps", "StatefulSet.apps", "ReplicaSet.apps", "Pod", "CronJob.batch", "Job.batch",
	)
	last = kinds(
		"APIService.apiregistration.k8s.io",
		"MutatingWebhookConfiguration.admissionregistration.k8s.io",
		"ValidatingWebhookConfiguration.admissionregistration.k8s.io",
		"MutatingAdmissionPolicy.admissionregistration.k8s.io",
		"MutatingAdmissionPolicyBinding.admissionregistration.k8s.io",
		"ValidatingAdmissionPolicy.admissionregistration.k8s.io",
		"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	)
)

func kinds(names ...string) []schema.GroupKind {
	list := make([]schema.GroupKind, len(names))
	for i, n := range names {
		kind, group, _ := strings.Cut(n, ".")
		list[i] = schema.GroupKind{Group: group, Kind: kind}
	}
	return list
}

// Of returns the place of a kind. The lowest comes first.
func Of(gk schema.GroupKind) int {
	if i := slices.Index(first, gk); i >= 0 {
		return i
	}
	return len(first) + 1 + slices.Index(last, gk)
}
