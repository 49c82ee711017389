package gitsync

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// entry is one object of an inventory.
type entry struct {
	gvk             schema.GroupVersionKind
	namespace, name string
}

func entryOf(u *unstructured.Unstructured) entry {
	return entry{u.GroupVersionKind(), u.GetNamespace(), u.GetName()}
}

// String is kind, namespace and name, as people say it.
func (e entry) String() string {
	if e.namespace == "" {
		return e.gvk.Kind + " " + e.name
	}
	return e.gvk.Kind + " " + e.namespace + "/" + e.name
}

// id is the entry in the format of Flux and cli-utils: a colon, which names of
// RBAC objects may have, is written as two underscores.
func (e entry) id() string {
	return strings.Join([]string{e.namespace, strings.ReplaceAll(e.name, ":", "__"), e.gvk.Group, e.gvk.Kind}, "_")
}

// parseEntry reads an entry of a status; false where it is none.
func parseEntry(i v1alpha1.InventoryEntry) (entry, bool) {
	namespace, rest, ok := strings.Cut(i.ID, "_")
	kindAt := strings.LastIndex(rest, "_")
	if !ok || kindAt < 0 {
		return entry{}, false
	}
	kind, rest := rest[kindAt+1:], rest[:kindAt]
	groupAt := strings.LastIndex(rest, "_")
	if groupAt <= 0 || kind == "" {
		return entry{}, false
	}
	return entry{
		gvk:       schema.GroupVersionKind{Group: rest[groupAt+1:], Version: i.Version, Kind: kind},
		namespace: namespace, name: strings.ReplaceAll(rest[:groupAt], "__", ":"),
	}, true
}

// inventory is a set of objects by id.
type inventory map[string]entry

func readInventory(i *v1alpha1.Inventory) inventory {
	inv := inventory{}
	if i == nil {
		return inv
	}
	for _, e := range i.Entries {
		if parsed, ok := parseEntry(e); ok {
			inv[e.ID] = parsed
		}
	}
	return inv
}

func (inv inventory) add(e entry) { inv[e.id()] = e }

// union has the entries of both; of two versions of one kind, those of inv.
func (inv inventory) union(other inventory) inventory {
	all := inventory{}
	for id, e := range other {
		all[id] = e
	}
	for id, e := range inv {
		all[id] = e
	}
	return all
}

// without returns the entries that other does not have.
func (inv inventory) without(other inventory) []entry {
	var gone []entry
	for id, e := range inv {
		if _, ok := other[id]; !ok {
			gone = append(gone, e)
		}
	}
	sortForPruning(gone)
	return gone
}

// status is the inventory as it is written; nil where it is empty.
func (inv inventory) status() *v1alpha1.Inventory {
	if len(inv) == 0 {
		return nil
	}
	i := &v1alpha1.Inventory{}
	for id, e := range inv {
		i.Entries = append(i.Entries, v1alpha1.InventoryEntry{ID: id, Version: e.gvk.Version})
	}
	slices.SortFunc(i.Entries, func(a, b v1alpha1.InventoryEntry) int { return strings.Compare(a.ID, b.ID) })
	return i
}

// pruneOrder is the reverse of the order of application, as far as it
// matters. Kinds that are not listed, custom ones among them, go second: what
// serves them goes after them.
var pruneOrder = []schema.GroupKind{
	releaseKind,
	{}, // all that are not listed
	{Group: "networking.k8s.io", Kind: "Ingress"},
	autoscalerKind,
	{Group: "batch", Kind: "Job"}, {Group: "batch", Kind: "CronJob"},
	{Group: "apps", Kind: "StatefulSet"}, {Group: "apps", Kind: "Deployment"}, {Group: "apps", Kind: "DaemonSet"},
	{Kind: "Service"}, {Kind: "PersistentVolumeClaim"}, {Kind: "Secret"}, {Kind: "ConfigMap"},
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}, {Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"},
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}, {Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"},
	{Kind: "ServiceAccount"}, namespaceKind, crdKind,
}

func sortForPruning(list []entry) {
	rank := func(e entry) int {
		if i := slices.Index(pruneOrder, e.gvk.GroupKind()); i >= 0 {
			return i
		}
		return 1
	}
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.id(), b.id()))
	})
}

// Kinds that are treated in a way of their own.
var (
	releaseKind    = v1alpha1.GroupVersion.WithKind("BatchRelease").GroupKind()
	autoscalerKind = schema.GroupKind{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}
	deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	replicaSetKind = schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}
	revisionKind   = schema.GroupKind{Group: "apps", Kind: "ControllerRevision"}
	podKind        = schema.GroupKind{Kind: "Pod"}
	namespaceKind  = schema.GroupKind{Kind: "Namespace"}
	crdKind        = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
	claimKind      = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	configMapKind  = schema.GroupKind{Kind: "ConfigMap"}
	secretKind     = schema.GroupKind{Kind: "Secret"}
)
