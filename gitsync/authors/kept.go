package authors

import (
	"context"
	"maps"

	"github.com/go-git/go-git/v5/plumbing"
)

// A commit can keep a field as it was released last, against the change of another person.
// An example is a rule that removes a field which nothing had before. Such a field does not
// differ between the change and what was released. So commits are taken back in both, and
// what is left is compared:
//
//   - Commits together keep no field if both have the same value of it without them. They may
//     have made what was released and is still there.
//   - One commit counts if it has an effect on such a field of the change. It must have none
//     on that field of what was released last.

// hasNone reports whether commits, taken back together, have no effect on the change, given
// what it renders without them.
func (d *dormancy) hasNone(ctx context.Context, then fields, list ...suspect) (bool, error) {
	if then == nil || len(d.effect(then)) > 0 {
		return false, nil
	}
	now, err := d.fieldsOf(ctx, d.tree)
	if err != nil || d.changed == nil {
		return err == nil, err
	}
	names := unchanged(d, now.differ(then))
	if len(names) == 0 {
		return true, nil
	}
	_, before, err := d.releasedWithout(ctx, list...)
	if err != nil || before == nil {
		return false, err
	}
	for name := range then.differ(before) {
		if names[name] {
			return false, nil
		}
	}
	return true, nil
}

// keeps reports whether one commit keeps a field, given what the change renders without it.
func (d *dormancy) keeps(ctx context.Context, then fields, s suspect) (bool, error) {
	if then == nil || d.changed == nil {
		return false, nil
	}
	now, err := d.fieldsOf(ctx, d.tree)
	if err != nil {
		return false, err
	}
	names := unchanged(d, now.differ(then))
	if len(names) == 0 {
		return false, nil
	}
	was, before, err := d.releasedWithout(ctx, s)
	if err != nil || was == nil || before == nil {
		return false, err
	}
	had := was.differ(before)
	maps.DeleteFunc(names, func(name string, _ bool) bool { return had[name] })
	return len(names) > 0, nil
}

// unchanged leaves the fields that the change has like what was released last.
func unchanged(d *dormancy, names map[string]bool) map[string]bool {
	maps.DeleteFunc(names, func(name string, _ bool) bool { return d.changed[name] })
	return names
}

// releasedWithout returns what was released last without the commits that are taken back in
// the change, and without others, too.
func (d *dormancy) releasedWithout(ctx context.Context, list ...suspect) (was, before fields, err error) {
	if d.released, err = d.undo(ctx, d.released, d.gone[d.folded:]...); err != nil {
		return nil, nil, err
	}
	d.folded = len(d.gone)
	if was, err = d.fieldsOf(ctx, d.released); err != nil {
		return nil, nil, err
	}
	var tree plumbing.Hash
	if tree, err = d.undo(ctx, d.released, list...); err != nil {
		return nil, nil, err
	}
	before, err = d.fieldsOf(ctx, tree)
	return was, before, err
}
