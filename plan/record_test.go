package plan

import (
	"bytes"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A record is read as it was written, and its data has its keys in order. A strategic
// merge patch by the garbage collector would change the data otherwise.
func TestRecord(t *testing.T) {
	r := Record{Order: 2, Revision: "abc", Sent: "d", Template: &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "web", Image: "web:v1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("500m")}},
	}}}}}
	c, err := r.ControllerRevision("shop")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadRecord(c)
	if err != nil || !EqualTemplate(got.Template, r.Template) || got.Sent != r.Sent || got.Order != r.Order {
		t.Errorf("read as %+v, %v", got, err)
	}
	var content any
	if err := json.Unmarshal(c.Data.Raw, &content); err != nil {
		t.Fatal(err)
	}
	if sorted, err := json.Marshal(content); err != nil || !bytes.Equal(sorted, c.Data.Raw) {
		t.Errorf("%s is not in order: %s, %v", c.Data.Raw, sorted, err)
	}
}
