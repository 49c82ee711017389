package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/manifest"
)

// FromHere is the path of a file of the disk, as a person would give it: from where
// one stands. A file that is not on the disk is named as it was given.
func FromHere(file string) string {
	if _, err := os.Stat("/" + file); err != nil {
		return file
	}
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, "/"+file); err == nil {
			return rel
		}
	}
	return "/" + file
}

// FileOf returns the name of a file that RenderPath has rendered of a path: the path itself
// if it leads to a file.
func FileOf(path, file string) string {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return path
	}
	return FromHere(file)
}

// RenderPath renders a folder, or one file of plain YAML.
func RenderPath(path string) ([]plan.Object, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	if info.IsDir() {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("reading the plan: %w", err)
		}
		return manifest.Render(filesys.MakeFsOnDisk(), abs, manifest.RenderOptions{})
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	alone := filesys.MakeFsInMemory()
	if err := alone.WriteFile("/"+filepath.Base(path), text); err != nil {
		return nil, fmt.Errorf("reading the plan: %w", err)
	}
	return manifest.Render(alone, ".", manifest.RenderOptions{})
}
