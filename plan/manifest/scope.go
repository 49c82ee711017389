package manifest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Namespaced tells the scope of a kind where no cluster can be asked: those of
// Kubernetes' own kinds are known, and all others are namespaced. It returns no error.
func Namespaced(gvk schema.GroupVersionKind) (bool, error) {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	namespaced := true
	withSchema(false, func() {
		namespaced = !openapi.IsCertainlyClusterScoped(yaml.TypeMeta{APIVersion: apiVersion, Kind: kind})
	})
	return namespaced, nil
}
