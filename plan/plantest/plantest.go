// Package plantest makes what package plan works on, for tests.
package plantest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
)

// Tree is a repository in memory, with the content of each file by its path
// from the root.
func Tree(t testing.TB, files map[string]string) filesys.FileSystem {
	t.Helper()
	fsys := filesys.MakeFsInMemory()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := fsys.WriteFile("/"+name, []byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

// Render renders a folder of such a repository and fails the test where that
// does not go well.
func Render(t testing.TB, files map[string]string, dir string) []plan.Object {
	t.Helper()
	objects, err := manifest.Render(Tree(t, files), dir, manifest.RenderOptions{})
	if err != nil {
		t.Fatalf("rendering %s: %v", dir, err)
	}
	return objects
}

// Collect renders and collects a folder, with namespace as the default one.
func Collect(t testing.TB, files map[string]string, dir, namespace string) *plan.Set {
	t.Helper()
	set, err := plan.Collect(Render(t, files, dir), plan.CollectOptions{Namespace: namespace, Namespaced: manifest.Namespaced})
	if err != nil {
		t.Fatalf("collecting %s: %v", dir, err)
	}
	return set
}

// Deployment is a manifest of a Deployment that can be released.
func Deployment(name, image string, replicas string) string {
	return `apiVersion: apps/v1
kind: Deployment
metadata:
  name: ` + name + `
spec:
  replicas: ` + replicas + `
  selector:
    matchLabels: {app: ` + name + `}
  template:
    metadata:
      labels: {app: ` + name + `}
    spec:
      containers:
      - name: main
        image: ` + image + `
`
}

// Plan is a plan file for a Deployment of the same name; steps are the replicas
// fields, the last of which is 100% by itself.
func Plan(name string, steps ...string) string {
	s := `apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata:
  name: ` + name + `
spec:
  workloadRef: {name: ` + name + `}
  strategy:
    steps:
`
	for _, step := range steps {
		s += "    - replicas: " + step + "\n"
	}
	return s + "    - replicas: 100%\n"
}

// Approval is an approval file.
func Approval(name, revision, commit, step string) string {
	return `apiVersion: tranche.dev/v1alpha1
kind: BatchApproval
metadata: {name: ` + name + `}
spec: {revision: ` + revision + `, commit: "` + commit + `", step: ` + step + `}
`
}

// List is all problems of an error, each with its reason.
func List(err error) []string {
	var ps plan.Problems
	var p *plan.Problem
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ps):
	case errors.As(err, &p):
		ps = plan.Problems{p}
	default:
		return []string{"not a problem: " + err.Error()}
	}
	var all []string
	for _, p := range ps {
		all = append(all, p.Reason+" "+p.Error())
	}
	return all
}

// Summary is an approval on one line; empty where there is none.
func Summary(a *plan.Approval) string {
	if a == nil {
		return ""
	}
	return strings.Join([]string{
		a.File, a.Metadata.Namespace + "/" + a.Metadata.Name, a.Spec.Revision, a.Spec.Commit, string('0' + rune(a.Spec.Step)),
	}, " ")
}
