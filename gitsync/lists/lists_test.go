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

func (l *lister) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	l.lists++
	if l.err != nil {
		return l.err
	}
	of, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok {
		return errors.New("not a list of metadata")
	}
	o := (&client.ListOptions{}).ApplyOptions(options)
	for _, item := range l.items {
		if o.Namespace == "" || item.Namespace == o.Namespace {
			of.Items = append(of.Items, item)
		}
	}
	if l.more {
		of.Continue = "more"
	}
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

// configMapsOf is the kind as an account reads it.
func configMapsOf(account string, as client.Reader) Kind {
	return Kind{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, As: as, Account: account,
		Known: func() int { return 0 },
	}
}

// A list answers all that accept its age, and none that does not. The list of one account
// answers no other.
func TestShared_AgeAndAccount(t *testing.T) {
	l := &lister{items: []metav1.PartialObjectMetadata{metadata("a", "1", false), metadata("b", "2", true)}}
	s, began := New(l), time.Now()
	read := func(account string, since time.Time) map[string]Version {
		t.Helper()
		versions, begun, err := s.VersionsIn(t.Context(), configMapsOf(account, l), Query{Namespace: "shop", Since: since})
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
				if _, _, err := s.VersionsIn(t.Context(), configMapsOf("", tc.lister), Query{Namespace: "shop", Since: time.Now()}); err == nil {
					t.Error("no error")
				}
			}
			if tc.lister.lists != tc.lists {
				t.Errorf("%d lists, want %d", tc.lister.lists, tc.lists)
			}
		})
	}
}

// One list of all namespaces answers where sources have objects in many. If the controller may
// not read it, or if they are in few, there is a list of each namespace.
func TestShared_AllNamespaces(t *testing.T) {
	var items []metav1.PartialObjectMetadata
	for _, namespace := range []string{"shop", "bank", "mail"} {
		o := metadata("a", "of-"+namespace, false)
		o.Namespace = namespace
		items = append(items, o)
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no"))
	for _, tc := range []struct {
		reason     string
		own        *lister
		namespaces int
		lists      int // of all namespaces
		each       int
	}{
		{"many", &lister{items: items}, spreadFrom, 1, 0},
		{"few", &lister{items: items}, spreadFrom - 1, 0, 4},
		{"many, and the controller may not list them", &lister{err: forbidden}, spreadFrom, 1, 4},
		{"many, and too much of others in them", &lister{items: items, more: true}, spreadFrom, 1, 4},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			account := &lister{items: items}
			s, since := New(tc.own), time.Now()
			for _, namespace := range []string{"shop", "bank", "mail", "none", "shop"} {
				got, begun, err := s.VersionsIn(t.Context(), configMapsOf("tenant", account), Query{
					Namespace: namespace, Since: since, Spread: func() (int, int) { return 9, tc.namespaces },
				})
				if err != nil || !begun.After(since) {
					t.Fatalf("%s: begun at %s: %v", namespace, begun, err)
				}
				want := "of-" + namespace
				if namespace == "none" {
					want = ""
				}
				if v := got["a"].ResourceVersion; v != want {
					t.Errorf("%s: version %q, want %q", namespace, v, want)
				}
			}
			if tc.own.lists != tc.lists || account.lists != tc.each {
				t.Errorf("%d lists of all, and %d of one namespace; want %d and %d", tc.own.lists, account.lists, tc.lists, tc.each)
			}
		})
	}
}
