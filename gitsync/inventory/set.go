package inventory

import (
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

func OfRelease(p *v1alpha1.BatchRelease) Entry {
	return Entry{v1alpha1.GroupVersion.WithKind("BatchRelease"), p.Namespace, p.Name}
}

func IsRelease(e Entry) bool { return e.GVK.GroupKind() == ReleaseKind }

func Names(list []Entry) []string {
	var names []string
	for _, e := range list {
		names = append(names, e.String())
	}
	return names
}

// OfSet are the objects and plans of a commit.
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

func SetOf(list []Entry) Set {
	inv := Set{}
	for _, e := range list {
		inv.Add(e)
	}
	return inv
}
