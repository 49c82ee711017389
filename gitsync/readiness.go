package gitsync

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// unready is an object that is applied and not ready by the rules of kstatus.
type unready struct {
	inventory.Entry
	failed  bool
	message string
}

func (u unready) said() string {
	return u.String() + ": " + strings.TrimSuffix(plan.OneLine(u.message), ".")
}

// readiness says what of an object is not ready; nil: all is. What kstatus
// cannot tell of counts as ready.
func readiness(u *unstructured.Unstructured) *unready {
	result, err := status.Compute(u)
	switch {
	case err == nil && result.Status == status.CurrentStatus && isNew(u):
		return &unready{Entry: inventory.Of(u), message: "nobody has looked at it yet"}
	case err != nil || result.Status == status.CurrentStatus:
		return nil //nolint:nilerr // a status that cannot be read says nothing
	}
	return &unready{inventory.Of(u), result.Status == status.FailedStatus, result.Message}
}

// isNew reports whether an object is of a kind of ours and nobody has written its
// status yet. To kstatus, who has no status is ready.
func isNew(u *unstructured.Unstructured) bool {
	_, looked, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	return u.GroupVersionKind().Group == v1alpha1.Group && !looked
}

// readyOf finds out which of the objects of a commit are not ready, where
// spec.wait asks for it.
func (l *look) readyOf(c *commit) {
	l.outcome.unready = nil
	if !l.gs.Spec.Wait {
		return
	}
	for _, t := range slices.Concat(c.targets, c.releases) {
		u := t.applied
		if u == nil {
			u = t.live
		}
		if u == nil {
			continue
		}
		if not := readiness(u); not != nil {
			l.outcome.unready = append(l.outcome.unready, *not)
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
		if not := readiness(u); not != nil {
			l.outcome.unready = append(l.outcome.unready, *not)
		}
	}
	still := *l.keep.rest
	still.unready = entriesOf(l.outcome.unready)
	l.keep.rest = &still
	return nil
}

func entriesOf(list []unready) []inventory.Entry {
	var entries []inventory.Entry
	for _, u := range list {
		entries = append(entries, u.Entry)
	}
	return entries
}
