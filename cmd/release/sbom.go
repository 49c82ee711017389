package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes what a binary was built from, as its build information has it, in the format
// CycloneDX.
func writeSBOM(file string, b build, bin binary) error {
	info, err := buildinfo.ReadFile(bin.file)
	if err != nil {
		return fmt.Errorf("reading the build information of %s: %w", bin.file, err)
	}
	doc := sbomOf(b, info)
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(doc); err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return out.Close()
}

func sbomOf(b build, info *debug.BuildInfo) *cdx.BOM {
	doc := cdx.NewBOM()
	main := component(cdx.ComponentTypeApplication, info.Main.Path, b.version)
	doc.Metadata = &cdx.Metadata{Timestamp: b.time.UTC().Format(time.RFC3339), Component: &main}
	components := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := component(cdx.ComponentTypeLibrary, m.Path, m.Version)
		if m.Sum != "" {
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		}
		components = append(components, c)
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	doc.Components = &components
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	doc.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return doc
}

// component names a Go module by its package URL.
func component(kind cdx.ComponentType, path, version string) cdx.Component {
	purl := "pkg:golang/" + path + "@" + version
	return cdx.Component{Type: kind, BOMRef: purl, Name: path, Version: version, PackageURL: purl}
}
