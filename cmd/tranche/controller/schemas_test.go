package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/cmd/tranche/crds"
)

// form is a form of a CustomResourceDefinition, such as "a 3 older": its UID, its generation and its
// state. "-" is an error, and "none" is its absence.
type form string

func (f form) read() (crds.Comparison, string, error) {
	switch f {
	case "-":
		err := errors.New("connection refused")
		return crds.Comparison{State: crds.Unread, Message: err.Error(), Err: err}, "", err
	case "none":
		return crds.Comparison{State: crds.Missing}, "", nil
	}
	var uid, state string
	var generation int64
	if _, err := fmt.Sscan(string(f), &uid, &generation, &state); err != nil {
		panic(err)
	}
	version := fmt.Sprint(uid, generation)
	return crds.Comparison{State: crds.State(strings.ReplaceAll(state, "_", " ")), Message: "it is " + state,
		Metadata: &metav1.ObjectMeta{UID: types.UID(uid), Generation: generation, ResourceVersion: version}}, version, nil
}

// schemasOf has one of GitSources, in the form that a variable has.
func schemasOf(now *form) *schemas {
	return &schemas{lost: make(chan struct{}), of: map[string]*schema{"gitsources": {
		looking: make(chan struct{}, 1),
		version: func(context.Context) (string, error) {
			_, version, err := now.read()
			return version, err
		},
		compare: func(context.Context) crds.Comparison {
			is, _, _ := now.read()
			return is
		},
	}}}
}

func TestSchemas_Check(t *testing.T) {
	for _, tc := range []struct {
		reason string
		forms  []form // at the start, and at each check
		passes bool   // the last check
		lost   bool
	}{
		{"it stays", []form{"a 3 equal", "a 3 equal"}, true, false},
		{"it becomes newer", []form{"a 3 equal", "a 4 newer"}, true, false},
		{"it becomes newer, step by step", []form{"a 3 equal", "a 4 words", "a 5 newer"}, true, false},
		{"it becomes older", []form{"a 3 equal", "a 4 older"}, false, true},
		{"it was older", []form{"a 3 equal", "a 4 older", "a 5 equal"}, false, true},
		{"it was older between two checks", []form{"a 3 equal", "a 5 equal"}, false, true},
		{"it cannot be read", []form{"a 3 equal", "-"}, false, false},
		{"it could not be read for a while", []form{"a 3 equal", "-", "a 3 equal"}, true, false},
		{"it was older while it could not be read", []form{"a 3 equal", "-", "a 5 equal"}, false, true},
		{"its version is not served", []form{"a 3 equal", "a 4 not_served"}, false, false},
		{"its version was not served", []form{"a 3 equal", "a 4 not_served", "a 5 equal"}, false, true},
		{"it is being deleted", []form{"a 3 equal", "a 4 being_deleted"}, true, false},
		{"it is gone", []form{"a 3 equal", "a 4 being_deleted", "none"}, true, false},
		{"it is made again", []form{"a 3 equal", "none", "b 1 equal"}, true, false},
		{"it is made again, and is older", []form{"a 3 equal", "none", "b 1 older"}, false, true},
		{"it is made again, and was changed", []form{"a 3 equal", "b 2 equal"}, false, true},
		{"it comes after the start", []form{"none", "none", "b 1 equal"}, true, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			now := tc.forms[0]
			s := schemasOf(&now)
			s.incomplete(t.Context())
			var err error
			for _, now = range tc.forms[1:] {
				err = s.check(t.Context(), s.of["gitsources"].check)
			}
			lost := false
			select {
			case <-s.lost:
				lost = true
			default:
			}
			if (err == nil) != tc.passes || lost != tc.lost || (s.mayWrite() != nil) != tc.lost {
				t.Errorf("it ended with %v; lost: %t; it may write: %v", err, lost, s.mayWrite())
			}
		})
	}
}

// A check that has begun before a read is none of that read: the next one is waited for.
func TestSchemas_CheckBeginsAfterTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, looks, answers := form("a 3 equal"), 0, make(chan struct{})
		s := schemasOf(&now)
		one := s.of["gitsources"]
		version := one.version
		one.version = func(ctx context.Context) (string, error) {
			looks++
			seen, err := version(ctx)
			<-answers
			return seen, err
		}
		s.incomplete(t.Context())
		ended := make(chan error, 4)
		check := func() { ended <- s.check(t.Context(), one.check) }
		go check()
		synctest.Wait()
		now = "a 4 older"
		for range 3 {
			go check()
		}
		synctest.Wait()
		answers <- struct{}{}
		if err := <-ended; err != nil {
			t.Errorf("the check before the change: %v", err)
		}
		answers <- struct{}{}
		for range 3 {
			if err := <-ended; !errors.Is(err, errOlder) {
				t.Errorf("a check after the change: %v", err)
			}
		}
		if looks != 2 {
			t.Errorf("%d requests for four checks", looks)
		}
	})
}

// The guard checks after each answer with objects, and before a write that may lose fields.
func TestSchemas_Guard(t *testing.T) {
	const sources = "/apis/tranche.dev/v1alpha1/namespaces/a/gitsources/b"
	const strict, metadata = "?fieldValidation=Strict", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	for _, tc := range []struct {
		method, path string
		accept       string
		before       form // at the request
		after        form // at the answer
		sent, passes bool
	}{
		{http.MethodGet, sources, "", "a 3 equal", "a 3 equal", true, true},
		{http.MethodGet, sources, "", "a 3 equal", "a 4 older", true, false},
		{http.MethodGet, sources, "", "a 3 equal", "a 5 equal", true, false},
		{http.MethodGet, "/k8s/clusters/c" + sources, "", "a 3 equal", "a 4 older", true, false},
		{http.MethodGet, "/apis/tranche.dev/v1alpha1/gitsources?limit=1", "", "a 3 equal", "a 4 older", true, false},
		{http.MethodGet, "/apis/tranche.dev/v1alpha1/gitsources?watch=true", "", "a 3 equal", "a 3 equal", true, true},
		{http.MethodGet, "/apis/tranche.dev/v1alpha1/gitsources?watch=true", "", "a 3 equal", "a 4 older", true, false},
		{http.MethodGet, sources, metadata, "a 4 older", "a 4 older", true, true},
		{http.MethodGet, "/apis/tranche.dev/v1alpha1", "", "a 4 older", "a 4 older", true, true},
		{http.MethodGet, "/apis/apps/v1/namespaces/gitsources/deployments", "", "a 4 older", "a 4 older", true, true},
		{http.MethodPut, sources + "/status", "", "a 3 equal", "a 3 equal", true, true},
		{http.MethodPut, sources + "/status", "", "a 4 older", "a 4 older", false, false},
		{http.MethodPut, sources + "/status" + strict, "", "a 4 older", "a 4 older", true, true},
		{http.MethodPost, sources + strict, "", "a 4 older", "a 4 older", true, true},
		{http.MethodPatch, sources + strict, "", "a 4 older", "a 4 older", false, false},
		{http.MethodPatch, sources, metadata, "a 4 older", "a 4 older", false, false},
		{http.MethodPatch, sources, metadata, "a 3 equal", "a 4 older", true, true},
		{http.MethodDelete, sources, "", "a 4 older", "a 4 older", false, false},
		{http.MethodPatch, sources, "", "a 4 older", "a 4 older", false, false},
		{http.MethodPatch, sources, "", "a 3 equal", "a 4 older", true, false},
		{http.MethodPatch, sources + "?dryRun=All", "", "a 4 older", "a 4 older", true, true},
		{http.MethodPatch, sources, "", "-", "-", false, false},
	} {
		t.Run(fmt.Sprint(tc.method, tc.path, tc.accept, tc.before, tc.after), func(t *testing.T) {
			now, sent := form("a 3 equal"), false
			s := schemasOf(&now)
			s.incomplete(t.Context())
			now = tc.before
			c := s.guard(roundTripper(func(*http.Request) (*http.Response, error) {
				sent, now = true, tc.after
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			}))
			q, err := http.NewRequestWithContext(t.Context(), tc.method, "https://example.org"+tc.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Accept", tc.accept)
			if _, err = c.RoundTrip(q); (err == nil) != tc.passes || sent != tc.sent {
				t.Errorf("sent: %t; it ended with %v", sent, err)
			}
		})
	}
}

// An answer without an object has no field to lose.
func TestSchemas_GuardOfAnError(t *testing.T) {
	now, looks := form("a 3 equal"), 0
	s := schemasOf(&now)
	one := s.of["gitsources"]
	version := one.version
	one.version = func(ctx context.Context) (string, error) {
		looks++
		return version(ctx)
	}
	s.incomplete(t.Context())
	for status, want := range map[int]int{http.StatusNotFound: 0, http.StatusConflict: 0, http.StatusOK: 1} {
		looks = 0
		c := s.guard(roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: http.NoBody}, nil
		}))
		const source = "https://example.org/apis/tranche.dev/v1alpha1/namespaces/a/gitsources/b"
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, source, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.RoundTrip(q); err != nil || looks != want {
			t.Errorf("status %d: %d checks, want %d: %v", status, looks, want, err)
		}
	}
}

// Writes within seconds share a check.
func TestSchemas_GuardOfManyWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, looks := form("a 3 equal"), 0
		s := schemasOf(&now)
		s.incomplete(t.Context())
		one := s.of["gitsources"]
		version := one.version
		one.version = func(ctx context.Context) (string, error) {
			looks++
			return version(ctx)
		}
		for range 10 {
			if err := s.check(t.Context(), one.recent); err != nil {
				t.Error(err)
			}
			time.Sleep(schemaRecent / 5)
		}
		if looks != 2 {
			t.Errorf("%d requests for ten writes", looks)
		}
		now = "-"
		time.Sleep(schemaRecent)
		for range 2 {
			if err := s.check(t.Context(), one.recent); err == nil {
				t.Error("a write beside a definition that cannot be read")
			}
		}
	})
}

// The caches are filled once all are complete, and some time after the last one that was older.
func TestSchemas_Await(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, told := form("a 3 older"), 0
		s := schemasOf(&now)
		ended := make(chan error, 1)
		go func() { ended <- s.await(t.Context(), func(context.Context, crds.Comparison) { told++ }) }()
		synctest.Wait()
		if len(ended) > 0 || told != 1 {
			t.Fatalf("it did not wait, or said so %d times", told)
		}
		now = "a 4 equal"
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err := s.check(t.Context(), s.of["gitsources"].check); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		now = "-"
		go func() { ended <- s.await(ctx, func(context.Context, crds.Comparison) {}) }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}
