package footprint

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/lists"
)

// lister answers lists of metadata.
type lister struct {
	client.Reader
	items []metav1.PartialObjectMetadata
}

func (l *lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	of, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return errors.New("not a list of metadata")
	}
	of.Items = l.items
	return nil
}

func metadata(name, version string, deleted bool) metav1.PartialObjectMetadata {
	o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "shop", UID: types.UID("uid-" + name), ResourceVersion: version,
	}}
	if deleted {
		o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return o
}

var configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// A footprint holds only if each object has the version that was applied.
func TestFootprint_Holds(t *testing.T) {
	f := &Footprint{versions: map[place]map[string]lists.Version{
		{configMaps, "shop"}: {"a": {UID: "uid-a", ResourceVersion: "1"}, "b": {UID: "uid-b", ResourceVersion: "2"}},
	}}
	for name, tc := range map[string]struct {
		items []metav1.PartialObjectMetadata
		moved bool
	}{
		"as applied, beside another": {[]metav1.PartialObjectMetadata{
			metadata("a", "1", false), metadata("b", "2", false), metadata("c", "9", false),
		}, false},
		"one is changed":       {[]metav1.PartialObjectMetadata{metadata("a", "1", false), metadata("b", "3", false)}, true},
		"one is gone":          {[]metav1.PartialObjectMetadata{metadata("a", "1", false)}, true},
		"one is being deleted": {[]metav1.PartialObjectMetadata{metadata("a", "1", false), metadata("b", "2", true)}, true},
		"one was created again": {[]metav1.PartialObjectMetadata{metadata("a", "1", false), {ObjectMeta: metav1.ObjectMeta{
			Name: "b", Namespace: "shop", UID: "other", ResourceVersion: "2"}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lister{items: tc.items}
			since := time.Now()
			begun, err := f.Holds(t.Context(), Reading{
				Shared: lists.New(l), As: l, Since: since, Known: func(schema.GroupVersionKind, string) int { return 2 },
				Spread: func(schema.GroupVersionKind) (int, int) { return 2, 1 },
			})
			if errors.Is(err, ErrMoved) != tc.moved || err != nil && !tc.moved {
				t.Errorf("Holds = %v, moved %t", err, tc.moved)
			}
			if err == nil && begun.Before(since) {
				t.Errorf("it was compared with what was read at %s, before %s", begun, since)
			}
		})
	}
}
