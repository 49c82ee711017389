package plan_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/plan"
)

// TestTemplateHashGolden compares with hashes that each version of Kubernetes made itself, by its
// pkg/controller.ComputeHash. testdata/templatehash has printed them. They are of templates
// after the version's own SetObjectDefaults_Deployment, and of two with every field of it. A
// hash that differs would name our ReplicaSets otherwise than the native controller does.
func TestTemplateHashGolden(t *testing.T) {
	for _, minor := range []int{34, 35, 36} {
		data, err := os.ReadFile(fmt.Sprintf("testdata/templatehash-1.%d.json", minor))
		if err != nil {
			t.Fatal(err)
		}
		var golden []struct {
			Name           string
			CollisionCount *int32
			Hash           string
			Template       corev1.PodTemplateSpec
		}
		if err := json.Unmarshal(data, &golden); err != nil {
			t.Fatal(err)
		}
		if len(golden) < 8 {
			t.Errorf("1.%d: %d golden hashes", minor, len(golden))
		}
		for _, g := range golden {
			if got := plan.TemplateHash(&g.Template, g.CollisionCount, minor); got != g.Hash {
				t.Errorf("%s: got %s, Kubernetes 1.%d says %s", g.Name, got, minor, g.Hash)
			}
		}
	}
}

func TestEqualTemplate(t *testing.T) {
	base := func(change func(*corev1.PodTemplateSpec)) *corev1.PodTemplateSpec {
		p := &corev1.PodTemplateSpec{}
		p.Labels = map[string]string{"app": "web"}
		p.Spec.Containers = []corev1.Container{{Name: "web", Image: "nginx", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
		}}}
		change(p)
		return p
	}
	same := func(*corev1.PodTemplateSpec) {}
	for _, tc := range []struct {
		reason string
		a, b   *corev1.PodTemplateSpec
		want   bool
	}{
		{"no template is no template", nil, nil, true},
		{"a template is not no template", base(same), nil, false},
		{"the same twice", base(same), base(same), true},
		{
			"the hash label is not part of a revision", base(same),
			base(func(p *corev1.PodTemplateSpec) { p.Labels["pod-template-hash"] = "x" }), true,
		},
		{
			"two hash labels neither", base(func(p *corev1.PodTemplateSpec) { p.Labels["pod-template-hash"] = "y" }),
			base(func(p *corev1.PodTemplateSpec) { p.Labels["pod-template-hash"] = "x" }), true,
		},
		{"another label is", base(same), base(func(p *corev1.PodTemplateSpec) { p.Labels["tier"] = "x" }), false},
		{"nil equals empty", base(same), base(func(p *corev1.PodTemplateSpec) {
			p.Annotations = map[string]string{}
			p.Spec.Volumes = []corev1.Volume{}
		}), true},
		{"quantities count by value", base(same), base(func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("1024Mi")
		}), true},
		{"another image", base(same), base(func(p *corev1.PodTemplateSpec) { p.Spec.Containers[0].Image = "nginx:2" }), false},
		{"another container", base(same), base(func(p *corev1.PodTemplateSpec) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "side"})
		}), false},
	} {
		if got := plan.EqualTemplate(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: got %v", tc.reason, got)
		}
	}
	p := base(func(p *corev1.PodTemplateSpec) { p.Labels["pod-template-hash"] = "x" })
	plan.EqualTemplate(p, base(same))
	if p.Labels["pod-template-hash"] != "x" {
		t.Error("comparing took the label away")
	}
}
