// Command templatehash prints templates as Kubernetes defaults them and the
// hashes that Kubernetes gives them, for plan.TestTemplateHashGolden. It is
// compiled with the module of cmd/devcluster, which has k8s.io/kubernetes:
//
//	d=$(mktemp -d); cp ../../../cmd/devcluster/go.mod ../../../cmd/devcluster/go.sum main.go *.yaml $d
//	cd $d && GOFLAGS=-mod=mod go run . minimal.yaml rich.yaml
package main

import (
	"encoding/json"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	kapps "k8s.io/kubernetes/pkg/apis/apps/v1"
	"k8s.io/kubernetes/pkg/controller"
	"sigs.k8s.io/yaml"
)

type golden struct {
	Name       string `json:"name"`
	Collisions *int32 `json:"collisionCount,omitempty"`
	Hash       string `json:"hash"`
	Template   any    `json:"template"`
}

func main() {
	var out []golden
	for _, f := range os.Args[1:] {
		b, err := os.ReadFile(f)
		if err != nil {
			panic(err)
		}
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict(b, &d); err != nil {
			panic(err)
		}
		kapps.SetObjectDefaults_Deployment(&d)
		zero, seven := int32(0), int32(7)
		for _, c := range []*int32{nil, &zero, &seven} {
			out = append(out, golden{d.Name, c, controller.ComputeHash(&d.Spec.Template, c), d.Spec.Template})
		}
	}
	b, _ := json.MarshalIndent(out, "", "\t")
	fmt.Println(string(b))
}
