package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"sigs.k8s.io/yaml"
)

// plugin is the manifest of a kubectl plugin, as krew reads it.
type plugin struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	Spec       pluginSpec     `json:"spec"`
}

type pluginSpec struct {
	Version          string           `json:"version"`
	ShortDescription string           `json:"shortDescription"`
	Description      string           `json:"description"`
	Platforms        []pluginPlatform `json:"platforms"`
}

type pluginPlatform struct {
	Selector map[string]any `json:"selector"`
	URI      string         `json:"uri"`
	SHA256   string         `json:"sha256"`
	Bin      string         `json:"bin"`
	Files    []pluginFile   `json:"files"`
}

type pluginFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// krewVersion is what krew takes for a version: semantic, with a v.
var krewVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// writeKrew writes the manifest for archives that are downloaded from an address. A version that is
// none of a release gets v0.0.0 before it: krew takes no other.
func writeKrew(file string, b build, address string, binaries []binary) error {
	version := b.version
	if !krewVersion.MatchString(version) {
		version = "v0.0.0-" + regexp.MustCompile(`[^0-9A-Za-z.-]`).ReplaceAllString(version, "-")
	}
	p := plugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]any{"name": "tranche"},
		Spec: pluginSpec{
			Version: version, ShortDescription: "Release Deployments in batches through Git",
			Description: "Shows releases, approves their steps by commits, rolls back,\nand checks what a commit would do.\n",
		},
	}
	for _, bin := range binaries {
		archive := archiveName(b, bin)
		sum, err := sumOf(filepath.Join(filepath.Dir(file), archive))
		if err != nil {
			return err
		}
		p.Spec.Platforms = append(p.Spec.Platforms, pluginPlatform{
			Selector: map[string]any{"matchLabels": map[string]string{"os": bin.os, "arch": bin.arch}},
			URI:      address + "/" + archive, SHA256: sum, Bin: "tranche",
			Files: []pluginFile{{From: "tranche", To: "."}, {From: "LICENSE", To: "."}},
		})
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

func archiveName(b build, bin binary) string {
	return fmt.Sprintf("tranche-%s-%s-%s.tar.gz", b.version, bin.os, bin.arch)
}
