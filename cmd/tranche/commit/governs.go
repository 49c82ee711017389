package commit

import (
	"context"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/plan"
)

// kustomizations are those of a commit, by folder, with the files and folders that
// each of them names.
type kustomizations map[string]kustomization

type kustomization struct {
	file string
	refs []string
}

// readKustomizations reads the kustomizations of a worktree.
func readKustomizations(ctx context.Context, ch *clone.Change) (kustomizations, error) {
	list, err := ch.Git(ctx, "ls-files", "-z")
	if err != nil {
		return nil, err
	}
	found := kustomizations{}
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
		one := kustomization{file: file}
		for _, ref := range slices.Concat(k.Resources, k.Bases, k.Components) {
			one.refs = append(one.refs, path.Join(dir, ref))
		}
		found[dir] = one
	}
	return found, nil
}

// reaches reports whether a kustomization takes a file, by itself or by another one.
func (k kustomizations) reaches(dir, file string, seen map[string]bool) bool {
	if seen[dir] {
		return false
	}
	seen[dir] = true
	return slices.ContainsFunc(k[dir].refs, func(ref string) bool { return ref == file || k.reaches(ref, file, seen) })
}

// takers are the kustomizations that take a file and that no other one takes, and those
// of some folders.
func (k kustomizations) takers(file string, also []string) []string {
	below := map[string]bool{}
	for _, one := range k {
		for _, ref := range one.refs {
			below[ref] = true
		}
	}
	var dirs []string
	for dir := range k {
		if (!below[dir] || slices.Contains(also, dir)) && k.reaches(dir, file, map[string]bool{}) {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}

// alsoGoverned returns what else the file of a plan governs. These are GitSources of the
// same branch that this account may read, and kustomizations that no such GitSource has.
func (p *pausing) alsoGoverned(ctx context.Context, k kustomizations, file string) []string {
	own := path.Clean(p.source.Spec.Path)
	sources := map[string][]string{} // by path
	for _, gs := range p.otherSources(ctx) {
		at := path.Clean(gs.Spec.Path)
		sources[at] = append(sources[at], gs.Namespace+"/"+gs.Name)
	}
	var paths, also []string
	for at := range sources {
		paths = append(paths, at)
	}
	takers := k.takers(file, paths)
	for at := range sources { // the own path, and folders of plain YAML, too
		_, built := k[at]
		if inside := at == "." || strings.HasPrefix(file, at+"/"); !slices.Contains(takers, at) && (at == own || inside && !built) {
			takers = append(takers, at)
		}
	}
	for _, dir := range takers {
		for _, name := range sources[dir] {
			also = append(also, "GitSource "+name+" ("+dir+")")
		}
		if dir != own && sources[dir] == nil {
			also = append(also, dir)
		}
	}
	slices.Sort(also)
	return also
}

// tried renders the worktree as it is now.
func (p *pausing) tried(ctx context.Context, ch *clone.Change) (*plan.Set, error) {
	tree, err := ch.Git(ctx, "write-tree")
	if err != nil {
		return nil, err
	}
	commit, err := ch.Git(ctx, "commit-tree", "-m", "tried", tree)
	if err != nil {
		return nil, err
	}
	set, _, err := p.set(commit)
	return set, err
}

// alsoPaused are the other releases of the source whose spec.paused a change sets, too.
func (p *pausing) alsoPaused(before, after *plan.Set) []string {
	was := map[string]bool{}
	for i := range before.Releases {
		was[planName(&before.Releases[i])] = before.Releases[i].Plan.Spec.Paused
	}
	var also []string
	for i := range after.Releases {
		r := &after.Releases[i]
		if name := planName(r); name != p.release.Namespace+"/"+p.release.Name && was[name] != r.Plan.Spec.Paused {
			also = append(also, "BatchRelease "+name)
		}
	}
	return also
}
