package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Objects returns the objects of a folder that have one of the kinds, in the
// order of their files.
func Objects(folder string, kinds ...string) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(Files, folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "kustomization.yaml" {
			return err
		}
		text, err := Files.ReadFile(path)
		if err != nil {
			return err
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			var raw runtime.RawExtension
			if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			o := &unstructured.Unstructured{}
			if err := o.UnmarshalJSON(raw.Raw); err != nil { // with whole numbers, as the API server's answers have them
				return fmt.Errorf("%s: %w", path, err)
			}
			if slices.Contains(kinds, o.GetKind()) {
				objects = append(objects, o)
			}
		}
	})
	if err != nil {
		panic("reading the embedded manifests: " + err.Error()) // a test reads all of them
	}
	return objects
}
