package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

func renderAndCollect(t *testing.T, files map[string]string) error {
	t.Helper()
	objects, err := manifest.Render(plantest.Tree(t, files), "apps", manifest.RenderOptions{Skip: "apps/approvals"})
	if err != nil {
		return err
	}
	_, err = plan.Collect(objects, plan.CollectOptions{Namespace: "shop", Namespaced: manifest.Namespaced})
	return err
}

// planWith is a plan file with more lines in its spec.
func planWith(lines string) string {
	return strings.Replace(plantest.Plan("web", "1"), "spec:\n", "spec:\n"+lines, 1)
}

func deploymentWith(old, replacement string) string {
	d := plantest.Deployment("web", "nginx", "10")
	if !strings.Contains(d, old) {
		panic("no " + old + " in the manifest")
	}
	return strings.Replace(d, old, replacement, 1)
}

func TestProblemsOfManifests(t *testing.T) {
	for _, tc := range []struct {
		reason string
		files  map[string]string
		want   []string
	}{
		{"nothing is wrong", map[string]string{
			"apps/web.yaml":               plantest.Deployment("web", "nginx", "10"),
			"apps/release.yaml":           plantest.Plan("web", "1", "30%"),
			"apps/approvals/web.yaml":     "not even: [yaml",
			"apps/.hidden/broken.yaml":    "not even: [yaml",
			"apps/README.md":              "not even: [yaml",
			"apps/empty.yaml":             "# nothing\n---\n---\n",
			"apps/source.yaml":            "apiVersion: tranche.dev/v1alpha1\nkind: GitSource\nmetadata: {name: other}\nspec: {url: https://example.org/x}\n",
			"apps/list.json":              "{\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [\n\t{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"x\"}}]}",
			"apps/sub/kustomization.yaml": "configMapGenerator: [{name: made}]\n",
		}, nil},
		{"finalizers with which the API server deletes", map[string]string{
			"apps/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, finalizers: [example.org/x, orphan, foregroundDeletion]}\n",
		}, []string{
			"InvalidManifest apps/a.yaml: ConfigMap shop/x: metadata.finalizers[1]: only the API server sets orphan, when an object is deleted; remove it",
			"InvalidManifest apps/a.yaml: ConfigMap shop/x: metadata.finalizers[2]: only the API server sets foregroundDeletion, when an object is deleted; remove it",
		}},
		{"a typed list gives its items their type", map[string]string{
			"apps/a.yaml": "apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: x}}, {metadata: {name: x}}]\n",
		}, []string{"DuplicateObject apps/a.yaml: ConfigMap shop/x: is also in apps/a.yaml; keep one of the two"}},
		{"a list of any kind does not", map[string]string{
			"apps/a.yaml": "apiVersion: v1\nkind: List\nitems: [{metadata: {name: x}}]\n",
		}, []string{"InvalidManifest apps/a.yaml: x: apiVersion: must be set", "InvalidManifest apps/a.yaml: x: kind: must be set"}},
		{"a syntax error has the line in the file, not in the document", map[string]string{
			"apps/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\na: b\nc: [d\n",
		}, []string{"InvalidManifest apps/a.yaml: line 6: did not find expected ',' or ']'"}},
		{"duplicate keys, which most readers swallow", map[string]string{
			"apps/a.yaml": "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  a: b\n  a: c\n",
		}, []string{`InvalidManifest apps/a.yaml: line 7: key "a" is there twice`}},
		{"what is after an end marker is read too", map[string]string{
			"apps/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n...\nkind: ConfigMap\n",
		}, []string{"InvalidManifest apps/a.yaml: ConfigMap: apiVersion: must be set", "InvalidManifest apps/a.yaml: ConfigMap: metadata.name: must be set"}},
		{"no object at all", map[string]string{"apps/a.yaml": "- a\n- b\n"},
			[]string{"InvalidManifest apps/a.yaml: line 1: must be an object with apiVersion, kind and metadata"}},
		{"all that an object lacks", map[string]string{"apps/a.yaml": "apiVersion: 1\nmetadata: {name: 5, labels: {a: true, b: c}}\n"},
			[]string{
				"InvalidManifest apps/a.yaml: apiVersion: must be a string, not 1",
				"InvalidManifest apps/a.yaml: kind: must be set",
				"InvalidManifest apps/a.yaml: metadata.labels[a]: must be a string, not true",
				"InvalidManifest apps/a.yaml: metadata.name: must be a string, not 5",
			}},
		{"one object in two files", map[string]string{
			"apps/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n",
			"apps/b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: shop}\n",
		}, []string{"DuplicateObject apps/b.yaml: ConfigMap shop/x: is also in apps/a.yaml; keep one of the two"}},
		{"a list that is none", map[string]string{"apps/a.yaml": "apiVersion: v1\nkind: List\nitems: {}\n"},
			[]string{"InvalidManifest apps/a.yaml: line 1: List: items: must be a list"}},
		{"everything at once, over several files", map[string]string{
			"apps/a.yaml": "a: [\n", "apps/b.yaml": "kind: ConfigMap\n", "apps/sub/c.yaml": "a: b: c\n",
		}, []string{
			"InvalidManifest apps/a.yaml: line 1: did not find expected node content",
			"InvalidManifest apps/b.yaml: ConfigMap: apiVersion: must be set",
			"InvalidManifest apps/b.yaml: ConfigMap: metadata.name: must be set",
			"InvalidManifest apps/sub/c.yaml: line 1: mapping values are not allowed in this context",
		}},
		{"no such folder", map[string]string{"other/a.yaml": ""}, []string{"RenderFailed apps: no such folder in the repository; set spec.path " +
			"to one that is there; if all of it has moved to another GitSource, keep one object here until that one has the rest"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plantest.List(renderAndCollect(t, tc.files))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestProblemsOfPlans(t *testing.T) {
	web := plantest.Deployment("web", "nginx", "10")
	for _, tc := range []struct {
		reason           string
		deployment, plan string
		want             []string
	}{
		{"nothing is wrong", web, plantest.Plan("web", "1", "30%"), nil},
		{"steps that go down only at the real number of replicas", web, plantest.Plan("web", "1", "3", "20%"),
			[]string{"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.steps[2].replicas: 20% of 10 is 2, below the 3 of step 1; steps may stay or go up"}},
		{"a Deployment that names no replicas leaves that to run time", strings.Replace(web, "  replicas: 10\n", "", 1), plantest.Plan("web", "3", "20%"), nil},
		{"so does an autoscaler", web + "---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: web}\nspec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n", plantest.Plan("web", "3", "20%"), nil},
		{"steps that go down whatever the number", web, plantest.Plan("web", "5", "3", "150%", "1"),
			[]string{
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.steps[1].replicas: 3: below an earlier step; steps may stay or go up",
				`InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.steps[2].replicas: "150%": a percentage must be from 1% to 100%`,
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.steps[3].replicas: 1: below an earlier step; steps may stay or go up",
			}},
		{"a way back that goes down at the real number", web, planWith("") + "    rollback: {steps: [{replicas: 5}, {replicas: 20%}, {replicas: 100%}]}\n",
			[]string{"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.rollback.steps[1].replicas: 20% of 10 is 2, below the 5 of step 0; steps may stay or go up"}},
		{"fields that do not exist, and types that do not fit, all of them", web,
			planWith("  pasued: true\n  paused: 5\n") + "      pause: 5m\n    onfailure: Hold\n    progressDeadlineSeconds: ten\n",
			[]string{
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.pasued: no such field",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.paused: must be true or false, not 5",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.onfailure: no such field; did you mean onFailure?",
				`InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.progressDeadlineSeconds: must be a whole number of 32 bits, not "ten"`,
				`InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.steps[1].pause: must be an object, not "5m"`,
			}},
		{"a duration that is none, a policy that is none", web, planWith("") + "    onFailure: Explode\n    progressDeadlineSeconds: 0\n",
			[]string{
				`InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.onFailure: Explode: supported values: "Hold", "Rollback"`,
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.strategy.progressDeadlineSeconds: 0: must be at least 1",
			}},
		{"what only the controller sets", web,
			planWith("  template: {}\n  commit: abc\n  approval: {revision: x, step: 0}\n  approvalsSince: {observedCommit: abc}\n  deploymentStrategy: {type: Recreate}\n  serviceAccountName: root\n  requireSignedApprovals: false\n") + "status: {phase: Completed}\n",
			[]string{
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.approval: is not set in Git: a BatchApproval file gives it; remove it",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.approvalsSince: is not set in Git: it is set from Git's history; remove it",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.commit: is not set in Git: it is set from Git's history; remove it",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.deploymentStrategy: is not set in Git: the Deployment's manifest has it; remove it",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.requireSignedApprovals: is not set in Git: the GitSource gives it; remove it",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.serviceAccountName: is not set in Git: the GitSource gives it; remove it",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.template: is not set in Git: the Deployment's manifest has it; remove it",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: status: is not set in Git: it is the controller's; remove it",
			}},
		{"what kubectl get leaves behind is no such thing", web, strings.Replace(planWith(""), "name: web\n", "name: web\n  creationTimestamp: null\n", 1) + "status: null\n", nil},
		{"another version", web, strings.Replace(planWith(""), "v1alpha1", "v2", 1),
			[]string{"InvalidPlan apps/release.yaml: BatchRelease shop/web: apiVersion: tranche.dev/v2 is not known; write tranche.dev/v1alpha1"}},
		{"a plan without its Deployment", "", plantest.Plan("web", "1"),
			[]string{"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.workloadRef: no Deployment shop/web is rendered with it; put its manifest below the same spec.path, or remove the plan"}},
		{"kustomize has renamed the Deployment, not the reference", plantest.Deployment("pre-web", "nginx", "1"), plantest.Plan("web", "1"),
			[]string{"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.workloadRef: no Deployment shop/web is rendered with it; there is pre-web; kustomize renames in spec.workloadRef only with a nameReference in its configurations"}},
		{"two plans", web, plantest.Plan("web", "1") + "---\n" + strings.Replace(plantest.Plan("web", "1"), "name: web", "name: web2", 1),
			[]string{"InvalidPlan apps/release.yaml: BatchRelease shop/web2: spec.workloadRef: Deployment web is governed by BatchRelease shop/web in apps/release.yaml already; keep one of the two plans"}},
		{"another kind", web, strings.Replace(planWith(""), "{name: web}", "{apiVersion: apps/v1, kind: StatefulSet}", 1),
			[]string{
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.workloadRef: apps/v1 StatefulSet cannot be released in batches; name a Deployment of apps/v1",
				"InvalidPlan apps/release.yaml: BatchRelease shop/web: spec.workloadRef.name: must be the Deployment's name",
			}},
		{"a Deployment that is paused, and recreated, in Git", deploymentWith("spec:\n", "spec:\n  paused: true\n  strategy: {type: Recreate}\n"), plantest.Plan("web", "1"),
			[]string{
				"InvalidManifest apps/web.yaml: Deployment shop/web: spec.paused: is true, and BatchRelease shop/web governs this Deployment; remove it; to freeze a release set spec.paused of the BatchRelease",
				"InvalidManifest apps/web.yaml: Deployment shop/web: spec.strategy.type: Recreate cannot be released in batches; write RollingUpdate, or remove the plan in apps/release.yaml",
			}},
		{"no template", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 1}\n", plantest.Plan("web", "1"),
			[]string{"InvalidManifest apps/web.yaml: Deployment shop/web: spec.template: must be set"}},
		{"wrong types, with the field, all of them", deploymentWith("image: nginx", "image: 5\n        ports: {}\n        resources: {limits: {cpu: much}}"), plantest.Plan("web", "1"),
			[]string{
				"InvalidManifest apps/web.yaml: Deployment shop/web: spec.template.spec.containers[0].image: must be a string, not 5",
				"InvalidManifest apps/web.yaml: Deployment shop/web: spec.template.spec.containers[0].ports: must be a list, not an object",
				`InvalidManifest apps/web.yaml: Deployment shop/web: spec.template.spec.containers[0].resources.limits[cpu]: "much": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
			}},
		{"a field of the template that we do not know would get lost", deploymentWith("image: nginx", "image: nginx\n        imagePullpolicy: Always\n        shiny: new"), plantest.Plan("web", "1"),
			[]string{
				"InvalidManifest apps/web.yaml: Deployment shop/web: spec.template.spec.containers[0].imagePullpolicy: no such field; did you mean imagePullPolicy?",
				"InvalidManifest apps/web.yaml: Deployment shop/web: spec.template.spec.containers[0].shiny: no such field",
			}},
		{"a field elsewhere that we do not know is the server's to judge", deploymentWith("spec:\n", "spec:\n  shiny: new\n"), plantest.Plan("web", "1"), nil},
		{"bounds that are none", deploymentWith("spec:\n", "spec:\n  strategy: {rollingUpdate: {maxSurge: lots}}\n"), plantest.Plan("web", "1"),
			[]string{`InvalidManifest apps/web.yaml: Deployment shop/web: spec.strategy.rollingUpdate: maxSurge: invalid value for IntOrString: invalid type: string is not a percentage; write a number or a percentage`}},
		{"a Deployment without a plan is nobody's business but the server's", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {paused: true, template: 5}\n", "", nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			err := renderAndCollect(t, map[string]string{"apps/web.yaml": tc.deployment, "apps/release.yaml": tc.plan})
			if diff := cmp.Diff(tc.want, plantest.List(err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCollect(t *testing.T) {
	files := map[string]string{
		"apps/a.yaml": plantest.Deployment("web", "nginx", "3") + "---\n" + plantest.Deployment("api", "nginx", "3") + "---\n" + plantest.Deployment("other", "nginx", "3"),
		"apps/b.yaml": `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook, namespace: wrong}
---
apiVersion: example.org/v1
kind: Machine
metadata: {name: lathe}
---
apiVersion: example.org/v1
kind: Service
metadata: {name: not-a-service, namespace: own}
---
apiVersion: v1
kind: Service
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machines.example.org}
spec: {group: example.org, names: {kind: Machine}, scope: Cluster}
---
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: other}
spec: {scaleTargetRef: {name: other}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
`,
		"apps/c.yaml": plantest.Plan("web", "1") + "---\n" + plantest.Plan("api", "1") + "---\n" + plantest.Approval("web", "abc", "3f2c1e0", "0"),
	}
	set := plantest.Collect(t, files, "apps", "shop")
	var got []string
	for _, o := range set.Objects {
		got = append(got, o.String())
	}
	want := []string{
		"CustomResourceDefinition machines.example.org", "Namespace shop", "ServiceAccount shop/web", "ConfigMap shop/settings", "Service shop/web",
		"Deployment shop/web", "Deployment shop/api", "Deployment shop/other",
		"Machine lathe", "Service own/not-a-service", "HorizontalPodAutoscaler shop/web", "ScaledObject shop/other", "ValidatingWebhookConfiguration hook",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order and namespaces (-want +got):\n%s", diff)
	}
	var releases []string
	for _, r := range set.Releases {
		releases = append(releases, r.String()+" in "+r.File+" of "+r.Deployment.File+": "+r.Template.Spec.Containers[0].Image)
	}
	if diff := cmp.Diff([]string{"BatchRelease shop/api in apps/c.yaml of apps/a.yaml: nginx", "BatchRelease shop/web in apps/c.yaml of apps/a.yaml: nginx"}, releases); diff != "" {
		t.Errorf("releases (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ApprovalIgnored apps/c.yaml: BatchApproval web: is not in the folder for approvals; move it to the path that the GitSource names in spec.approvals.path"}, plantest.List(set.Ignored)); diff != "" {
		t.Errorf("ignored (-want +got):\n%s", diff)
	}
	for _, o := range set.Objects {
		r, scaled := set.Governed(o), set.Autoscaled(o)
		governed := o.GetKind() == "Deployment" && o.GetName() != "other"
		if (r != nil) != governed || r != nil && r.Plan.Name != o.GetName() {
			t.Errorf("Governed(%s) = %v", o, r)
		}
		if want := o.GetKind() == "Deployment" && o.GetName() != "api"; scaled != want {
			t.Errorf("Autoscaled(%s) = %v", o, scaled)
		}
	}
	if set.Releases[0].Strategy != nil {
		t.Error("a manifest without a strategy has none")
	}
}

func TestCollectScopes(t *testing.T) {
	objects := plantest.Render(t, map[string]string{"apps/a.yaml": plantest.Deployment("web", "nginx", "3") + "---\n" + strings.Replace(plantest.Plan("web", "1"), "name: web", "name: web\n  namespace: own", 1) +
		"---\napiVersion: example.org/v1\nkind: Machine\nmetadata: {name: lathe, namespace: x}\n"}, "apps")
	var asked []string
	set, err := plan.Collect(objects, plan.CollectOptions{Namespace: "shop", TargetNamespace: "target", Namespaced: func(gvk schema.GroupVersionKind) (bool, error) {
		asked = append(asked, gvk.GroupKind().String())
		return gvk.Group == "apps", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Deployment.apps", "Machine.example.org"}, asked); diff != "" {
		t.Errorf("each kind is asked for once, our own not at all (-want +got):\n%s", diff)
	}
	if got := set.Objects[1].String() + ", " + set.Releases[0].String(); got != "Machine lathe, BatchRelease target/web" {
		t.Errorf("got %s", got)
	}
	if got := objects[0].GetNamespace(); got != "" {
		t.Errorf("Collect changed what it was given: namespace %q", got)
	}
	twins := plantest.Render(t, map[string]string{"apps/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: own}\n", "apps/b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: other}\n"}, "apps")
	_, err = plan.Collect(twins, plan.CollectOptions{TargetNamespace: "target"})
	if diff := cmp.Diff([]string{"DuplicateObject apps/b.yaml: ConfigMap target/a: is also in apps/a.yaml; keep one of the two"}, plantest.List(err)); diff != "" {
		t.Errorf("two that the target namespace makes one (-want +got):\n%s", diff)
	}
	unknown := &plan.Problem{Reason: "UnknownKind", Err: errors.New("no such kind")}
	_, err = plan.Collect(twins, plan.CollectOptions{Namespaced: func(schema.GroupVersionKind) (bool, error) { return false, unknown }})
	if diff := cmp.Diff([]string{"UnknownKind apps/a.yaml: ConfigMap own/a: no such kind", "UnknownKind apps/b.yaml: ConfigMap other/a: no such kind"}, plantest.List(err)); diff != "" {
		t.Errorf("each object of a kind that is not known is named (-want +got):\n%s", diff)
	}
	_, err = plan.Collect(objects, plan.CollectOptions{Namespaced: func(schema.GroupVersionKind) (bool, error) { return false, errors.New("the server is away") }})
	want := []string{
		"InvalidManifest apps/a.yaml: Deployment web: finding the scope of Deployment.apps: the server is away",
		"InvalidManifest apps/a.yaml: Machine x/lathe: finding the scope of Machine.example.org: the server is away",
	}
	if diff := cmp.Diff(want, plantest.List(err)); diff != "" {
		t.Errorf("a scope that cannot be had (-want +got):\n%s", diff)
	}
}

// A file may have any name.
func TestProblem_OneLine(t *testing.T) {
	for where, want := range map[string]string{
		"a\x1b[2J\nReady True.yaml: Deployment shop/web": `"a\x1b[2J\nReady True.yaml: Deployment shop/web": is wrong`,
		"b\u202elmay.bew: Deployment shop/web":           `"b\u202elmay.bew: Deployment shop/web": is wrong`,
		"c/straße.yaml: Deployment shop/web":             "c/straße.yaml: Deployment shop/web: is wrong",
	} {
		if got := (&plan.Problem{Where: where, Err: errors.New("is wrong")}).Error(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	for sent, want := range map[string]string{
		"remote: no\r\n\tsuch\x1b[31m branch\n": "remote: no such [31m branch",
		"of \u202eelpoep\u202c\u2028\u2066x":    "of elpoep x",
		strings.Repeat("ä", 300):                strings.Repeat("ä", 240) + "…",
	} {
		if got := plan.OneLine(sent); got != want {
			t.Errorf("OneLine(%q) = %q, want %q", sent, got, want)
		}
	}
}
