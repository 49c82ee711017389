package gitsync

import (
	"context"
	"fmt"

	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/readiness"
)

// readyOf finds out which of the objects of a commit are not ready, where
// spec.wait asks for it.
func (l *look) readyOf(c *changeset.Changes) {
	l.outcome.Unready = nil
	if !l.gs.Spec.Wait {
		return
	}
	for _, t := range c.All() {
		u := t.Applied
		if u == nil {
			u = t.Live
		}
		if u == nil {
			continue
		}
		if not := readiness.Of(u); not != nil {
			l.outcome.Unready = append(l.outcome.Unready, *not)
		}
	}
}

// unreadyStill looks again at what was not ready.
func (l *look) unreadyStill(ctx context.Context) error {
	for _, e := range l.keep.rest.unready {
		u, err := inventory.Get(ctx, l.as, e)
		if err != nil {
			return err
		}
		if u == nil {
			return fmt.Errorf("%s is gone", e)
		}
		if not := readiness.Of(u); not != nil {
			l.outcome.Unready = append(l.outcome.Unready, *not)
		}
	}
	still := *l.keep.rest
	still.unready = entriesOf(l.outcome.Unready)
	l.keep.rest = &still
	return nil
}

func entriesOf(list []readiness.Unready) []inventory.Entry {
	var entries []inventory.Entry
	for _, u := range list {
		entries = append(entries, u.Entry)
	}
	return entries
}
