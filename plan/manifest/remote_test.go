package manifest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan/manifest"
	"github.com/tranche-dev/tranche/plan/plantest"
)

// A base in another repository is named as missing until it is there; then the result is
// that of a base in a folder.
func TestRemoteBases(t *testing.T) {
	const a = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	files := map[string]string{
		"apps/kustomization.yaml": "namePrefix: our-\nresources: ['git::https://example.org/base.git//k8s?ref=v1', own.yaml]\n",
		"apps/own.yaml":           strings.ReplaceAll(a, "name: a", "name: own"),
	}
	first, second := manifest.RemoteBase{
		URL: "https://example.org/base.git", Ref: "v1",
	}, manifest.RemoteBase{URL: "https://github.com/org/other"}
	bases := map[manifest.RemoteBase]string{}
	missing := func(want manifest.RemoteBase) {
		t.Helper()
		_, err := manifest.Render(plantest.Tree(t, files), "apps", manifest.RenderOptions{Bases: bases})
		if e, ok := errors.AsType[*manifest.MissingBasesError](err); !ok || !cmp.Equal(e.Bases, []manifest.RemoteBase{want}) {
			t.Fatalf("it says %v, want that %s is missing", err, want)
		}
	}
	missing(first)
	bases[first] = ".bases/0"
	files[".bases/0/k8s/kustomization.yaml"] = "namePrefix: first-\nresources: [github.com/org/other/dir, ../a.yaml]\n"
	files[".bases/0/a.yaml"] = a
	missing(second)
	bases[second] = ".bases/1"
	files[".bases/1/dir/kustomization.yaml"] = "namePrefix: second-\nresources: [a.yaml]\n"
	files[".bases/1/dir/a.yaml"] = a
	objects, err := manifest.Render(plantest.Tree(t, files), "apps", manifest.RenderOptions{Bases: bases})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, o.File+" "+o.GetName())
	}
	want := []string{"apps/kustomization.yaml our-first-a", "apps/kustomization.yaml our-first-second-a", "apps/own.yaml our-own"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The field bases, which kustomize has replaced by resources, is rendered like that.
func TestRemoteBases_FormerField(t *testing.T) {
	files := map[string]string{
		"kustomization.yaml":              "namePrefix: our-\nbases: ['https://example.org/base.git//k8s?ref=v1']\n",
		".bases/0/k8s/kustomization.yaml": "resources: [a.yaml]\n",
		".bases/0/k8s/a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
	}
	objects, err := manifest.Render(plantest.Tree(t, files), ".", manifest.RenderOptions{
		Bases: map[manifest.RemoteBase]string{{URL: "https://example.org/base.git", Ref: "v1"}: ".bases/0"},
	})
	if err != nil || len(objects) != 1 || objects[0].GetName() != "our-a" {
		t.Errorf("%v, %v", objects, err)
	}
}

// A remote base stays in its own repository, and names what may be fetched. Errors have
// its URL.
func TestRemoteBases_Refused(t *testing.T) {
	const prefix = "RenderFailed https://example.org/o/r k/kustomization.yaml: "
	for kustomization, want := range map[string]string{
		"resources: [../../../apps/secret.yaml]": prefix +
			"resources[0]: ../../../apps/secret.yaml leaves its repository; commit a copy of it",
		"resources: [/apps/secret.yaml]": prefix +
			"resources[0]: /apps/secret.yaml leaves its repository; commit a copy of it",
		"configMapGenerator: [{name: x, files: [../../../apps/s]}]": prefix +
			"configMapGenerator[0].files[0]: ../../../apps/s leaves its repository; commit a copy of it",
		"resources: ['file:///etc']": prefix +
			"resources[0]: file:///etc is not fetched: only https and http are; commit a copy of it",
		"resources: ['ssh://git@example.org/o/r']": prefix +
			"resources[0]: ssh://example.org/o/r is not fetched: only https and http are; commit a copy of it",
		"resources: ['git@example.org:o/r']": prefix +
			"resources[0]: git@example.org:o/r is not a URL; commit a copy of it",
		"resources: ['https://user:password@example.org/o/r']": prefix +
			"resources[0]: https://example.org/o/r is not fetched: it has credentials in it; commit a copy of it",
		"resources: ['https://example.org/o/r/a.yaml']": prefix +
			"resources[0]: https://example.org/o/r/a.yaml is one file, and only repositories are fetched; commit a copy of it",
		"resources: ['https://example.org/o/r//../../x']": prefix +
			"resources[0]: https://example.org/o/r//../../x leaves its repository; commit a copy of it",
		"resources: ['https://example.org/o/r?ref=--upload-pack=x']": prefix +
			"resources[0]: https://example.org/o/r?ref=--upload-pack=x has a ref that is not valid: \"--upload-pack=x\"; commit a copy of it",
		"configMapGenerator: [{name: x, files: ['https://a.org/x']}]": prefix +
			"configMapGenerator[0].files[0]: https://a.org/x is outside the repository; commit a copy of it",
		"resources: [missing.yaml]": prefix + "resources[0]: missing.yaml: no such file in the repository",
	} {
		t.Run(kustomization, func(t *testing.T) {
			files := map[string]string{
				"apps/kustomization.yaml": "resources: ['https://example.org/o/r/k']\n",
				"apps/secret.yaml":        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "apps/s": "secret",
				".bases/0/k/kustomization.yaml": kustomization + "\n",
			}
			_, err := manifest.Render(plantest.Tree(t, files), "apps", manifest.RenderOptions{
				Bases: map[manifest.RemoteBase]string{{URL: "https://example.org/o/r"}: ".bases/0"},
			})
			if diff := cmp.Diff([]string{want}, plantest.List(err)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The parts of a URL are those that kustomize finds, as its own tests have them.
func TestRemoteBases_URLs(t *testing.T) {
	for p, want := range map[string]manifest.RemoteBase{
		"https://github.com/kubernetes-sigs/kustomize/examples/multibases/dev/?ref=v1.0.6": {URL: "https://github.com/kubernetes-sigs/kustomize",
			Ref: "v1.0.6"},
		"https://github.com/org/repo//path?ref=a&timeout=10s":   {URL: "https://github.com/org/repo", Ref: "a"},
		"https://github.com/org/repo.git/path?version=b":        {URL: "https://github.com/org/repo.git", Ref: "b"},
		"https://dev.azure.com/org/project/_git/repo/path":      {URL: "https://dev.azure.com/org/project/_git/repo"},
		"GIT::https://git.example.org/group/sub/repo.git//path": {URL: "https://git.example.org/group/sub/repo.git"},
		"github.com:org/repo":                                   {URL: "https://github.com/org/repo"},
	} {
		_, err := manifest.Render(plantest.Tree(t, map[string]string{"kustomization.yaml": "resources: ['" + p + "']\n"}), ".",
			manifest.RenderOptions{Bases: map[manifest.RemoteBase]string{}})
		if e, ok := errors.AsType[*manifest.MissingBasesError](err); !ok || !cmp.Equal(e.Bases, []manifest.RemoteBase{want}) {
			t.Errorf("%s: %v", p, err)
		}
	}
}
