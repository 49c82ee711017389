package gitsync

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/changeset"
	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/readiness"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// unready returns the objects of a commit that are not ready, where spec.wait asks for it.
func unready(gs *v1alpha1.GitSource, c *changeset.Changes) []readiness.Unready {
	if !gs.Spec.Wait {
		return nil
	}
	var list []readiness.Unready
	for _, t := range c.All() {
		u := t.Applied
		if u == nil {
			u = t.Live
		}
		if u == nil {
			continue
		}
		if not := readiness.Of(u); not != nil {
			list = append(list, *not)
		}
	}
	return list
}

// stillUnready reads again the objects that were not ready.
func stillUnready(ctx context.Context, as client.Client, entries []inventory.Entry) ([]readiness.Unready, error) {
	var list []readiness.Unready
	for _, e := range entries {
		u, err := inventory.Get(ctx, as, e)
		if err != nil {
			return nil, err
		}
		if u == nil {
			return nil, fmt.Errorf("%s is gone", e)
		}
		if not := readiness.Of(u); not != nil {
			list = append(list, *not)
		}
	}
	return list, nil
}

func entriesOf(list []readiness.Unready) []inventory.Entry {
	var entries []inventory.Entry
	for _, u := range list {
		entries = append(entries, u.Entry)
	}
	return entries
}
