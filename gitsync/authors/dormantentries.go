package authors

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tranche-dev/tranche/gitsync/gitobject"
)

// A commit can write a rule with a present effect and one with a later effect in the same
// place of a file. Taken back together, both change the same field of what was released
// last. So the entries of each place are taken back one by one, too:
//
//   - If an entry has no effect on the change, it stays taken back with all below it.
//   - If it has one, and none on what was released last, its commit counts. It also counts
//     if what was released last does not render without the entry.
//   - If it has both, the search goes on with the entries below it.

// entrySearch looks for an entry with a later effect among those that a commit brought in a
// file.
type entrySearch struct {
	dormancy *dormancy
	of       suspect
	file     *gitobject.Brought
	gone     []gitobject.Entry // without an effect
}

// searchEntries returns the first of the commits that has an entry with a later effect. A
// commit also counts that takes more than maxTrials renderings. The search has an effort
// of its own.
func (d *dormancy) searchEntries(ctx context.Context, list []suspect) ([]plumbing.Hash, error) {
	defer func(spent int) { d.origins.spent = spent }(d.origins.spent)
	d.origins.spent = 0
	plain, in, rest, err := inBlocks(ctx, d, list)
	if err != nil {
		return nil, err
	}
	if found, err := plain.search(ctx, in, plain.countsWithin); err != nil || len(found) > 0 {
		return found, err
	}
	if found, err := plain.searchStanding(ctx, in, plain.hasEntry); err != nil || len(found) > 0 {
		return found, err
	}
	lines := *d
	lines.gone = slices.Clip(d.gone)
	return lines.searchStanding(ctx, rest, func(ctx context.Context, s suspect, then fields) (bool, error) {
		for file := range s.changes {
			if rank(file) == 0 && then != nil {
				return true, nil // its rules cannot be taken apart
			}
		}
		return lines.hasEntry(ctx, s, then)
	})
}

// countsWithin reports whether a commit counts, or takes too many renderings.
func (d *dormancy) countsWithin(ctx context.Context, s suspect, then fields) (bool, error) {
	defer func(most int) { d.most = most }(d.most)
	d.most, d.trials = maxTrials, 0
	return isOrMany(d.counts(ctx, s, then))
}

// searchStanding returns the first of the commits that has an entry with a later effect, of
// the entries that still stand. They are taken back together first.
func (d *dormancy) searchStanding(
	ctx context.Context, list []suspect, counts func(context.Context, suspect, fields) (bool, error),
) ([]plumbing.Hash, error) {
	var standing []suspect
	of := map[plumbing.Hash]suspect{}
	for _, s := range list {
		if err := d.origins.spend(ctx, effortOfUndo*len(s.changes)); err != nil {
			return nil, err
		}
		changes, err := d.follow(d.tree, s.changes)
		if err != nil {
			return nil, err
		}
		files, err := gitobject.FindEntries(d.store, d.tree, changes)
		if err != nil {
			return nil, err
		}
		all := suspect{commit: s.commit, changes: map[string]gitobject.Change{}}
		for i := range files {
			changes, err := files[i].Without(d.store, files[i].Entries)
			if err != nil {
				return nil, err
			}
			maps.Copy(all.changes, changes)
		}
		if len(files) > 0 {
			of[s.commit.Hash], standing = s, append(standing, all)
		}
	}
	return d.search(ctx, standing, func(ctx context.Context, s suspect, then fields) (bool, error) {
		return counts(ctx, of[s.commit.Hash], then)
	})
}

// hasEntry reports whether a commit has an entry with a later effect. The entries that have
// none are taken back.
func (d *dormancy) hasEntry(ctx context.Context, s suspect, _ fields) (bool, error) {
	defer func(most int) { d.most = most }(d.most)
	d.most, d.trials = maxTrials, 0
	changes, err := d.follow(d.tree, s.changes)
	if err != nil {
		return false, err
	}
	files, err := gitobject.FindEntries(d.store, d.tree, changes)
	if err != nil {
		return false, err
	}
	for i := range files {
		e := &entrySearch{dormancy: d, of: s, file: &files[i]}
		if is, err := isOrMany(e.search(ctx, e.file.Entries)); err != nil || is {
			return is, err
		}
		if err := e.keepAway(ctx); err != nil {
			return false, err
		}
	}
	return false, nil
}

// isOrMany has a commit count that takes too many renderings.
func isOrMany(is bool, err error) (bool, error) {
	if errors.Is(err, errEnoughTrials) {
		return true, nil
	}
	return is, err
}

// keepAway lets the entries without an effect stay taken back.
func (e *entrySearch) keepAway(ctx context.Context) error {
	s, err := e.without(e.gone...)
	if err != nil || len(e.gone) == 0 {
		return err
	}
	d := e.dormancy
	if d.tree, err = d.undo(ctx, d.tree, s); err != nil {
		return err
	}
	d.gone = append(d.gone, s)
	return nil
}

// without returns the commit as if it had brought only some entries.
func (e *entrySearch) without(entries ...gitobject.Entry) (suspect, error) {
	changes, err := e.file.Without(e.dormancy.store, entries)
	return suspect{commit: e.of.commit, changes: changes}, err
}

// search reports whether one of the entries, or one below, has a later effect. Entries
// without an effect are many, so they are taken back together first.
func (e *entrySearch) search(ctx context.Context, entries []gitobject.Entry) (bool, error) {
	if len(entries) == 0 {
		return false, nil
	}
	all := append(append([]gitobject.Entry(nil), e.gone...), entries...)
	s, err := e.without(all...)
	if err != nil {
		return false, err
	}
	without, err := e.dormancy.undo(ctx, e.dormancy.tree, s)
	if err != nil {
		return false, err
	}
	then, err := e.dormancy.fieldsOf(ctx, without)
	if err != nil {
		return false, err
	}
	none, err := e.dormancy.hasNone(ctx, then, s)
	if err != nil {
		return false, err
	}
	if none {
		e.gone = all
		return false, nil
	}
	if half := len(entries) / 2; half > 0 {
		if counts, err := e.search(ctx, entries[:half]); err != nil || counts {
			return counts, err
		}
		return e.search(ctx, entries[half:])
	}
	if then != nil {
		before, err := e.entryBefore(ctx, entries[0])
		if err != nil || e.dormancy.adds(then, before) {
			return err == nil, err
		}
		if keeps, err := e.dormancy.keeps(ctx, then, s); err != nil || keeps {
			return keeps, err
		}
	}
	return e.search(ctx, entries[0].Below)
}

// entryBefore returns the fields of what was released last that an entry has an effect on.
// If that is not known, they are those of the commit that brought the entry.
func (e *entrySearch) entryBefore(ctx context.Context, entry gitobject.Entry) (map[string]bool, error) {
	from, was := e.dormancy.base, e.dormancy.was
	if from.IsZero() {
		from = e.of.commit.TreeHash
		var err error
		if was, err = e.dormancy.fieldsOf(ctx, from); err != nil {
			return nil, err
		}
	}
	s, err := e.without(entry)
	if err != nil {
		return nil, err
	}
	to, err := e.dormancy.undo(ctx, from, s)
	if err != nil || to == from {
		return nil, err
	}
	without, err := e.dormancy.fieldsOf(ctx, to)
	if err != nil || without == nil {
		return nil, err
	}
	return was.differ(without), nil
}
