package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user and the group that the program runs as. It is no user of a node.
const user = "65532:65532"

// build is a version of the program, and when its commit was made.
type build struct {
	version, revision string
	time              time.Time
}

// binary is the program for a platform, as go build has written it.
type binary struct {
	os, arch, file string
}

// parseBinary reads a name as the Makefile gives it: tranche-linux-amd64.
func parseBinary(file string) (binary, error) {
	parts := strings.Split(filepath.Base(file), "-")
	if len(parts) != 3 || parts[0] != "tranche" {
		return binary{}, fmt.Errorf("file %s is not named tranche-OS-ARCHITECTURE, as make release names it", file)
	}
	return binary{parts[1], parts[2], file}, nil
}

// newIndex returns an image for each binary, in one index.
func newIndex(b build, binaries []binary) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, bin := range binaries {
		if bin.os != "linux" {
			return nil, fmt.Errorf("file %s: containers run linux, not %s", bin.file, bin.os)
		}
		img, err := newImage(b, bin)
		if err != nil {
			return nil, fmt.Errorf("image of %s: %w", bin.file, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: bin.os, Architecture: bin.arch}},
		})
	}
	return mutate.Annotations(index, labels(b)).(v1.ImageIndex), nil
}

// newImage has the program, and the certificates of the public authorities, on nothing else.
func newImage(b build, bin binary) (v1.Image, error) {
	program, err := os.ReadFile(bin.file)
	if err != nil {
		return nil, err
	}
	files, err := layerOf(b.time, entry{"etc/ssl/certs/ca-certificates.crt", certificates(), 0o444}, entry{"tranche", program, 0o555})
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: b.time}, CreatedBy: "make image", Comment: "tranche " + b.version},
	})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, configOf(b, bin, img))
}

func configOf(b build, bin binary, img v1.Image) *v1.ConfigFile {
	c, err := img.ConfigFile()
	if err != nil { // it was made here
		panic(err)
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = bin.os, bin.arch, v1.Time{Time: b.time}
	c.Config = v1.Config{User: user, Entrypoint: []string{"/tranche"}, WorkingDir: "/", Labels: labels(b)}
	return c
}

// labels are those of the OCI image specification, annotations.md.
func labels(b build) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "tranche",
		"org.opencontainers.image.description": "Releases native Deployments in batches, with Git as the only interface",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     b.version,
		"org.opencontainers.image.revision":    b.revision,
		"org.opencontainers.image.created":     b.time.UTC().Format(time.RFC3339),
	}
}

// entry is a file of an archive.
type entry struct {
	name    string
	content []byte
	mode    int64
}

// layerOf is a tar archive of files and of the folders above them, which root owns.
func layerOf(at time.Time, files ...entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{}
	for _, f := range files {
		for i, r := range f.name {
			if dir := f.name[:i]; r == '/' && !made[dir] {
				made[dir] = true
				h := &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at, Format: tar.FormatPAX}
				if err := w.WriteHeader(h); err != nil {
					return nil, err
				}
			}
		}
		if err := addFile(w, at, f); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func addFile(w *tar.Writer, at time.Time, f entry) error {
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at, Format: tar.FormatPAX,
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(f.content)
	return err
}

// certificates are Mozilla's roots as golang.org/x/crypto has them. A root that is trusted
// under a condition is left out: a file of certificates cannot state the condition.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return out.Bytes()
}

// writeImage writes the index as an OCI layout into a folder, which is replaced, and the folder as a
// tar archive beside it. It returns the digest of the index.
func writeImage(folder string, at time.Time, index v1.ImageIndex) (v1.Hash, error) {
	if err := os.RemoveAll(folder); err != nil {
		return v1.Hash{}, err
	}
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("writing the layout %s: %w", folder, err)
	}
	if err := path.AppendIndex(index); err != nil {
		return v1.Hash{}, fmt.Errorf("writing the layout %s: %w", folder, err)
	}
	var files []entry
	err = filepath.WalkDir(folder, func(file string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(file)
		name, _ := filepath.Rel(folder, file)
		files = append(files, entry{filepath.ToSlash(name), content, 0o644})
		return err
	})
	if err != nil {
		return v1.Hash{}, err
	}
	archive, err := layerOf(at, files...)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := os.WriteFile(folder+".tar", archive, 0o644); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// readImage returns the index of a layout that writeImage has written.
func readImage(folder string) (v1.ImageIndex, error) {
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the layout %s: %w; make image writes one", folder, err)
	}
	m, err := outer.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("reading the layout %s: %w", folder, err)
	}
	if len(m.Manifests) != 1 {
		return nil, fmt.Errorf("the layout %s has %d images, not one; make image writes one", folder, len(m.Manifests))
	}
	return outer.ImageIndex(m.Manifests[0].Digest)
}
