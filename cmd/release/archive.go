package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// writeArchive writes a tar.gz archive that has the same bytes each time.
func writeArchive(file string, at time.Time, files []entry) error {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, f := range files {
		if err := addFile(w, at, f); err != nil {
			return fmt.Errorf("archive %s: file %s: %w", file, f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// archiveOf returns what an archive of a binary has: the program, and the files that belong to it.
func archiveOf(bin binary, beside []string) ([]entry, error) {
	program, err := os.ReadFile(bin.file)
	if err != nil {
		return nil, err
	}
	files := []entry{{"tranche", program, 0o755}}
	for _, file := range beside {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(file)
		if dir := filepath.Base(filepath.Dir(file)); dir == "completions" {
			name = dir + "/" + name
		}
		files = append(files, entry{name, content, 0o644})
	}
	return files, nil
}

// writeSums writes the file SHA256SUMS of a folder, for sha256sum --check.
func writeSums(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	const name = "SHA256SUMS"
	var lines []string
	for _, e := range entries {
		if e.Type().IsRegular() && e.Name() != name {
			sum, err := sumOf(filepath.Join(folder, e.Name()))
			if err != nil {
				return err
			}
			lines = append(lines, sum+"  "+e.Name()+"\n")
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(folder, name), []byte(strings.Join(lines, "")), 0o644)
}

func sumOf(file string) (string, error) {
	content, err := os.ReadFile(file)
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}
