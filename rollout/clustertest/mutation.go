package clustertest

import (
	"cmp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mutatingVersion is the API version of mutating policies. Kubernetes 1.34 and 1.35 have them in
// a beta version, which devcluster turns on.
func (c *Cluster) mutatingVersion() string {
	if c.Minor < 36 {
		return admissionv1beta1.SchemeGroupVersion.String()
	}
	return admissionv1.SchemeGroupVersion.String()
}

// Mutating returns a mutating policy, or its binding, in the version that the cluster has. Both
// versions have the same fields.
func (c *Cluster) Mutating(t testing.TB, policy client.Object) client.Object {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
	if err != nil {
		t.Fatal(err)
	}
	gvk, err := c.Client.GroupVersionKindFor(policy)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(schema.FromAPIVersionAndKind(c.mutatingVersion(), gvk.Kind))
	return u
}

// Mutation is what a mutating policy changes, and in which writes.
type Mutation struct {
	Resources, Operations string
	Condition             string // default: always
	Expression            string // an object of fields to apply, or JSON patches
}

// Manifest is of a mutating policy for the namespace, and of its binding, in the version that the
// cluster has.
func (m Mutation) Manifest(c *Cluster, namespace string) string {
	kind, field, group := "ApplyConfiguration", "applyConfiguration", "apps"
	if strings.Contains(m.Expression, "JSONPatch") {
		kind, field = "JSONPatch", "jsonPatch"
	}
	if m.Resources == "pods" {
		group = `""`
	}
	return strings.NewReplacer(
		"VERSION", c.mutatingVersion(), "NAME", namespace, "GROUP", group, "RESOURCES", m.Resources, "OPERATIONS", m.Operations,
		"CONDITION", cmp.Or(m.Condition, "true"), "KIND", kind, "FIELD", field, "EXPRESSION", m.Expression).Replace(`
apiVersion: VERSION
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
apiVersion: VERSION
kind: MutatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME}
`)
}
