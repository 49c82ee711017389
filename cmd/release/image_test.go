package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
)

const (
	testVersion  = "v1.2.3"
	testRevision = "0123456789012345678901234567890123456789"
	testTime     = "2026-11-24T12:00:00+01:00"
)

// run runs the command, and returns what it prints.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	err := root.Execute()
	return strings.TrimSpace(out.String()), err
}

func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fakes are files named as binaries are, for the tests that do not run them.
func fakes(t *testing.T, platforms ...string) (files []string) {
	t.Helper()
	dir := t.TempDir()
	for _, p := range platforms {
		file := filepath.Join(dir, "tranche-"+p)
		if err := os.WriteFile(file, []byte("program of "+p), 0o755); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

func image(t *testing.T, folder string, files ...string) string {
	t.Helper()
	return mustRun(t, append([]string{
		"image", "--out", folder, "--version", testVersion, "--revision", testRevision, "--time", testTime,
	}, files...)...)
}

func TestImage(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "image")
	digest := image(t, folder, fakes(t, "linux-amd64", "linux-arm64")...)
	index, err := readImage(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	if got, _ := index.Digest(); got.String() != digest {
		t.Errorf("it printed %s, the layout has %s", digest, got)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range m.Manifests {
		platforms = append(platforms, d.Platform.String())
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkConfig(t, img)
		checkFiles(t, img, "program of "+d.Platform.OS+"-"+d.Platform.Architecture)
	}
	if got := strings.Join(platforms, " "); got != "linux/amd64 linux/arm64" {
		t.Errorf("platforms %s", got)
	}
}

func checkConfig(t *testing.T, img v1.Image) {
	t.Helper()
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Config.User != "65532:65532" || strings.Join(c.Config.Entrypoint, " ") != "/tranche" {
		t.Errorf("user %s, entrypoint %s", c.Config.User, c.Config.Entrypoint)
	}
	for label, want := range map[string]string{"version": testVersion, "revision": testRevision, "created": "2026-11-24T11:00:00Z"} {
		if got := c.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q, want %q", label, got, want)
		}
	}
	if want := time.Date(2026, 11, 24, 11, 0, 0, 0, time.UTC); !c.Created.Equal(want) {
		t.Errorf("created %s", c.Created)
	}
}

// archived is an entry of an archive.
type archived struct {
	*tar.Header
	content []byte
}

func readArchive(t *testing.T, content io.Reader) (list []archived) {
	t.Helper()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, archived{h, b})
	}
}

func checkFiles(t *testing.T, img v1.Image, program string) {
	t.Helper()
	content := mutate.Extract(img)
	defer content.Close()
	found := map[string]string{}
	for _, f := range readArchive(t, content) {
		if f.Uid != 0 || f.Gid != 0 || f.Mode&0o022 != 0 {
			t.Errorf("%s is owned by %d:%d, mode %o", f.Name, f.Uid, f.Gid, f.Mode)
		}
		if f.Typeflag == tar.TypeReg {
			found[f.Name] = string(f.content)
		}
	}
	if len(found) != 2 || found["tranche"] != program {
		t.Errorf("%d files, program %q", len(found), found["tranche"])
	}
	if n := countRoots(t, []byte(found["etc/ssl/certs/ca-certificates.crt"])); n < 50 {
		t.Errorf("%d certificates", n)
	}
}

func countRoots(t *testing.T, rest []byte) (n int) {
	t.Helper()
	for ; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return n
		}
		if c, err := x509.ParseCertificate(block.Bytes); err != nil || !c.IsCA {
			t.Errorf("certificate %d: %v", n, err)
		}
	}
}

// The same commit gives the same image, wherever and whenever it is built.
func TestImage_Reproducible(t *testing.T) {
	files := fakes(t, "linux-amd64", "linux-arm64")
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	if first, second := image(t, a, files...), image(t, b, files...); first != second {
		t.Errorf("digests %s and %s", first, second)
	}
	first, err := os.ReadFile(a + ".tar")
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(b + ".tar")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the archives differ")
	}
}

// A registry has after a push what was built.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	folder := filepath.Join(t.TempDir(), "image")
	digest := image(t, folder, fakes(t, "linux-amd64", "linux-arm64")...)
	host := strings.TrimPrefix(server.URL, "http://")
	if got, want := mustRun(t, "push", folder, host+"/tranche:"+testVersion), host+"/tranche@"+digest; got != want {
		t.Errorf("it printed %s, want %s", got, want)
	}
	ref, err := name.ParseReference(host + "/tranche:" + testVersion)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	if got, _ := index.Digest(); got.String() != digest {
		t.Errorf("the registry has %s, built was %s", got, digest)
	}
}

func TestImage_BadInput(t *testing.T) {
	imageOf := func(args ...string) []string {
		return append([]string{"image", "--out", filepath.Join(t.TempDir(), "x")}, args...)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no binary":         {imageOf(), "requires at least 1 arg"},
		"no linux":          {imageOf(fakes(t, "darwin-arm64")...), "containers run linux, not darwin"},
		"another name":      {imageOf("a.out"), "not named tranche-OS-ARCHITECTURE"},
		"a file is missing": {imageOf("tranche-linux-amd64"), "no such file"},
		"a time in words":   {imageOf("--time", "today", fakes(t, "linux-amd64")[0]), "flag --time"},
		"push of nothing":   {[]string{"push", t.TempDir(), "registry.example.org/tranche:v1"}, "make image writes one"},
		"push to no image":  {[]string{"push", t.TempDir(), "Registry/Tranche:v1"}, "image Registry/Tranche:v1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
