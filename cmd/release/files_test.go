package main

import (
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"
)

// built is the folder of the program.
var built string

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "tranche-release-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(built)
	os.Exit(code)
}

// program is the program itself, built for this machine with the flags of a release.
func program(t *testing.T) string {
	t.Helper()
	file, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// buildOnce links once for all tests: that takes as long as all the rest.
var buildOnce = sync.OnceValues(func() (string, error) {
	file := filepath.Join(built, "tranche-"+runtime.GOOS+"-"+runtime.GOARCH)
	build := exec.Command("go", "build", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+testVersion, "-o", file, "./cmd/tranche")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
})

func files(t *testing.T, folder, binary string) {
	t.Helper()
	mustRun(t, "files", "--out", folder, "--version", testVersion, "--revision", testRevision, "--time", testTime,
		"--url", "https://example.org/"+testVersion, "--with", "../../LICENSE,../../README.md", binary)
}

func TestFiles(t *testing.T) {
	t.Parallel()
	binary, first, second := program(t), t.TempDir(), t.TempDir()
	t.Run("in two folders", func(t *testing.T) { // side by side: most is compression
		for _, folder := range []string{first, second} {
			t.Run(filepath.Base(folder), func(t *testing.T) {
				t.Parallel()
				files(t, folder, binary)
			})
		}
	})
	if out, err := exec.Command("diff", "-r", first, second).CombinedOutput(); err != nil {
		t.Errorf("two times the same: %s", out)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = first
	if out, err := check.CombinedOutput(); err != nil || strings.Count(string(out), ": OK") != 3 {
		t.Errorf("sha256sum: %v: %s", err, out)
	}
	platform := runtime.GOOS + "-" + runtime.GOARCH
	archive := filepath.Join(first, "tranche-"+testVersion+"-"+platform+".tar.gz")
	checkArchive(t, archive)
	checkSBOM(t, filepath.Join(first, "tranche-"+testVersion+"-"+platform+".cdx.json"), binary)
	checkPlugin(t, filepath.Join(first, "tranche.krew.yaml"), archive)
}

func checkArchive(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range readArchive(t, z) {
		list = append(list, fmt.Sprintf("%s %o", f.Name, f.Mode))
	}
	if got := strings.Join(list, ", "); got != "tranche 755, LICENSE 644, README.md 644" {
		t.Errorf("the archive has %s", got)
	}
}

// checkSBOM compares a bill of materials with what go version -m says of the binary.
func checkSBOM(t *testing.T, file, binary string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		BOMFormat string
		Metadata  struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ PURL string }
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	main := doc.Metadata.Component
	if doc.BOMFormat != "CycloneDX" || main.Name != "github.com/tranche-dev/tranche" || main.Version != testVersion {
		t.Errorf("%s of %+v", doc.BOMFormat, main)
	}
	has := map[string]bool{}
	for _, c := range doc.Components {
		has[c.PURL] = true
	}
	if info, err := buildinfo.ReadFile(binary); err != nil || !has["pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go")] {
		t.Errorf("the standard library is not in it: %v", err)
	}
	checkModules(t, binary, has)
}

func checkModules(t *testing.T, binary string, has map[string]bool) {
	t.Helper()
	out, err := exec.Command("go", "version", "-m", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "dep" {
			modules++
			if !has["pkg:golang/"+f[1]+"@"+f[2]] {
				t.Errorf("module %s %s is not in it", f[1], f[2])
			}
		}
	}
	if modules == 0 || len(has) != modules+1 {
		t.Errorf("%d modules, %d in it", modules, len(has))
	}
}

func checkPlugin(t *testing.T, file, archive string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p plugin
	if err := yaml.UnmarshalStrict(b, &p); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sha256sum", archive).Output()
	if err != nil {
		t.Fatal(err)
	}
	at := p.Spec.Platforms[0]
	address := "https://example.org/" + testVersion + "/" + filepath.Base(archive)
	if p.Spec.Version != testVersion || at.URI != address || !strings.HasPrefix(string(out), at.SHA256+" ") {
		t.Errorf("%s", b)
	}
}

// krew takes semantic versions only.
func TestKrew_Version(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "v1.2.3", "v1.2.3-rc.1": "v1.2.3-rc.1", "0a1b2c3": "v0.0.0-0a1b2c3", "0a1b2c3_dirty": "v0.0.0-0a1b2c3-dirty",
	} {
		file := filepath.Join(t.TempDir(), "plugin.yaml")
		if err := writeKrew(file, build{version: version}, "https://example.org", nil); err != nil {
			t.Fatal(err)
		}
		var p plugin
		b, err := os.ReadFile(file)
		if err == nil {
			err = yaml.UnmarshalStrict(b, &p)
		}
		if err != nil || p.Spec.Version != want {
			t.Errorf("%s becomes %s, want %s: %v", version, p.Spec.Version, want, err)
		}
	}
}

// The package has version and image of the release, in each file that names them, and is the same each time.
func TestChart(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, folder := range []string{first, second} {
		mustRun(t, "chart", "--out", folder, "--version", testVersion, "--time", testTime, "--chart", "../../config/chart/tranche",
			"--image", "registry.example.org/tranche")
	}
	if out, err := exec.Command("diff", "-r", first, second).CombinedOutput(); err != nil {
		t.Errorf("two times the same: %s", out)
	}
	version := strings.TrimPrefix(testVersion, "v")
	run := func(args ...string) string {
		out, err := exec.Command("tar", append([]string{"-xzOf", filepath.Join(first, "tranche-"+version+".tgz")}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tar %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	chart := run("tranche/Chart.yaml")
	for _, want := range []string{
		"\nversion: " + version + "\n", "\nappVersion: \"" + testVersion + "\"\n", "image: registry.example.org/tranche:" + testVersion + "\n",
	} {
		if !strings.Contains(chart, want) {
			t.Errorf("Chart.yaml has no %q:\n%s", want, chart)
		}
	}
	values := run("tranche/values.yaml")
	if !strings.Contains(values, "repository: registry.example.org/tranche\n") || run("tranche/files/values.yaml") != values {
		t.Errorf("values.yaml:\n%s", values)
	}
	if readme := run("tranche/README.md"); !strings.Contains(readme, "| `image.repository` | `\"registry.example.org/tranche\"` |") {
		t.Errorf("README.md:\n%s", readme)
	}
	run("tranche/files/crd/tranche.dev_gitsources.yaml", "tranche/templates/crds.yaml", "tranche/values.schema.json")
}

// Helm takes semantic versions only.
func TestChart_Version(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "0012345": "0.0.0-g0012345", "0a1b2c3_dirty": "0.0.0-g0a1b2c3-dirty",
	} {
		if got := chartVersion(build{version: version}); got != want {
			t.Errorf("%s becomes %s, want %s", version, got, want)
		}
	}
}
