package plan_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan/plantest"
)

// The ReplicaSets of a Deployment adopt pods with the label pod-template-hash. No kind of
// object may bring it to pods, and selectors may name it.
func TestPodTemplateHashInGit(t *testing.T) {
	const labels = "{bg: a, app: web, pod-template-hash: 7d9f}"
	kind := func(apiVersion, kind, rest string) string {
		return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: x}\n" + rest + "\n"
	}
	for name, tc := range map[string]struct{ manifest, object, field string }{
		"ReplicationController": {kind("v1", "ReplicationController", "spec: {selector: {bg: a}, template: {metadata: {labels: "+labels+"}}}"),
			"ReplicationController", "spec.template.metadata.labels"},
		"ReplicaSet": {kind("apps/v1", "ReplicaSet",
			"spec: {selector: {matchLabels: {bg: a}}, template: {metadata: {labels: "+labels+"}}}"), "ReplicaSet", "spec.template.metadata.labels"},
		"StatefulSet": {kind("apps/v1", "StatefulSet", "spec: {template: {metadata: {labels: "+labels+"}}}"), "StatefulSet",
			"spec.template.metadata.labels"},
		"DaemonSet": {kind("apps/v1", "DaemonSet", "spec: {template: {metadata: {labels: "+labels+"}}}"), "DaemonSet",
			"spec.template.metadata.labels"},
		"Deployment": {kind("apps/v1", "Deployment", "spec: {template: {metadata: {labels: "+labels+"}}}"), "Deployment",
			"spec.template.metadata.labels"},
		"Job": {kind("batch/v1", "Job", "spec: {template: {metadata: {labels: "+labels+"}}}"), "Job",
			"spec.template.metadata.labels"},
		"CronJob": {kind("batch/v1", "CronJob", "spec: {jobTemplate: {spec: {template: {metadata: {labels: "+labels+"}}}}}"),
			"CronJob", "spec.jobTemplate.spec.template.metadata.labels"},
		"PodTemplate": {kind("v1", "PodTemplate", "template: {metadata: {labels: "+labels+"}}"), "PodTemplate",
			"template.metadata.labels"},
		"Pod": {"apiVersion: v1\nkind: Pod\nmetadata: {name: x, labels: " + labels + "}\n", "Pod", "metadata.labels"},
		"a custom resource": {kind("example.org/v1", "JobSet",
			"spec: {groups: [{name: a}, {template: {spec: {template: {metadata: {labels: "+labels+"}}}}}]}"), "JobSet",
			"spec.groups[1].template.spec.template.metadata.labels"},
		"labels of pods": {kind("example.org/v1", "Database", "spec: {podLabels: "+labels+"}"), "Database", "spec.podLabels"},
		"labels that are copied": {"apiVersion: example.org/v1\nkind: Queue\nmetadata: {name: x, labels: " + labels + "}\n",
			"Queue", "metadata.labels"},
		"an empty value": {kind("v1", "ReplicationController", "spec: {template: {metadata: {labels: {pod-template-hash: ''}}}}"),
			"ReplicationController", "spec.template.metadata.labels"},
		"a list in a list": {kind("example.org/v1", "Matrix", "spec: {rows: [[{labels: "+labels+"}]]}"), "Matrix", "spec.rows[0][0].labels"},

		"selectors": {manifest: kind("v1", "Service", "spec: {selector: "+labels+"}") + "---\n" +
			kind("networking.k8s.io/v1", "NetworkPolicy", "spec: {podSelector: {matchLabels: "+labels+"}}")},
		"keys of a spread": {manifest: kind("batch/v1", "Job",
			"spec: {template: {spec: {topologySpreadConstraints: [{matchLabelKeys: [pod-template-hash]}]}}}")},
		"the data of a ConfigMap": {manifest: kind("v1", "ConfigMap", "data: {pod-template-hash: x, labels: pod-template-hash}")},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			if tc.field != "" {
				want = []string{
					"InvalidManifest apps/x.yaml: " + tc.object + " shop/x: " + tc.field +
						"[pod-template-hash]: only a controller of Kubernetes sets it; remove it",
				}
			}
			if diff := cmp.Diff(want, plantest.List(renderAndCollect(t, map[string]string{"apps/x.yaml": tc.manifest}))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The annotations by which the controller marks a BatchRelease are refused in Git.
func TestControllersAnnotationsInGit(t *testing.T) {
	const sets = "only the controller sets it; remove it"
	for name, says := range map[string]string{
		"push": sets, "commit-author": sets, "commit-url": sets, "rejected": sets, "returns": sets,
		"rollback": "in Git it would roll back each release that follows; remove it",
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"apps/x.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchRelease\n" +
				"metadata: {name: x, annotations: {tranche.dev/" + name + ": a}}\n" +
				"spec: {workloadRef: {name: x}, strategy: {steps: [{replicas: 100%}]}}\n"}
			want := "InvalidManifest apps/x.yaml: BatchRelease shop/x: metadata.annotations[tranche.dev/" + name +
				"]: " + says
			if got := plantest.List(renderAndCollect(t, files)); !slices.Contains(got, want) {
				t.Errorf("%q, want %q among them", got, want)
			}
		})
	}
}
