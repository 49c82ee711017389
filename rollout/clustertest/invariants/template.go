package invariants

import (
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// complete is a strategy as the API server defaults it.
func complete(s *appsv1.DeploymentStrategy) appsv1.DeploymentStrategy {
	c := *s.DeepCopy()
	if c.Type == "" {
		c.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if c.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return c
	}
	if c.RollingUpdate == nil {
		c.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	quarter := intstr.FromString("25%")
	c.RollingUpdate.MaxSurge = ptr.To(ptr.Deref(c.RollingUpdate.MaxSurge, quarter))
	c.RollingUpdate.MaxUnavailable = ptr.To(ptr.Deref(c.RollingUpdate.MaxUnavailable, quarter))
	return c
}

func encode(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// covers reports whether a template has every field of another one, with an equal
// value. The API server adds defaults, and admission may add more.
func covers(live, spec *corev1.PodTemplateSpec) bool {
	var a, b map[string]any
	if live == nil || spec == nil || json.Unmarshal([]byte(encode(live)), &a) != nil || json.Unmarshal([]byte(encode(spec)), &b) != nil {
		return false
	}
	return includes(a, b)
}

func includes(live, spec any) bool {
	switch spec := spec.(type) {
	case nil:
		return true
	case map[string]any:
		live, _ := live.(map[string]any)
		for k, value := range spec {
			if !includes(live[k], value) {
				return false
			}
		}
		return true
	case []any:
		live, _ := live.([]any)
		if len(live) < len(spec) {
			return false
		}
		for i, value := range spec {
			if !includes(live[i], value) {
				return false
			}
		}
		return true
	default:
		return equality.Semantic.DeepEqual(live, spec)
	}
}
