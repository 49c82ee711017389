package plan_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// signedPlan is a plan with its Deployment as most are written.
const signedPlan = `apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  workloadRef: {name: web}
  strategy:
    steps:
    - replicas: 1
    - replicas: 30%
      pause: {duration: 10m}
    - replicas: 100%
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web:v1}]}
`

// termsIn returns the terms of Deployment shop/web in manifests.
func termsIn(t *testing.T, manifests string, edit ...string) plan.Terms {
	t.Helper()
	for i := 0; i < len(edit); i += 2 {
		if !strings.Contains(manifests, edit[i]) {
			t.Fatalf("there is no %q in\n%s", edit[i], manifests)
		}
		manifests = strings.Replace(manifests, edit[i], edit[i+1], 1)
	}
	return collected(t, manifests).Terms("shop", "web")
}

func collected(t *testing.T, manifests string) *plan.Set {
	t.Helper()
	return plantest.Collect(t, map[string]string{"all.yaml": manifests}, ".", "shop")
}

// The text and the digest are specified in docs/signatures.md: who computes them by
// other means comes to the same.
func TestTerms_Canonical(t *testing.T) {
	const want = `{"deployment":"shop/web","minReadySeconds":0,"onFailure":"Hold","progressDeadlineSeconds":600,"rollback":[1,"100%"],` +
		`"steps":[{"gate":"approval","replicas":1},{"gate":"600s","replicas":"30%"},{"replicas":"100%"}],"strategy":{"maxSurge":"25%","maxUnavailable":"25%"}}`
	got := termsIn(t, signedPlan)
	if string(got) != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	sum := sha256.Sum256([]byte(want))
	d := got.Digest()
	if d != hex.EncodeToString(sum[:]) {
		t.Errorf("the digest is %s", d)
	}
	docs, err := os.ReadFile("../docs/signatures.md")
	if err != nil {
		t.Fatal(err)
	}
	none := collected(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n").Terms("shop", "web")
	for _, text := range []string{want, d, string(none), string(termsIn(t, signedPlan[strings.Index(signedPlan, "---\n"):]))} {
		if !strings.Contains(string(docs), text) {
			t.Errorf("docs/signatures.md does not have %s", text)
		}
	}
}

// Two plans that mean the same have one digest.
func TestTerms_Same(t *testing.T) {
	want := termsIn(t, signedPlan)
	for name, edit := range map[string][]string{
		"the deadline's default":   {"  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 600\n"},
		"onFailure's default":      {"  strategy:\n", "  strategy:\n    onFailure: Hold\n"},
		"the rollback's default":   {"  strategy:\n", "  strategy:\n    rollback: {steps: [{replicas: 1}, {replicas: 100%}]}\n"},
		"the same time":            {"10m", "600s"},
		"maxSurge's default":       {"  replicas: 4\n", "  replicas: 4\n  strategy: {rollingUpdate: {maxSurge: 25%}}\n"},
		"an empty strategy":        {"  replicas: 4\n", "  replicas: 4\n  strategy: {type: RollingUpdate}\n"},
		"minReadySeconds' default": {"  replicas: 4\n", "  replicas: 4\n  minReadySeconds: 0\n"},
		"the size":                 {"  replicas: 4\n", "  replicas: 9\n"},
		"the image":                {"web:v1", "web:v2"},
		"a freeze":                 {"  strategy:\n", "  paused: true\n  strategy:\n"},
		"the name of the plan":     {"kind: BatchRelease\nmetadata: {name: web}", "kind: BatchRelease\nmetadata: {name: other}"},
		"the reference in full":    {"workloadRef: {name: web}", "workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}"},
		"a label":                  {"kind: Deployment\nmetadata: {name: web}", "kind: Deployment\nmetadata: {name: web, labels: {a: b}}"},
	} {
		if got := termsIn(t, signedPlan, edit...); got != want {
			t.Errorf("%s: got\n%s, want\n%s", name, got, want)
		}
	}
}

// Every field that decides changes the digest, and no two of these are alike.
func TestTerms_Differ(t *testing.T) {
	seen := map[string]string{termsIn(t, signedPlan).Digest(): "nothing"}
	for name, edit := range map[string][]string{
		"a number of a step":   {"replicas: 1\n", "replicas: 2\n"},
		"a percentage":         {"30%", "40%"},
		"a number as written":  {"30%", "2"},
		"one step more":        {"    - replicas: 30%", "    - replicas: 20%\n    - replicas: 30%"},
		"one step less":        {"    - replicas: 1\n", ""},
		"one step":             {"    - replicas: 1\n    - replicas: 30%\n      pause: {duration: 10m}\n", ""},
		"a pause":              {"replicas: 1\n", "replicas: 1\n      pause: {duration: 1s}\n"},
		"a pause of no time":   {"replicas: 1\n", "replicas: 1\n      pause: {duration: 0s}\n"},
		"a shorter pause":      {"10m", "9m59s"},
		"half a second":        {"10m", "599.5s"},
		"an approval":          {"      pause: {duration: 10m}\n", ""},
		"the deadline":         {"  strategy:\n", "  strategy:\n    progressDeadlineSeconds: 601\n"},
		"onFailure":            {"  strategy:\n", "  strategy:\n    onFailure: Rollback\n"},
		"the rollback":         {"  strategy:\n", "  strategy:\n    rollback: {steps: [{replicas: 100%}]}\n"},
		"maxSurge":             {"  replicas: 4\n", "  replicas: 4\n  strategy: {rollingUpdate: {maxSurge: 26%}}\n"},
		"maxSurge as a number": {"  replicas: 4\n", "  replicas: 4\n  strategy: {rollingUpdate: {maxSurge: 1}}\n"},
		"maxUnavailable":       {"  replicas: 4\n", "  replicas: 4\n  strategy: {rollingUpdate: {maxUnavailable: 26%}}\n"},
		"minReadySeconds":      {"  replicas: 4\n", "  replicas: 4\n  minReadySeconds: 1\n"},
		"no plan":              {signedPlan[:strings.Index(signedPlan, "---\n")], ""},
		"no Deployment":        {signedPlan, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"},
		"another namespace": {"kind: BatchRelease\nmetadata: {name: web}", "kind: BatchRelease\nmetadata: {name: web, namespace: other}",
			"kind: Deployment\nmetadata: {name: web}", "kind: Deployment\nmetadata: {name: web, namespace: other}"},
	} {
		namespace := "shop"
		manifests := signedPlan
		for i := 0; i < len(edit); i += 2 {
			manifests = strings.Replace(manifests, edit[i], edit[i+1], 1)
		}
		if name == "another namespace" {
			namespace = "other"
		}
		d := collected(t, manifests).Terms(namespace, "web").Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
}

// Under keeps what was. A set under its own terms has the same ones, and under others it
// has those, with the template of the set.
func TestSet_Under(t *testing.T) {
	now := termsIn(t, signedPlan, "  strategy:\n",
		"  strategy:\n    rollback: {steps: [{replicas: 50%}, {replicas: 100%}]}\n    progressDeadlineSeconds: 7\n    onFailure: Rollback\n",
		"  replicas: 4\n", "  replicas: 4\n  minReadySeconds: 3\n  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}\n", "10m", "1.5s")
	kept := []plan.Kept{{Namespace: "shop", Name: "web", Terms: now}}
	kept[0].Plan.Name = "web"
	for name, edit := range map[string][]string{
		"other terms":  {"web:v1", "web:v2"},
		"another name": {"web:v1", "web:v2", "kind: BatchRelease\nmetadata: {name: web}", "kind: BatchRelease\nmetadata: {name: other}"},
		"no plan":      {"web:v1", "web:v2", signedPlan[:strings.Index(signedPlan, "---\n")], ""},
		"no plan, stopped": {"web:v1", "web:v2", signedPlan[:strings.Index(signedPlan, "---\n")], "", "  replicas: 4\n",
			"  replicas: 4\n  paused: true\n  strategy: {type: Recreate}\n"},
	} {
		manifests := signedPlan
		for i := 0; i < len(edit); i += 2 {
			manifests = strings.Replace(manifests, edit[i], edit[i+1], 1)
		}
		set := collected(t, manifests)
		before := set.Terms("shop", "web")
		under, err := set.Under(kept, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := under.Releases[0]
		if got := under.Terms("shop", "web"); got != now || r.Plan.Name != "web" || r.Template.Spec.Containers[0].Image != "web:v2" {
			t.Errorf("%s: BatchRelease %s of %s has\n%s, want\n%s", name, r.Plan.Name, r.Template.Spec.Containers[0].Image, got, now)
		}
		spec, _, _ := unstructured.NestedMap(under.Objects[0].Object, "spec")
		delete(spec, "template")
		want := map[string]any{
			"replicas": int64(4), "selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "minReadySeconds": int64(3),
			"strategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxSurge": int64(1), "maxUnavailable": int64(0)}},
		}
		if diff := cmp.Diff(want, spec); diff != "" {
			t.Errorf("%s: the Deployment (-want +got):\n%s", name, diff)
		}
		if set.Terms("shop", "web") != before {
			t.Errorf("%s: the set itself has changed", name)
		}
	}
	out, err := collected(t, signedPlan).Under(nil, collected(t, signedPlan).Objects)
	if err != nil || len(out.Objects) > 0 || len(out.Releases) > 0 {
		t.Errorf("%v: %+v", err, out)
	}
}

// A plan that is kept has its name, and no plan for another Deployment gets it.
func TestSet_Under_NameTaken(t *testing.T) {
	other := strings.NewReplacer("workloadRef: {name: web}", "workloadRef: {name: other}").Replace(signedPlan) +
		"---\n" + strings.Replace(signedPlan[strings.Index(signedPlan, "---\n")+4:], "metadata: {name: web}", "metadata: {name: other}", 1)
	kept := []plan.Kept{{Namespace: "shop", Name: "web", Terms: termsIn(t, signedPlan)}}
	kept[0].Plan.Name = "web"
	_, err := collected(t, other).Under(kept, nil)
	if err == nil || !strings.Contains(err.Error(), "governs Deployment shop/") ||
		!strings.Contains(err.Error(), "give the new plan another name") {
		t.Errorf("%v", err)
	}
}
