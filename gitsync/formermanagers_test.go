package gitsync_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// formerly has a Deployment and a ConfigMap that others applied or made before they came to Git. A
// plus adds the fields that Git has only at first, and those that it never has.
func formerly(name, atFirst, never string) map[string]string {
	pick := func(text, field string) string {
		return map[bool]string{true: field}[strings.Contains(text, "+")]
	}
	return map[string]string{
		name + "/config.yaml": fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s, labels: {team: shop%[2]s%[3]s}}
data: {stays: a%[2]s%[3]s}
`, name, pick(atFirst, ", leaves: b"), pick(never, ", never: c")),
		name + "/web.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers:
      - {name: web, image: "registry.example.org/web:v1", env: [{name: STAYS, value: a}%[2]s]}
%[3]s`, name, pick(atFirst, ", {name: LEAVES, value: b}"),
			pick(atFirst, "      - {name: leaves, image: \"registry.example.org/web:v1\"}\n")),
	}
}

// A field that leaves Git leaves the object, also if kubectl, Helm, Flux or Argo CD made it. A field
// that Git never set stays, and so does one that another applies too.
func TestFieldsOfFormerManagersLeaveWithGit(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	former := map[string][]string{
		"client": {"apply", "-f", "-"},
		"server": {"apply", "--server-side", "-f", "-"},
		"create": {"create", "-f", "-"},
		"flux":   {"apply", "--server-side", "--field-manager=kustomize-controller", "-f", "-"},
		"again":  {"create", "-f", "-"},
		"other":  {"apply", "--server-side", "--field-manager=example", "-f", "-"},
	}
	names := slices.Sorted(maps.Keys(former))
	files := map[string]string{}
	for _, name := range names {
		made := formerly(name, "+", "+")
		s.with(made[name+"/config.yaml"]+"---\n"+made[name+"/web.yaml"], former[name]...)
		maps.Copy(files, formerly(name, "+", ""))
	}
	tip := s.push(files)
	for _, name := range names {
		s.another(name, name)
		s.isAppliedBy(name, tip)
	}
	made := formerly("again", "+", "") // between two commits
	s.with(made["again/config.yaml"]+"---\n"+made["again/web.yaml"], "apply", "--server-side", "-f", "-")
	files = map[string]string{}
	for _, name := range names {
		maps.Copy(files, formerly(name, "", ""))
	}
	s.push(files)
	for _, name := range names {
		want := "STAYS web; never stays; never team"
		if name == "other" {
			want = "LEAVES STAYS leaves web; leaves never stays; leaves never team"
		}
		clustertest.Wait(t, "what is left of "+name, func() error {
			if got := fieldsOf(s, name); got != want {
				return fmt.Errorf("%q, want %q", got, want)
			}
			return nil
		})
	}
}

// fieldsOf names the variables and containers of a Deployment, and the data and labels of a ConfigMap.
func fieldsOf(s *env, name string) string {
	s.Helper()
	var d appsv1.Deployment
	var c corev1.ConfigMap
	get(s, name, &d)
	get(s, name, &c)
	var pod []string
	for _, container := range d.Spec.Template.Spec.Containers {
		pod = append(pod, container.Name)
		for _, e := range container.Env {
			pod = append(pod, e.Name)
		}
	}
	slices.Sort(pod)
	maps.DeleteFunc(c.Labels, func(k, _ string) bool { return strings.HasPrefix(k, "tranche.dev/") })
	join := func(of map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(of)), " ") }
	return strings.Join(pod, " ") + "; " + join(c.Data) + "; " + join(c.Labels)
}
