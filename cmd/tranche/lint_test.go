package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
)

// lint prints all problems at once, with file and line.
func TestLint(t *testing.T) {
	for _, name := range []string{"folder", "alone"} {
		path := filepath.Join("testdata", "lint", "bad")
		if name == "alone" {
			path = filepath.Join(path, "release.yaml")
		}
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs([]string{"lint", path})
		root.SetOut(&out)
		if err := root.Execute(); err == nil || !strings.HasPrefix(err.Error(), "problems: ") {
			t.Errorf("%s: %v", name, err)
		}
		clitest.Golden(t, filepath.Join("testdata", "lint", name+".txt"), out.String())
	}
	for _, path := range []string{
		"../../examples/web", "../../examples/web/release.yaml", "../../examples/shop/overlays/production",
		"../../examples/autoscaled",
	} {
		var out bytes.Buffer
		if n, err := lint(&out, []string{path}, ""); n != 0 || err != nil {
			t.Errorf("%s: %d problems, %v:\n%s", path, n, err, out.String())
		}
	}
	if _, err := lint(&bytes.Buffer{}, []string{"nowhere"}, ""); err == nil {
		t.Error("a path that is not there passes")
	}
}

// A pre-commit hook passes names of files, of a folder that other folders build on, and
// of one in which an approval stands. lint prints each problem once, with its file
// relative to the current folder.
func TestLint_Hook(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"base/kustomization.yaml": "resources: [web.yaml]\n",
		"base/web.yaml":           strings.ReplaceAll(lintedWeb, "DURATION", "10"),
		"prod/kustomization.yaml": "resources: [../base]\n",
		"good/web.yaml":           strings.ReplaceAll(lintedWeb, "DURATION", "10s"),
		"good/approvals/web.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: web, namespace: shop}\nspec: " +
			"{revision: \"5c66667f6\", commit: \"3f2c1e0a9b8c\", step: 0}\n",
		"twice/web.yaml": strings.ReplaceAll(lintedWeb, "DURATION", "10s") +
			"---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: once}\nspec: {template: {spec: {containers: [{name: c}, {name: c}]}}}\n",
		"stranger/web.yaml": strings.ReplaceAll(lintedWeb, "DURATION", "10s"),
		"stranger/approvals/a/web.yaml": "apiVersion: tranche.dev/v1alpha1\nkind: BatchApproval\nmetadata: {name: api, namespace: shop}\nspec: " +
			"{revision: \"5c66667f6\", commit: \"3f2c1e0a9b8c\", step: 0}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(dir, "prod"))
	const wrong = "../base/web.yaml:14: BatchRelease default/web: spec.strategy.steps[0].pause.duration: must be a time with its unit, such " +
		"as 10s or 5m, not 10\n"
	for _, tc := range []struct {
		why, namespace, want string
		paths                []string
	}{
		{"a kustomization is its folder", "", wrong, []string{"kustomization.yaml"}},
		{"one problem is told once", "", wrong, []string{"kustomization.yaml", "../base/web.yaml", ".", filepath.Join(dir, "base")}},
		{"approvals name the namespace", "", "", []string{"../good"}},
		{"two entries of one key", "", "../twice/web.yaml:20: Job once: spec.template.spec.containers: more than one entry has the key " +
			"[name=\"c\"]; keep one of them\n", []string{"../twice"}},
		{"the flag counts", "default", "../good/approvals/web.yaml:1: BatchApproval shop/web: names no BatchRelease", []string{"../good"}},
		{"it says which namespace it took", "", "what names no namespace is taken to be in shop, -n says another", []string{"../stranger"}},
	} {
		var out bytes.Buffer
		if _, err := lint(&out, tc.paths, tc.namespace); err != nil || !strings.Contains(out.String(), tc.want) ||
			(tc.want == "" || tc.want == wrong) && out.String() != tc.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", tc.why, err, out.String(), tc.want)
		}
	}
}

// Without a path the current folder is checked.
func TestLint_NoPath(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "lint", "bad"))
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := newRoot()
		root.SetArgs(append([]string{"lint"}, args...))
		root.SetOut(&out)
		err := root.Execute()
		return out.String(), err
	}
	want, _ := run(".")
	if got, err := run(); err == nil || !strings.HasPrefix(err.Error(), "problems: ") || got != want {
		t.Errorf("lint without a path: %v\n%s\nwant what lint . prints:\n%s", err, got, want)
	}
}

// lint refuses what the controller refuses of a commit, and names files from the current folder.
func TestLint_AsTheController(t *testing.T) {
	dir := t.TempDir()
	const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for name, content := range map[string]string{
		".git/HEAD": "ref: refs/heads/main\n", "cm.yaml": configMap, "deploy/link.yaml": "->../../cm.yaml",
		"deploy/sub/.git":    "gitdir: ../../.git\n",
		"deploy/sub/cm.yaml": configMap, "twice/a.yaml": configMap, "twice/b.yaml": configMap, "good/cm.yaml": "->../cm.yaml",
	} {
		path := filepath.Join(dir, "clone", name)
		to, link := strings.CutPrefix(content, "->")
		err := os.MkdirAll(filepath.Dir(path), 0o750)
		if link {
			err = errors.Join(err, os.Symlink(to, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(content), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cm.yaml"), []byte(configMap), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(dir, "clone", "deploy"))
	for path, want := range map[string]string{
		".": "link.yaml:1: open /deploy/link.yaml: symbolic link leaves the repository\nsub: is a submodule, and what is in it is not applied; " +
			"move its files into this repository, or follow the other one with a GitSource of its own\n",
		"../twice": "../twice/b.yaml:1: ConfigMap default/a: is also in ../twice/a.yaml; keep one of the two\n",
		"../good":  "",
	} {
		var out bytes.Buffer
		if _, err := lint(&out, []string{path}, ""); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", path, err, out.String(), want)
		}
	}
	const leaves = "symbolic link leaves the repository"
	if _, err := lint(&bytes.Buffer{}, []string{"link.yaml"}, ""); err == nil || !strings.Contains(err.Error(), leaves) {
		t.Errorf("a file that is a link: %v", err)
	}
}

const lintedWeb = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "x:1"}]}
---
apiVersion: tranche.dev/v1alpha1
kind: BatchRelease
metadata: {name: web}
spec:
  strategy: {steps: [{replicas: 1, pause: {duration: DURATION}}, {replicas: 100%}]}
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}
`
