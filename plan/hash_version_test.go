package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan"
)

func TestTemplateHashByVersion(t *testing.T) {
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}}}
	seen := map[string]int{}
	for _, minor := range []int{33, 34, 35, 36, 37} {
		h := plan.TemplateHash(template, nil, minor)
		if other, ok := seen[h]; ok {
			t.Errorf("1.%d and 1.%d give the same hash %s; a field of theirs is missing in since", minor, other, h)
		}
		seen[h] = minor
	}
	if plan.TemplateHash(template, nil, 0) != plan.TemplateHash(template, nil, 37) {
		t.Error("minor 0 is not the version that this program is built with")
	}
}
