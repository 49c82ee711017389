package clustertest

import (
	"cmp"
	"strings"
)

// Mutation is what a mutating policy changes, and in which writes.
type Mutation struct {
	Resources, Operations string
	Condition             string // default: always
	Expression            string // an object of fields to apply, or JSON patches
}

// Manifest is of a mutating policy for the namespace, and of its binding.
func (m Mutation) Manifest(namespace string) string {
	kind, field, group := "ApplyConfiguration", "applyConfiguration", "apps"
	if strings.Contains(m.Expression, "JSONPatch") {
		kind, field = "JSONPatch", "jsonPatch"
	}
	if m.Resources == "pods" {
		group = `""`
	}
	return strings.NewReplacer("NAME", namespace, "GROUP", group, "RESOURCES", m.Resources, "OPERATIONS", m.Operations,
		"CONDITION", cmp.Or(m.Condition, "true"), "KIND", kind, "FIELD", field, "EXPRESSION", m.Expression).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAME}}
    resourceRules:
    - {apiGroups: [GROUP], apiVersions: [v1], operations: [OPERATIONS], resources: [RESOURCES]}
  matchConditions: [{name: when, expression: 'CONDITION'}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: KIND
    FIELD:
      expression: 'EXPRESSION'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
`)
}
