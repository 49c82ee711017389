package lists

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pager answers lists in pages, as the API server does.
type pager struct {
	client.Reader
	n     int // objects that there are
	err   error
	lists int
}

func (p *pager) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	p.lists++
	if p.err != nil {
		return p.err
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	from, _ := strconv.Atoi(o.Continue)
	of := list.(*unstructured.UnstructuredList)
	for i := from; i < p.n; i++ {
		if int64(i-from) == o.Limit {
			of.SetContinue(strconv.Itoa(i))
			return nil
		}
		item := unstructured.Unstructured{}
		item.SetName(fmt.Sprintf("object-%04d", i))
		of.Items = append(of.Items, item)
	}
	return nil
}

// Objects are found on each page. A list that is refused, or too long for so few objects, is not tried
// again soon.
func TestObjectsIn(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
	for name, tc := range map[string]struct {
		there, wanted int
		err           error
		whole         bool
		lists, again  int // requests, and those of another try
	}{
		"none there":            {wanted: 9, whole: true, lists: 1, again: 1},
		"one page":              {there: 20, wanted: 9, whole: true, lists: 1, again: 1},
		"all pages":             {there: 350, wanted: 90, whole: true, lists: 4, again: 4},
		"as many as are listed": {there: 36, wanted: 9, whole: true, lists: 1, again: 1},
		"too many":              {there: 37, wanted: 9, lists: 1},
		"too many pages":        {there: 361, wanted: 90, lists: 4},
		"may not list":          {wanted: 9, err: forbidden, lists: 1},
		"a failure":             {wanted: 9, err: context.DeadlineExceeded, lists: 1, again: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := New(nil), &pager{n: tc.there, err: tc.err}
			names := map[string]bool{}
			for i := range tc.wanted - 1 {
				names[fmt.Sprintf("object-%04d", tc.there*i/tc.wanted)] = true
			}
			names["gone"] = true
			for try, want := range []int{tc.lists, tc.again} {
				p.lists = 0
				found := s.ObjectsIn(t.Context(), configMapsOf("me", p), "shop", names)
				if p.lists != want || (found != nil) != tc.whole {
					t.Fatalf("try %d: %d lists, %v found, want %d", try, p.lists, found, want)
				}
				for name := range names {
					if is := tc.whole && tc.there > 0 && name != "gone"; (found[name] != nil) != is {
						t.Errorf("%s: %t", name, !is)
					}
				}
			}
			if p.err, p.lists = nil, 0; s.ObjectsIn(t.Context(), configMapsOf("another", p), "shop", names) == nil && tc.err != nil || p.lists == 0 {
				t.Error("another account may not list, either")
			}
		})
	}
}
