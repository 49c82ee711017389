package diff

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tranche-dev/tranche/gitsync/preview"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/foresee"
)

func TestDiff_EqualImages(t *testing.T) {
	before := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v1"}}}}
	after := before.DeepCopy()
	after.Annotations = map[string]string{"settings": "2"}
	r := preview.Release{Plan: &v1alpha1.BatchRelease{}, Before: before, After: after, Replicas: 1}
	r.Deployment = plan.Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{"kind": "Deployment",
		"metadata": map[string]any{"name": "web"}}}}
	d := &difference{outlooks: map[string]outlook{r.Deployment.String(): {Outlook: foresee.Outlook{Kind: foresee.OutlookRelease}}}}
	p := &report{}
	d.release(p, &r)
	if strings.Contains(p.text(), "container  now") {
		t.Errorf("a table of equal images:\n%s", p.text())
	}
	after.Spec.Containers[0].Image = "web:v2"
	d.release(p, &r)
	if !strings.Contains(p.text(), "container  now") {
		t.Errorf("no table of images:\n%s", p.text())
	}
}

// A template that the API server completed is known again, and one that says
// something else is not.
func TestSameButDefaults(t *testing.T) {
	said := func() *corev1.PodTemplateSpec {
		return &corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "web", Image: "web:v1", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}},
				Resources:      corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("0.5")}},
			}}},
		}
	}
	completed := func() *corev1.PodTemplateSpec {
		c := said()
		c.Labels["pod-template-hash"] = "abc"
		seconds := int64(30)
		c.Spec.RestartPolicy, c.Spec.DNSPolicy, c.Spec.SchedulerName = corev1.RestartPolicyAlways, corev1.DNSClusterFirst, "default-scheduler"
		c.Spec.TerminationGracePeriodSeconds, c.Spec.SecurityContext = &seconds, &corev1.PodSecurityContext{}
		w := &c.Spec.Containers[0]
		w.Ports[0].Protocol, w.ImagePullPolicy = corev1.ProtocolTCP, corev1.PullIfNotPresent
		w.TerminationMessagePath, w.TerminationMessagePolicy = "/dev/termination-log", corev1.TerminationMessageReadFile
		w.ReadinessProbe.TimeoutSeconds, w.ReadinessProbe.PeriodSeconds, w.ReadinessProbe.SuccessThreshold, w.ReadinessProbe.FailureThreshold = 1, 10, 1, 3
		w.ReadinessProbe.HTTPGet.Path, w.ReadinessProbe.HTTPGet.Scheme = "/", corev1.URISchemeHTTP
		w.Resources.Limits["cpu"] = resource.MustParse("500m")
		w.Resources.Requests = w.Resources.Limits
		return c
	}
	if !sameButDefaults(said(), completed()) {
		t.Error("a completed template is not known again")
	}
	for reason, change := range map[string]func(said, completed *corev1.PodTemplateSpec){
		"another image":        func(s, _ *corev1.PodTemplateSpec) { s.Spec.Containers[0].Image = "web:v2" },
		"a label that is gone": func(_, c *corev1.PodTemplateSpec) { c.Labels["tier"] = "1" },
		"a label that is new":  func(s, _ *corev1.PodTemplateSpec) { s.Labels["tier"] = "1" },
		"a container more": func(_, c *corev1.PodTemplateSpec) {
			c.Spec.Containers = append(c.Spec.Containers, corev1.Container{Name: "side"})
		},
		"not the default":           func(_, c *corev1.PodTemplateSpec) { c.Spec.Containers[0].ReadinessProbe.FailureThreshold = 5 },
		"a setting that is gone":    func(_, c *corev1.PodTemplateSpec) { c.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"}} },
		"a service account is gone": func(_, c *corev1.PodTemplateSpec) { c.Spec.ServiceAccountName = "web" },
	} {
		s, c := said(), completed()
		if change(s, c); sameButDefaults(s, c) {
			t.Errorf("%s makes no difference", reason)
		}
	}
}
