package lists

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lister answers lists of metadata, and counts them.
type lister struct {
	client.Reader
	items []metav1.PartialObjectMetadata
	more  bool
	err   error
	lists int
}

func (l *lister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	l.lists++
	if l.err != nil {
		return l.err
	}
	of, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return errors.New("not a list of metadata")
	}
	of.Items = l.items
	if l.more {
		of.Continue = "more"
	}
	return nil
}

func metadata(name, version string, deleted bool) metav1.PartialObjectMetadata {
	o := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: version}}
	if deleted {
		o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	return o
}

var configMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// A list answers all that accept its age, and none that does not. The list of one account
// answers no other.
func TestShared_AgeAndAccount(t *testing.T) {
	l := &lister{items: []metav1.PartialObjectMetadata{metadata("a", "1", false), metadata("b", "2", true)}}
	s, began := New(l), time.Now()
	read := func(account string, since time.Time) map[string]Version {
		t.Helper()
		versions, begun, err := s.VersionsIn(t.Context(), l, account, configMaps, "shop", since, func() int { return 0 })
		if err != nil || !begun.After(since) {
			t.Fatalf("begun at %s, and asked for since %s: %v", begun, since, err)
		}
		return versions
	}
	first := read("one", began)
	if want := (Version{UID: "uid-a", ResourceVersion: "1"}); len(first) != 1 || first["a"] != want {
		t.Errorf("the versions are %v: b is being deleted", first)
	}
	if read("one", began); l.lists != 1 {
		t.Errorf("%d lists, and the first was young enough", l.lists)
	}
	later := time.Now()
	l.items = []metav1.PartialObjectMetadata{metadata("a", "3", false)}
	if v := read("one", later)["a"].ResourceVersion; l.lists != 2 || v != "3" {
		t.Errorf("%d lists, version %s: the first was too old", l.lists, v)
	}
	if read("other", began); l.lists != 3 {
		t.Errorf("%d lists: another account was answered by the list of one", l.lists)
	}
}

// A list that is refused or too long is not tried again for a while. One that failed is.
func TestShared_Refusals(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))
	for name, tc := range map[string]struct {
		lister *lister
		lists  int
	}{
		"forbidden":   {&lister{err: forbidden}, 1},
		"too long":    {&lister{more: true}, 1},
		"a time-out":  {&lister{err: context.DeadlineExceeded}, 2},
		"unavailable": {&lister{err: apierrors.NewServiceUnavailable("no")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(tc.lister)
			for range 2 {
				if _, _, err := s.VersionsIn(t.Context(), tc.lister, "", configMaps, "shop", time.Now(), func() int { return 0 }); err == nil {
					t.Error("no error")
				}
			}
			if tc.lister.lists != tc.lists {
				t.Errorf("%d lists, want %d", tc.lister.lists, tc.lists)
			}
		})
	}
}
