package authors

import (
	"context"
	"errors"

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
	defer func(tree plumbing.Hash, most, spent int) { d.tree, d.most, d.origins.spent = tree, most, spent }(d.tree, d.most, d.origins.spent)
	d.origins.spent = 0
	for _, s := range list {
		if err := d.origins.spend(ctx, effortOfUndo*len(s.changes)); err != nil {
			return nil, err
		}
		files, err := gitobject.FindEntries(d.store, d.tree, s.changes)
		if err != nil {
			return nil, err
		}
		d.most, d.trials = maxTrials, 0
		for i := range files {
			e := &entrySearch{dormancy: d, of: s, file: &files[i]}
			counts, err := e.search(ctx, e.file.Entries)
			if counts || errors.Is(err, errEnoughTrials) {
				return []plumbing.Hash{s.commit.Hash}, nil
			}
			if err == nil && len(e.gone) > 0 {
				d.tree, err = e.takeBack(ctx, d.tree, e.gone...)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return nil, nil
}

// takeBack returns a tree without entries.
func (e *entrySearch) takeBack(ctx context.Context, tree plumbing.Hash, entries ...gitobject.Entry) (plumbing.Hash, error) {
	changes, err := e.file.Without(e.dormancy.store, entries)
	if err != nil {
		return tree, err
	}
	return e.dormancy.undo(ctx, tree, suspect{commit: e.of.commit, changes: changes})
}

// search reports whether one of the entries, or one below, has a later effect. Entries
// without an effect are many, so they are taken back together first.
func (e *entrySearch) search(ctx context.Context, entries []gitobject.Entry) (bool, error) {
	if len(entries) == 0 {
		return false, nil
	}
	all := append(append([]gitobject.Entry(nil), e.gone...), entries...)
	without, err := e.takeBack(ctx, e.dormancy.tree, all...)
	if err != nil {
		return false, err
	}
	then, err := e.dormancy.fieldsOf(ctx, without)
	if err != nil {
		return false, err
	}
	if then != nil && len(e.dormancy.effect(then)) == 0 {
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
	to, err := e.takeBack(ctx, from, entry)
	if err != nil || to == from {
		return nil, err
	}
	without, err := e.dormancy.fieldsOf(ctx, to)
	if err != nil || without == nil {
		return nil, err
	}
	return was.differ(without), nil
}
