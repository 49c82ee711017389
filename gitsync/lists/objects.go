package lists

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pageOfObjects is how many objects a page of a list has. No more of them are in memory at a
	// time, except for those that are asked for.
	pageOfObjects = 100
	// objectsOfOne is how many objects are listed for each that is asked for. To read one by
	// itself takes as long.
	objectsOfOne = 4
)

// ObjectsIn returns the objects of some names that a namespace has of a kind. They are as they are
// now: no list is shared. It returns nil if they are to be read one by one. The account may not
// list the kind, there are many more objects of it than were asked for, or a request has failed.
func (s *Shared) ObjectsIn(ctx context.Context, kind Kind, namespace string, names map[string]bool) map[string]*unstructured.Unstructured {
	found := map[string]*unstructured.Unstructured{}
	read := func() (struct{}, error) {
		list := &unstructured.UnstructuredList{}
		for left := objectsOfOne * len(names); left > 0; left -= pageOfObjects {
			next := list.GetContinue()
			list = &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			page := client.Limit(int64(min(left, pageOfObjects)))
			if err := kind.As.List(ctx, list, client.InNamespace(namespace), page, client.Continue(next)); err != nil {
				return struct{}{}, err
			}
			for _, o := range list.Items {
				if names[o.GetName()] {
					found[o.GetName()] = &o
				}
			}
			if list.GetContinue() == "" {
				return struct{}{}, nil
			}
		}
		return struct{}{}, ErrTooMany
	}
	key := fmt.Sprintf("%s\x00%s\x00%s\x00%d", kind.Account, namespace, kind, bits.Len(uint(len(names)))) // it may be too many for a few
	if _, _, err := s.objects.get(key, time.Now(), read); err != nil {
		return nil
	}
	return found
}
