package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A reader copies the examples of the docs. The API server takes each object of them,
// strictly and with the validation of the CustomResourceDefinitions, and the controller
// takes each approval.
func TestExamplesOfTheDocs(t *testing.T) {
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	valid := map[string]int{}
	for _, file := range documents(t) {
		for _, example := range append(fenced(t, file), heredocs(t, file)...) {
			for _, manifest := range strings.Split(example, "\n---\n") {
				kind := validExample(t, c, ns, manifest)
				if kind.problem != "" {
					t.Errorf("%s: %s\n%s", file, kind.problem, manifest)
				}
				valid[kind.name]++
			}
		}
	}
	for _, kind := range []string{"GitSource", "BatchRelease", "BatchApproval", "BatchAnalysis"} {
		if valid[kind] == 0 {
			t.Errorf("no example of a %s was found, only of %v", kind, slices.Sorted(maps.Keys(valid)))
		}
	}
}

// exampleKind is the kind of an example, empty for a part of an object, and what is
// wrong with it.
type exampleKind struct{ name, problem string }

func validExample(t *testing.T, c *clustertest.Cluster, ns, example string) exampleKind {
	t.Helper()
	var object struct {
		Kind     string
		Metadata struct{ Namespace string }
	}
	if err := yaml.Unmarshal([]byte(example), &object); err != nil {
		return exampleKind{problem: err.Error()}
	}
	kind := exampleKind{name: object.Kind}
	switch kind.name {
	case "": // a part of an object, or a file of another program
	case "BatchApproval":
		fsys := filesys.MakeFsInMemory()
		if err := fsys.WriteFile("approvals/web.yaml", []byte(example)); err != nil {
			t.Fatal(err)
		}
		if approvals, problems := manifest.ReadApprovals(fsys, "approvals", ns); len(approvals) != 1 || len(problems) > 0 {
			kind.problem = problems.Error()
		}
	case "BatchAnalysis": // a file alone: its metrics are those of a plan
		example = planWith(t, example)
		fallthrough
	default:
		if from := object.Metadata.Namespace; from != "" {
			example = strings.ReplaceAll(example, "namespace: "+from, "namespace: "+ns)
		}
		if out, err := c.KubectlWith(t, example, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-n", ns, "-f",
			"-"); err != nil {
			kind.problem = err.Error() + ": " + out
		}
	}
	return kind
}

// planWith returns a plan with the metrics of a BatchAnalysis.
func planWith(t *testing.T, analysis string) string {
	t.Helper()
	var file v1alpha1.BatchAnalysis
	if err := yaml.UnmarshalStrict([]byte(analysis), &file); err != nil || len(file.Spec.Metrics) == 0 {
		t.Errorf("there are no metrics in %s: %v", analysis, err)
	}
	plan, err := yaml.Marshal(map[string]any{
		"apiVersion": "tranche.dev/v1alpha1", "kind": "BatchRelease", "metadata": map[string]any{"name": "analysis"},
		"spec": map[string]any{
			"workloadRef": map[string]any{"name": "web"},
			"strategy": map[string]any{
				"steps": []any{map[string]any{"replicas": "100%"}}, "analysis": map[string]any{"metrics": file.Spec.Metrics},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(plan)
}

// Each Deployment of the examples leaves replicas out, or has an autoscaler beside it. Otherwise
// the file says what kubectl scale does then, and which example shows the other way.
func TestExamplesScale(t *testing.T) {
	var files []string
	for _, depth := range []string{"*/*", "*/*/*", "*/*/*/*"} {
		found, err := filepath.Glob("../../examples/" + depth + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	deployments := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			var d appsv1.Deployment
			if err := yaml.Unmarshal([]byte(document), &d); err != nil || d.Kind != "Deployment" {
				continue
			}
			deployments++
			scaled := strings.Contains(string(text), "kind: HorizontalPodAutoscaler") || strings.Contains(document, "examples/autoscaled")
			if d.Spec.Replicas != nil && !scaled {
				t.Errorf("%s: Deployment %s has replicas, no autoscaler, and no word on kubectl scale", file, d.Name)
			}
		}
	}
	if deployments < 3 {
		t.Errorf("%d Deployments are found in %q", deployments, files)
	}
}

// documents are the files with examples.
func documents(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(pages, "../../README.md")
}

// heredocs returns the manifests that commands of a document read from their input.
func heredocs(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	var open []string
	end := ""
	for line := range strings.Lines(string(text)) {
		trimmed := strings.TrimSpace(line)
		_, mark, begins := strings.Cut(trimmed, " <<")
		switch {
		case end == "" && begins && strings.Contains(line, "apply"):
			end, open = strings.Trim(mark, "'"), nil
		case end != "" && trimmed == end:
			found = append(found, strings.Join(open, ""))
			end = ""
		case end != "":
			open = append(open, strings.TrimPrefix(line, "    "))
		}
	}
	return found
}
