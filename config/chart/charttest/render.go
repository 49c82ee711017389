package charttest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kuberuntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Root is the folder of the repository.
func Root(t testing.TB) string {
	t.Helper()
	root, err := clustertest.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// Chart is the folder of the chart.
func Chart(t testing.TB) string {
	t.Helper()
	return filepath.Join(Root(t), "config", "chart", "tranche")
}

// Release is what a chart is rendered for.
type Release struct {
	Name, Namespace string
	Upgrade         bool
	Values          string // YAML
	// Live are the objects that templates find in the cluster. With none there is no cluster,
	// as for `helm template`.
	Live []*unstructured.Unstructured
}

// Objects are rendered, in the order in which Helm installs them.
type Objects struct {
	Installed, Hooks []*unstructured.Unstructured
	Notes            string
}

// Render renders a chart, in a folder or a package, as Helm does.
func Render(path string, r Release) (Objects, error) {
	c, err := loader.Load(path)
	if err != nil {
		return Objects{}, fmt.Errorf("loading the chart: %w", err)
	}
	return RenderChart(c, r)
}

// RenderChart renders a chart that is loaded.
func RenderChart(c *chart.Chart, r Release) (Objects, error) {
	given, err := loader.LoadValues(strings.NewReader(r.Values))
	if err != nil {
		return Objects{}, fmt.Errorf("reading the values: %w", err)
	}
	caps := common.DefaultCapabilities.Copy()
	caps.KubeVersion = common.KubeVersion{Version: "v1.36.3", Major: "1", Minor: "36"}
	values, err := chartutil.ToRenderValues(c, given, common.ReleaseOptions{
		Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: !r.Upgrade, IsUpgrade: r.Upgrade,
	}, caps)
	if err != nil {
		return Objects{}, err
	}
	var files map[string]string
	if len(r.Live) == 0 {
		files, err = engine.Render(c, values)
	} else {
		files, err = engine.RenderWithClientProvider(c, values, live(r.Live))
	}
	if err != nil {
		return Objects{}, err
	}
	var o Objects
	for name, text := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			o.Notes = text
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return Objects{}, err
	}
	for _, m := range manifests {
		list, err := Decode(m.Content)
		if err != nil {
			return Objects{}, fmt.Errorf("%s: %w", m.Name, err)
		}
		o.Installed = append(o.Installed, list...)
	}
	for _, h := range hooks {
		list, err := Decode(h.Manifest)
		if err != nil {
			return Objects{}, fmt.Errorf("%s: %w", h.Path, err)
		}
		o.Hooks = append(o.Hooks, list...)
	}
	return o, nil
}

// Decode reads the objects of a text of YAML documents.
func Decode(text string) ([]*unstructured.Unstructured, error) {
	var list []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			list = append(list, o)
		}
	}
}

// live is a cluster of the objects that templates look up.
type live []*unstructured.Unstructured

func (l live) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
	plural := gvk.GroupVersion().WithResource(strings.ToLower(kind) + "s")
	var objects []kuberuntime.Object
	for _, o := range l {
		if o.GroupVersionKind() == gvk {
			objects = append(objects, o)
		}
	}
	lists := map[schema.GroupVersionResource]string{plural: kind + "List"}
	c := fake.NewSimpleDynamicClientWithCustomListKinds(kuberuntime.NewScheme(), lists, objects...)
	return c.Resource(plural), false, nil
}
