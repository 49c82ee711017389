package authors

import (
	"context"
	"maps"
	"path"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
)

// An entry can begin and end anywhere in a line: in a flow list, or a patch in a string. So
// the entries of commits are looked for in trees where each manifest is in blocks, with a
// line for each entry. A file stays as it is where that would render something else.

// inBlocks returns a search in trees with manifests in blocks, and what commits change there.
// rest is what they change in files that stay as they are.
func inBlocks(ctx context.Context, d *dormancy, list []suspect) (plain *dormancy, in, rest []suspect, err error) {
	if !d.base.IsZero() { // as far as the search has come
		if _, _, err := d.releasedWithout(ctx); err != nil {
			return nil, nil, nil, err
		}
	}
	plain = &dormancy{}
	*plain = *d
	plain.gone = slices.Clip(d.gone)
	paths, err := rewriteAll(ctx, plain, list)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, s := range list {
		blocks, lines := s, s
		blocks.changes, lines.changes = map[string]gitobject.Change{}, map[string]gitobject.Change{}
		for p, c := range s.changes {
			b, ok, err := gitobject.ChangeInBlocks(d.store, c)
			if err != nil {
				return nil, nil, nil, err
			}
			if ok && paths[p] {
				blocks.changes[p] = b
			} else {
				lines.changes[p] = c
			}
		}
		if len(blocks.changes) > 0 {
			in = append(in, blocks)
		}
		if len(lines.changes) > 0 {
			rest = append(rest, lines)
		}
	}
	return plain, in, rest, nil
}

// rewriteAll has the files of commits in blocks in the trees of a search. It returns those of
// which that renders the same.
func rewriteAll(ctx context.Context, d *dormancy, list []suspect) (map[string]bool, error) {
	paths := map[string]bool{}
	for _, s := range list {
		for p := range s.changes {
			for _, at := range append([]string{p}, d.ends[p]...) {
				paths[at] = true
			}
		}
	}
	all := slices.Sorted(maps.Keys(paths))
	slices.SortStableFunc(all, func(a, b string) int { return rank(a) - rank(b) })
	if same, err := rewrite(ctx, d, all...); err != nil || same {
		return paths, err
	}
	defer func(most int) { d.most = most }(d.most)
	d.most, d.trials = maxTrials, 0
	for _, p := range all {
		if same, err := rewrite(ctx, d, p); err != nil || !same {
			delete(paths, p)
		}
	}
	return paths, ctx.Err()
}

// rewrite has files in blocks in the trees of a search, if they render the same then.
func rewrite(ctx context.Context, d *dormancy, paths ...string) (bool, error) {
	next := [3]plumbing.Hash{d.tree, d.released, d.base}
	for i, tree := range next {
		if tree.IsZero() {
			continue
		}
		if err := d.origins.spend(ctx, effortOfUndo*len(paths)); err != nil {
			return false, err
		}
		var ok bool
		var err error
		if next[i], ok, err = gitobject.TreeInBlocks(d.store, tree, paths); err != nil || !ok {
			return false, err
		}
		was, err := d.fieldsOf(ctx, tree)
		if err != nil {
			return false, err
		}
		now, err := d.fieldsOf(ctx, next[i])
		if err != nil || (was == nil) != (now == nil) || len(was.differ(now)) > 0 {
			return false, err
		}
	}
	d.tree, d.released, d.base = next[0], next[1], next[2]
	return true, nil
}

// rank has kustomizations first, since they have rules for other files.
func rank(file string) int {
	if slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, path.Base(file)) {
		return 0
	}
	return 1
}
