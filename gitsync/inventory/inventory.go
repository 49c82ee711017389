package inventory

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Entry is one object of an inventory.
type Entry struct {
	GVK             schema.GroupVersionKind
	Namespace, Name string
}

// Of returns the entry of an object.
func Of(u *unstructured.Unstructured) Entry {
	return Entry{u.GroupVersionKind(), u.GetNamespace(), u.GetName()}
}

// String returns kind, namespace and name, as in messages.
func (e Entry) String() string {
	if e.Namespace == "" {
		return e.GVK.Kind + " " + e.Name
	}
	return e.GVK.Kind + " " + e.Namespace + "/" + e.Name
}

// ID returns the entry in the format of Flux and cli-utils: a colon, which names of
// RBAC objects may have, is written as two underscores.
func (e Entry) ID() string {
	return strings.Join([]string{e.Namespace, strings.ReplaceAll(e.Name, ":", "__"), e.GVK.Group, e.GVK.Kind}, "_")
}

// Parse returns the entry of a status, and false if the id is not valid.
func Parse(i v1alpha1.InventoryEntry) (Entry, bool) {
	namespace, rest, ok := strings.Cut(i.ID, "_")
	kindAt := strings.LastIndex(rest, "_")
	if !ok || kindAt < 0 {
		return Entry{}, false
	}
	kind, rest := rest[kindAt+1:], rest[:kindAt]
	groupAt := strings.LastIndex(rest, "_")
	if groupAt <= 0 || kind == "" {
		return Entry{}, false
	}
	return Entry{
		GVK:       schema.GroupVersionKind{Group: rest[groupAt+1:], Version: i.Version, Kind: kind},
		Namespace: namespace, Name: strings.ReplaceAll(rest[:groupAt], "__", ":"),
	}, true
}

// Set is a set of objects by id.
type Set map[string]Entry

// Read returns the set of a status. It leaves out ids that are not valid.
func Read(i *v1alpha1.Inventory) Set {
	inv := Set{}
	if i == nil {
		return inv
	}
	for _, e := range i.Entries {
		if parsed, ok := Parse(e); ok {
			inv[e.ID] = parsed
		}
	}
	return inv
}

// Add adds an entry.
func (inv Set) Add(e Entry) { inv[e.ID()] = e }

// Union returns the entries of both sets. If both have an entry, it takes that of inv, and so inv's
// version of the API.
func (inv Set) Union(other Set) Set {
	all := Set{}
	for id, e := range other {
		all[id] = e
	}
	for id, e := range inv {
		all[id] = e
	}
	return all
}

// Without returns the entries that other does not have, in the order in which they are
// deleted.
func (inv Set) Without(other Set) []Entry {
	var gone []Entry
	for id, e := range inv {
		if _, ok := other[id]; !ok {
			gone = append(gone, e)
		}
	}
	sortForPruning(gone)
	return gone
}

// Status returns the set as a status has it: sorted, and nil if it is empty.
func (inv Set) Status() *v1alpha1.Inventory {
	if len(inv) == 0 {
		return nil
	}
	i := &v1alpha1.Inventory{}
	for id, e := range inv {
		i.Entries = append(i.Entries, v1alpha1.InventoryEntry{ID: id, Version: e.GVK.Version})
	}
	slices.SortFunc(i.Entries, func(a, b v1alpha1.InventoryEntry) int { return strings.Compare(a.ID, b.ID) })
	return i
}

// pruneOrder is the reverse of the order of application, as far as it
// matters. Kinds that are not listed, custom ones among them, are deleted second, before
// the objects that serve them.
var pruneOrder = []schema.GroupKind{
	ReleaseKind,
	{}, // all that are not listed
	{Group: "networking.k8s.io", Kind: "Ingress"},
	AutoscalerKind,
	{Group: "batch", Kind: "Job"}, {Group: "batch", Kind: "CronJob"},
	{Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "DaemonSet"},
	{Kind: "Service"}, {Kind: "PersistentVolumeClaim"}, {Kind: "Secret"}, {Kind: "ConfigMap"},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}, {Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"},
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
	{Kind: "ServiceAccount"}, NamespaceKind, CRDKind,
}

func sortForPruning(list []Entry) {
	rank := func(e Entry) int {
		if i := slices.Index(pruneOrder, e.GVK.GroupKind()); i >= 0 {
			return i
		}
		return 1
	}
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.ID(), b.ID()))
	})
}

// Kinds that gitsync treats differently from others.
var (
	ReleaseKind    = v1alpha1.GroupVersion.WithKind("BatchRelease").GroupKind()
	SourceKind     = v1alpha1.GroupVersion.WithKind("GitSource").GroupKind()
	AutoscalerKind = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
	DeploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	ReplicaSetKind = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	RevisionKind   = schema.GroupKind{Group: "apps", Kind: "ControllerRevision"}
	PodKind        = schema.GroupKind{Kind: "Pod"}
	NamespaceKind  = schema.GroupKind{Kind: "Namespace"}
	CRDKind        = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	ClaimKind      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	ConfigMapKind  = schema.GroupKind{Kind: "ConfigMap"}
	SecretKind     = schema.GroupKind{Kind: "Secret"}
)

// WithKind returns a copy of a BatchRelease with its kind, as an object to apply has it.
func WithKind(br *v1alpha1.BatchRelease) *v1alpha1.BatchRelease {
	br = br.DeepCopy()
	br.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("BatchRelease"))
	return br
}

// DefinedBy returns the kind that a CRD defines.
func DefinedBy(crd *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}

// IsWorkload reports whether objects of a kind have a size that gitsync keeps.
func IsWorkload(kind schema.GroupKind) bool {
	return kind.Group == "apps" && slices.Contains([]string{DeploymentKind.Kind, ReplicaSetKind.Kind, "StatefulSet"}, kind.Kind)
}
