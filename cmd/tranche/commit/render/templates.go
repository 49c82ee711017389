package render

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/plan"
)

// Template is that of a Deployment.
type Template struct {
	Name string // of the BatchRelease; without a plan, of the Deployment: namespace/name
	Kind string
	*corev1.PodTemplateSpec
}

// Templates returns the pod templates of a set, by namespace/name of their Deployments.
func Templates(set *plan.Set) map[string]Template {
	found := map[string]Template{}
	for _, o := range set.Objects {
		if t := templateOf(o); t != nil {
			name := o.GetNamespace() + "/" + o.GetName()
			found[name] = Template{name, "Deployment", t}
		}
	}
	for i := range set.Releases {
		r := &set.Releases[i]
		found[r.Deployment.GetNamespace()+"/"+r.Deployment.GetName()] = Template{r.Plan.Namespace + "/" + r.Plan.Name, "BatchRelease", r.Template}
	}
	return found
}

// templateOf returns the pod template of a Deployment; nil for another kind.
func templateOf(o plan.Object) *corev1.PodTemplateSpec {
	if o.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "apps", Kind: "Deployment"}) {
		return nil
	}
	d := &appsv1.Deployment{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, d) != nil {
		return nil
	}
	return &d.Spec.Template
}
