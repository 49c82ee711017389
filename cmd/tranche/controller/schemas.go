package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/crds"
	"github.com/tranche-dev/tranche/config"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The times of the checks of CustomResourceDefinitions.
const (
	schemaRetry = time.Second // between two before the manager starts
	// schemaRecent is how old a check before a write may be. The watches end earlier after a change.
	schemaRecent = 5 * time.Second
	// schemaSettles is how long API servers may go on with an older one after they have the new one. They
	// wait that long themselves before they serve one that is new.
	schemaSettles = 5 * time.Second
)

// schemas makes sure that the API server knows all fields of Tranche's kinds. An older
// CustomResourceDefinition has it drop fields on reading, such as spec.verify, and what is then
// written back has lost them for good.
//
// A manager starts once all of them are complete. After each answer with objects, the
// CustomResourceDefinition of their kind is looked at again. If that is unchanged, they have all
// fields. A watch has those of its beginning, and an API server ends all watches of a kind within
// seconds of a change. So the objects in the caches are whole. If a definition is older, or was for
// a moment, nothing is written any more, and the process ends, to read all objects again.
//
// A write in the meantime may not take fields out of etcd. The API server refuses a whole object
// with fields that it does not know, if it is asked to be strict. Before other writes the definition
// is looked at.
type schemas struct {
	of     map[string]*schema // by resource
	reader client.Reader      // that guard does not guard
	once   sync.Once
	lost   chan struct{} // closed with because

	mu      sync.Mutex
	because error // why the process has to end
}

// schema is one CustomResourceDefinition. Checks that are asked for at the same time are one.
type schema struct {
	// version returns its resourceVersion, and compare the rest. Neither uses a client that guard guards.
	version func(context.Context) (string, error)
	compare func(context.Context) crds.Comparison

	looking chan struct{} // has room for one: one check at a time has what follows
	seen    string        // the resourceVersion that was compared last; empty: there is none
	uid     types.UID
	number  int64 // its generation

	mu     sync.Mutex
	next   *schemaCheck // one that has not begun; nil: there is none
	passed time.Time    // when the last one began that ended well
}

// schemaCheck is a check that several wait for.
type schemaCheck struct {
	done chan struct{}
	err  error
}

// errOlder is a difference by which objects are read without some of their fields.
var errOlder = errors.New("objects of its kind may have been read without some of their fields; the process ends, to read them again")

// newSchemas makes one that reads with the rights of a configuration that has no guard yet.
func newSchemas(rc *rest.Config) (*schemas, error) {
	rc = rest.CopyConfig(rc)
	c, err := client.New(rc, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("preparing to read CustomResourceDefinitions: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("preparing to read CustomResourceDefinitions: %w", err)
	}
	s := &schemas{of: map[string]*schema{}, reader: c, lost: make(chan struct{})}
	for _, want := range config.Objects("crd", "CustomResourceDefinition") {
		resource, _, _ := strings.Cut(want.GetName(), ".")
		s.of[resource] = newSchema(c, d.RESTClient(), want)
	}
	return s, nil
}

func newSchema(c client.Reader, raw rest.Interface, want *unstructured.Unstructured) *schema {
	return &schema{
		looking: make(chan struct{}, 1),
		compare: func(ctx context.Context) crds.Comparison {
			return crds.CompareOne(ctx, c, want, "apply config/crd of version "+cli.VersionString()+", or upgrade the chart")
		},
		version: func(ctx context.Context) (string, error) { // as a table without the object, which is large
			text, err := raw.Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", want.GetName()).
				Param("includeObject", string(metav1.IncludeNone)).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
				Do(ctx).Raw()
			var table struct{ Metadata metav1.ListMeta }
			if err == nil {
				err = json.Unmarshal(text, &table)
			}
			return table.Metadata.ResourceVersion, client.IgnoreNotFound(err)
		},
	}
}

// check returns an error unless the API server knows, and has known since the first check, all
// fields. The check begins after it is called.
func (s *schema) check(ctx context.Context) error {
	s.mu.Lock()
	c := s.next
	if c == nil {
		c = &schemaCheck{done: make(chan struct{})}
		s.next = c
		go s.run(context.WithoutCancel(ctx), c)
	}
	s.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *schema) run(ctx context.Context, c *schemaCheck) {
	s.looking <- struct{}{}
	defer func() { <-s.looking }()
	s.mu.Lock()
	s.next = nil // who comes from now on needs another one
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewDeadline)
	defer cancel()
	begun := time.Now()
	c.err = s.look(ctx)
	if c.err == nil {
		s.mu.Lock()
		s.passed = begun
		s.mu.Unlock()
	}
	close(c.done)
}

// recent returns nil if a check has passed just now. Otherwise it is as check.
func (s *schema) recent(ctx context.Context) error {
	s.mu.Lock()
	passed := s.passed
	s.mu.Unlock()
	if time.Since(passed) < schemaRecent {
		return nil
	}
	return s.check(ctx)
}

// look compares a CustomResourceDefinition that has changed since the last check. One that is
// missing, or is being deleted, has no objects from which fields get lost.
func (s *schema) look(ctx context.Context) error {
	version, err := s.version(ctx)
	if err != nil {
		return fmt.Errorf("reading whether a CustomResourceDefinition has changed: %w", err)
	}
	if version == s.seen {
		return nil
	}
	is := s.compare(ctx)
	switch is.State {
	case crds.Unread, crds.NotServed:
		return fmt.Errorf("CustomResourceDefinition %s: %s", is.Name, is.Message)
	case crds.Older:
		return fmt.Errorf("CustomResourceDefinition %s: %s: %w", is.Name, is.Message, errOlder)
	case crds.Missing:
		s.seen = ""
		return nil
	case crds.Equal, crds.Deleted, crds.Newer, crds.Differs, crds.Words:
	}
	if s.skipped(is.Metadata) {
		return fmt.Errorf("CustomResourceDefinition %s was changed more than once, and may have been older meanwhile: %w", is.Name, errOlder)
	}
	s.know(is.Metadata)
	return nil
}

// skipped reports whether there was a form between the last one that was compared and this one.
func (s *schema) skipped(o metav1.Object) bool {
	if o.GetUID() != s.uid {
		return o.GetGeneration() > 1
	}
	return o.GetGeneration() > s.number+1
}

func (s *schema) know(o metav1.Object) {
	s.seen, s.uid, s.number = o.GetResourceVersion(), o.GetUID(), o.GetGeneration()
}

// begin takes what is there as the first form, and returns what to wait for.
func (s *schema) begin(ctx context.Context) crds.Comparison {
	is := s.compare(ctx)
	if is.Metadata != nil {
		s.know(is.Metadata)
	}
	return is
}

// await waits until all CustomResourceDefinitions are complete. The caches may not be filled before.
// tell is called with what is waited for: when that changes, and every definitionsEvery.
func (s *schemas) await(ctx context.Context, tell func(context.Context, crds.Comparison)) error {
	settles, said, at := time.Duration(0), "", time.Time{}
	for {
		waits := s.incomplete(ctx)
		if waits.Message == "" && settles == 0 {
			return nil
		}
		pause := schemaRetry
		switch {
		case waits.Message == "":
			pause, settles = settles, 0
		case waits.State == crds.Older:
			settles = schemaSettles
		}
		if waits.Message != "" && (waits.Message != said || time.Since(at) > definitionsEvery) {
			said, at = waits.Message, time.Now()
			tell(ctx, waits)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// incomplete returns how one of them compares that is not complete.
func (s *schemas) incomplete(ctx context.Context) (waits crds.Comparison) {
	for _, one := range s.of {
		switch is := one.begin(ctx); is.State {
		case crds.Older:
			return is
		case crds.Unread, crds.NotServed:
			waits = is
		case crds.Equal, crds.Missing, crds.Deleted, crds.Newer, crds.Differs, crds.Words:
		}
	}
	return waits
}

// check makes a check of a CustomResourceDefinition, and has the process end if that is older.
func (s *schemas) check(ctx context.Context, check func(context.Context) error) error {
	if err := s.mayWrite(); err != nil {
		return err
	}
	err := check(ctx)
	if errors.Is(err, errOlder) {
		s.once.Do(func() {
			s.mu.Lock()
			s.because = err
			s.mu.Unlock()
			close(s.lost)
		})
	}
	return err
}

// mayWrite returns why nothing may be written now.
func (s *schemas) mayWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.because != nil {
		return fmt.Errorf("not written: %w", s.because)
	}
	return nil
}

// about returns the CustomResourceDefinition of the objects that a request is about; nil: of other ones. A dry run
// changes nothing.
func (s *schemas) about(q *http.Request) *schema {
	_, path, ok := strings.Cut(q.URL.Path, "/apis/"+v1alpha1.Group+"/"+v1alpha1.GroupVersion.Version+"/")
	if !ok || q.URL.Query().Get("dryRun") != "" {
		return nil
	}
	parts := strings.Split(path, "/")
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return s.of[parts[0]]
}

// isStrict reports whether a request writes a whole object, and the API server refuses it if it has a field that is
// not known.
func isStrict(q *http.Request) bool {
	return (q.Method == http.MethodPut || q.Method == http.MethodPost) &&
		q.URL.Query().Get("fieldValidation") == metav1.FieldValidationStrict
}

// answersFields reports whether the answer to a request may have objects without some of their fields. Metadata
// have all of theirs. A PUT and a POST send the whole object.
func answersFields(q *http.Request) bool {
	return q.Method != http.MethodPut && q.Method != http.MethodPost && q.Method != http.MethodDelete &&
		!strings.Contains(q.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// guard lets a client read and write objects of Tranche's kinds only while the API server knows all their fields.
func (s *schemas) guard(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		one := s.about(q)
		if q.Method != http.MethodGet && q.Method != http.MethodHead {
			err := s.mayWrite()
			if err == nil && one != nil && !isStrict(q) {
				err = s.check(q.Context(), one.recent)
			}
			if err != nil {
				if q.Body != nil {
					_ = q.Body.Close() // nothing of it is read
				}
				return nil, err
			}
		}
		response, err := next.RoundTrip(q)
		if err != nil || one == nil || !answersFields(q) || response.StatusCode >= http.StatusBadRequest {
			return response, err
		}
		if err := s.check(q.Context(), one.check); err != nil {
			_ = response.Body.Close() // nothing of it is read
			return nil, err
		}
		return response, nil
	})
}

// tellOutdated says in the log, and in an event of each GitSource and BatchRelease, that nothing goes on.
// Their status cannot say it: a write of it would take the fields out of etcd.
func tellOutdated(c client.Reader, events recorder.EventRecorder, selector labels.Selector) func(context.Context, crds.Comparison) {
	log := ctrl.Log.WithName("crds")
	return func(ctx context.Context, is crds.Comparison) {
		log.Error(errors.New(is.Message), "No commit is applied and no release moves", "reason", v1alpha1.ReasonOutdatedCRD,
			"name", is.Name, "state", string(is.State), "todo", is.Todo)
		if is.State != crds.Older {
			return
		}
		for _, kind := range []string{"GitSource", "BatchRelease"} {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
			if err := c.List(ctx, list, client.MatchingLabelsSelector{Selector: selector}); err != nil {
				log.Error(err, "Events not recorded", "kind", kind)
				continue
			}
			for i := range list.Items {
				o := &list.Items[i]
				o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
				events.Eventf(o, nil, corev1.EventTypeWarning, v1alpha1.ReasonOutdatedCRD, "Check",
					"nothing is applied and no gate opens: CustomResourceDefinition %s: %s; %s", is.Name, is.Message, is.Todo)
			}
		}
	}
}
