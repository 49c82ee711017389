// Package kustomizations finds out which kustomizations of a commit take a file.
package kustomizations

import (
	"context"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
)

// Set has the kustomizations of a commit, by folder, with the files and folders that
// each of them names.
type Set map[string]Kustomization

// Kustomization is one of them.
type Kustomization struct {
	// File is its path from the root.
	File string

	refs []string
}

// Read reads the kustomizations of a worktree.
func Read(ctx context.Context, ch *clone.Change) (Set, error) {
	list, err := ch.Git(ctx, "ls-files", "-z")
	if err != nil {
		return nil, err
	}
	found := Set{}
	for file := range strings.SplitSeq(list, "\x00") {
		if !slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(file)) {
			continue
		}
		text, err := ch.Read(ctx, file)
		if err != nil {
			continue // such as a link: the controller names the problem where it matters
		}
		var k struct{ Resources, Bases, Components []string }
		if yaml.Unmarshal([]byte(text), &k) != nil {
			continue
		}
		dir := path.Dir(file)
		one := Kustomization{File: file}
		for _, ref := range slices.Concat(k.Resources, k.Bases, k.Components) {
			one.refs = append(one.refs, path.Join(dir, ref))
		}
		found[dir] = one
	}
	return found, nil
}

// Reaches reports whether a kustomization takes a file, by itself or by another one.
func (k Set) Reaches(dir, file string, seen map[string]bool) bool {
	if seen[dir] {
		return false
	}
	seen[dir] = true
	return slices.ContainsFunc(k[dir].refs, func(ref string) bool { return ref == file || k.Reaches(ref, file, seen) })
}

// Takers returns the kustomizations that take a file and that no other one takes, and those
// of some folders.
func (k Set) Takers(file string, also []string) []string {
	below := map[string]bool{}
	for _, one := range k {
		for _, ref := range one.refs {
			below[ref] = true
		}
	}
	var dirs []string
	for dir := range k {
		if (!below[dir] || slices.Contains(also, dir)) && k.Reaches(dir, file, map[string]bool{}) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}
