package commit

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/cmd/tranche/clone"
	"github.com/tranche-dev/tranche/cmd/tranche/commit/kustomizations"
	"github.com/tranche-dev/tranche/plan"
)

// alsoGoverned returns what else the file of a plan governs. These are GitSources of the
// same branch that this account may read, and kustomizations that no such GitSource has.
func (p *pausing) alsoGoverned(ctx context.Context, k kustomizations.Set, file string) []string {
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
	takers := k.Takers(file, paths)
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
	commit, err := ch.Trial(ctx)
	if err != nil {
		return nil, err
	}
	set, _, err := p.rendering().Made(p.cmd.Context(), commit)
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
