// Command templatehash prints templates as Kubernetes defaults them and the
// hashes that Kubernetes gives them, for plan.TestTemplateHashGolden. A module file of
// cmd/devcluster says which Kubernetes. In the root of the repository, after `make devcluster
// KUBERNETES=1.35`, so that most of it is compiled:
//
//	go -C cmd/devcluster run -modfile=go-1.35.mod ../../plan/testdata/templatehash/main.go \
//	  ../../plan/testdata/templatehash/{minimal,rich,newer,envfile}.yaml > plan/testdata/templatehash-1.35.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kapps "k8s.io/kubernetes/pkg/apis/apps/v1"
	"k8s.io/kubernetes/pkg/controller"
	"sigs.k8s.io/yaml"
)

type golden struct {
	Name       string                 `json:"name"`
	Collisions *int32                 `json:"collisionCount,omitempty"`
	Hash       string                 `json:"hash"`
	Template   corev1.PodTemplateSpec `json:"template"`
}

func main() {
	var out []golden
	for _, f := range os.Args[1:] {
		b, err := os.ReadFile(f)
		must(err)
		var d appsv1.Deployment
		must(yaml.UnmarshalStrict(b, &d))
		kapps.SetObjectDefaults_Deployment(&d)
		zero, seven := int32(0), int32(7)
		for _, c := range []*int32{nil, &zero, &seven} {
			out = append(out, golden{d.Name, c, controller.ComputeHash(&d.Spec.Template, c), d.Spec.Template})
		}
	}
	for _, every := range []struct{ name, text string }{{"hollow", ""}, {"full", "x"}} {
		t := everyField(every.text)
		out = append(out, golden{every.name, nil, controller.ComputeHash(&t, nil), t})
	}
	for i, g := range out {
		b, err := json.Marshal(g)
		must(err)
		fmt.Printf("%c%s\n", "[,"[min(i, 1)], b)
	}
	fmt.Println("]")
}

// everyField returns a template with a value at each pointer, in each list and in each map, as
// read from JSON. Its hash covers the names of all fields of this version. Strings are
// text, numbers are as long, and nothing is valid.
func everyField(text string) corev1.PodTemplateSpec {
	var in, out corev1.PodTemplateSpec
	fill(reflect.ValueOf(&in).Elem(), text)
	b, err := json.Marshal(in)
	must(err)
	must(json.Unmarshal(b, &out))
	return out
}

func fill(v reflect.Value, text string) {
	switch v.Interface().(type) {
	case metav1.Time, []metav1.ManagedFieldsEntry: // no template of a Deployment has them
		return
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("1")))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type() == reflect.TypeFor[*metav1.Time]() {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), text)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, "key")
		fill(value, text)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			// 1.35 alone has it, behind a gate that is off. Later types cannot read it.
			if v.Type().Field(i).Name != "WorkloadRef" {
				fill(v.Field(i), text)
			}
		}
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(text != "")
	default:
		v.SetInt(int64(len(text)))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
