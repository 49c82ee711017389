package inventory

import (
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// OfRelease returns the entry of a BatchRelease.
func OfRelease(p *v1alpha1.BatchRelease) Entry {
	return Entry{v1alpha1.GroupVersion.WithKind("BatchRelease"), p.Namespace, p.Name}
}

// IsRelease reports whether an entry is a BatchRelease.
func IsRelease(e Entry) bool { return e.GVK.GroupKind() == ReleaseKind }

// Names returns the entries as in messages.
func Names(list []Entry) []string {
	var names []string
	for _, e := range list {
		names = append(names, e.String())
	}
	return names
}

// OfSet returns the objects and BatchReleases of a commit.
func OfSet(set *plan.Set) Set {
	inv := Set{}
	for _, o := range set.Objects {
		inv.Add(Of(o.Unstructured))
	}
	for i := range set.Releases {
		inv.Add(OfRelease(set.Releases[i].Plan))
	}
	return inv
}

// SetOf returns the set of some entries.
func SetOf(list []Entry) Set {
	inv := Set{}
	for _, e := range list {
		inv.Add(e)
	}
	return inv
}
