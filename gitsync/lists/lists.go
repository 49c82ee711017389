package lists

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/records"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Shared has what many sources read of a namespace at the same time. One list of the API
// server answers all that accept its age. It is safe for use by several goroutines.
type Shared struct {
	// Own reads as the controller.
	Own client.Reader

	plans    lists[map[string][]PlanRef]
	hpas     lists[map[Scaled]bool]
	failures lists[Failures]
	versions lists[map[string]Version]
	objects  answers[struct{}] // no list is kept of them, and of a refusal that there was one
}

// New returns a Shared that has read nothing.
func New(own client.Reader) *Shared { return &Shared{Own: own} }

// PlanRef names a BatchRelease.
type PlanRef struct {
	Name string
	UID  types.UID
}

// Scaled names what an autoscaler resizes.
type Scaled struct {
	Group, Kind, Name string
}

// Version is what tells whether an object is as it was read.
type Version struct {
	UID             types.UID
	ResourceVersion string
	Generation      int64
}

// VersionOf returns the version of an object.
func VersionOf(o metav1.Object) Version {
	return Version{UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration()}
}

// listed is how many objects a list has at most, unless more of them are asked for. A list of
// all objects of a large namespace costs more than to read a few.
const listed = 500

// ErrTooMany says that a namespace has too many objects of a kind for a list.
var ErrTooMany = fmt.Errorf("more than %d objects of the kind", listed)

// Query is what is asked for of a namespace.
type Query struct {
	// Namespace is empty for a kind without namespaces.
	Namespace string
	// Since is when the list was begun at the earliest.
	Since time.Time
	// Spread returns how many objects of a kind sources have applied in all, and in how many
	// namespaces. The kind is the one that is listed, or that the list is about. nil: a list of
	// the namespace is wanted.
	Spread func() (objects, namespaces int)
}

// PlansIn returns the BatchReleases of a namespace by Deployment, those that are being deleted
// included. Spread is that of the Deployments. The list was begun at the time that it returns.
func (s *Shared) PlansIn(ctx context.Context, q Query) (map[string][]PlanRef, time.Time, error) {
	read := func(namespace string, limit int) (map[string]map[string][]PlanRef, error) {
		var list v1alpha1.BatchReleaseList
		if err := s.Own.List(ctx, &list, client.InNamespace(namespace), client.Limit(int64(limit))); err != nil {
			return nil, fmt.Errorf("listing the BatchReleases of %q: %w", namespace, err)
		}
		by := map[string]map[string][]PlanRef{namespace: {}}
		for i := range list.Items {
			br := &list.Items[i]
			of := at(by, br.Namespace)
			of[br.Spec.WorkloadRef.Name] = append(of[br.Spec.WorkloadRef.Name], PlanRef{br.Name, br.UID})
		}
		return by, whole(&list)
	}
	return s.plans.in(q, "", "", func() (map[string]map[string][]PlanRef, error) { return read(q.Namespace, listed) },
		func(int) (map[string]map[string][]PlanRef, error) { return read("", listed) }) // they are large
}

// ScaledIn returns what autoscalers resize in a namespace. Spread is that of the Deployments.
// The list was begun at the time that it returns.
func (s *Shared) ScaledIn(ctx context.Context, q Query) (map[Scaled]bool, time.Time, error) {
	read := func(namespace string, limit int) (map[string]map[Scaled]bool, error) {
		var list autoscalingv2.HorizontalPodAutoscalerList
		if err := s.Own.List(ctx, &list, client.InNamespace(namespace), client.Limit(int64(limit))); err != nil {
			return nil, fmt.Errorf("listing the HorizontalPodAutoscalers of %q: %w", namespace, err)
		}
		by := map[string]map[Scaled]bool{namespace: {}}
		for i := range list.Items {
			if ref, ok := ScaledBy(&list.Items[i]); ok {
				at(by, list.Items[i].Namespace)[ref] = true
			}
		}
		return by, whole(&list)
	}
	return s.hpas.in(q, "", "", func() (map[string]map[Scaled]bool, error) { return read(q.Namespace, listed) },
		func(objects int) (map[string]map[Scaled]bool, error) { return read("", max(listed, objects)) })
}

// Failures are the ControllerRevisions that keep a [plan.Failure], by Deployment.
type Failures map[string][]*appsv1.ControllerRevision

// FailuresIn returns the failures that a namespace keeps. The list was begun at the time that
// it returns.
func (s *Shared) FailuresIn(ctx context.Context, q Query) (Failures, time.Time, error) {
	return s.failures.in(q, "", "", func() (map[string]Failures, error) {
		found, err := ReadFailures(ctx, s.Own, q.Namespace, listed)
		return map[string]Failures{q.Namespace: found}, err
	}, nil)
}

// ReadFailures reads the failures that a namespace keeps. The error is [ErrTooMany] if it has
// more records than limit. 0 is no limit.
func ReadFailures(ctx context.Context, from client.Reader, namespace string, limit int64) (Failures, error) {
	var list appsv1.ControllerRevisionList
	ours := client.MatchingLabelsSelector{Selector: records.Selector}
	if err := from.List(ctx, &list, client.InNamespace(namespace), ours, client.Limit(limit)); err != nil {
		return nil, fmt.Errorf("listing the ControllerRevisions of %s: %w", namespace, err)
	}
	found := Failures{}
	for i := range list.Items {
		c := &list.Items[i]
		if name := records.DeploymentOf(c); name != "" && plan.IsFailure(c) {
			found[name] = append(found[name], c)
		}
	}
	return found, whole(&list)
}

// at returns the part of a namespace.
func at[K comparable, V any](by map[string]map[K]V, namespace string) map[K]V {
	if by[namespace] == nil {
		by[namespace] = map[K]V{}
	}
	return by[namespace]
}

// whole returns an error if a list is cut off.
func whole(list metav1.ListInterface) error {
	if list.GetContinue() != "" {
		return ErrTooMany
	}
	return nil
}

// ScaledBy returns what an autoscaler resizes; false: its reference is not valid.
func ScaledBy(h *autoscalingv2.HorizontalPodAutoscaler) (Scaled, bool) {
	ref := h.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return Scaled{gv.Group, ref.Kind, ref.Name}, err == nil
}

// Kind is a kind as an account reads it.
type Kind struct {
	schema.GroupVersionKind
	As      client.Reader
	Account string
	// Known returns how many objects of the kind in the namespace sources have applied.
	Known func() int
}

// VersionsIn returns the versions of all objects of a kind in a namespace by name. The account
// reads them, or the controller those of all namespaces. The list was begun at the time that it
// returns. The error is [ErrTooMany] if there are many more objects than sources have applied.
func (s *Shared) VersionsIn(ctx context.Context, kind Kind, q Query) (map[string]Version, time.Time, error) {
	gvk := kind.GroupVersionKind
	read := func(as client.Reader, namespace string, known int) (map[string]map[string]Version, error) {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := as.List(ctx, &list, client.InNamespace(namespace), client.Limit(int64(max(listed, 8*known)))); err != nil {
			return nil, fmt.Errorf("listing %s in %q: %w", gvk.Kind, namespace, err)
		}
		by := map[string]map[string]Version{namespace: {}}
		for i := range list.Items {
			if o := &list.Items[i]; o.DeletionTimestamp == nil {
				at(by, o.Namespace)[o.Name] = VersionOf(o)
			}
		}
		return by, whole(&list)
	}
	return s.versions.in(q, kind.Account, gvk.String(),
		func() (map[string]map[string]Version, error) { return read(kind.As, q.Namespace, kind.Known()) },
		func(objects int) (map[string]map[string]Version, error) { return read(s.Own, "", objects) })
}

// spreadFrom is the number of namespaces from which one list of all namespaces is read in place
// of one for each.
const spreadFrom = 5

// errNarrow says that sources have objects of a kind in few namespaces.
var errNarrow = errors.New("the kind is in few namespaces")

// lists are the lists of a namespace, and those of all namespaces. A list of all is read as the
// controller, whatever the account: it says no more than whether objects are as they were
// applied.
type lists[T any] struct {
	each answers[map[string]T] // by account, namespace and kind
	all  answers[map[string]T] // by kind
}

// in returns what a list says of a namespace. Both functions return what they read by
// namespace. If a list of all namespaces is refused, the one of the namespace is read.
func (l *lists[T]) in(
	q Query, account, kind string, one func() (map[string]T, error), all func(objects int) (map[string]T, error),
) (T, time.Time, error) {
	if q.Spread != nil && q.Namespace != "" {
		by, begun, err := l.all.get(kind, q.Since, func() (map[string]T, error) {
			objects, namespaces := q.Spread()
			if namespaces < spreadFrom {
				return nil, errNarrow
			}
			return all(objects)
		})
		if err == nil {
			return by[q.Namespace], begun, nil
		}
	}
	by, begun, err := l.each.get(account+"\x00"+q.Namespace+"\x00"+kind, q.Since, one)
	return by[q.Namespace], begun, err
}

// answers are lists that were read, by what was asked. A refusal is kept for a while, so that
// not each source meets it.
type answers[T any] struct {
	mu sync.Mutex
	by map[string]*answer[T]
}

type answer[T any] struct {
	mu      sync.Mutex
	begun   time.Time
	value   T
	refused error
}

const (
	// keptAnswers bounds the lists that are kept.
	keptAnswers = 1024
	// refusedFor is how long a list is not tried again that an account may not read, or that is
	// too long.
	refusedFor = 10 * time.Minute
	// narrowFor is how long sources are taken to have objects in few namespaces. To count them
	// takes time for each source.
	narrowFor = time.Minute
)

func (a *answers[T]) get(key string, since time.Time, read func() (T, error)) (T, time.Time, error) {
	a.mu.Lock()
	of := a.by[key]
	if of == nil {
		if a.by == nil || len(a.by) >= keptAnswers {
			a.by = map[string]*answer[T]{}
		}
		of = &answer[T]{}
		a.by[key] = of
	}
	a.mu.Unlock()
	of.mu.Lock()
	defer of.mu.Unlock()
	var none T
	if of.refused != nil && time.Since(of.begun) < keptFor(of.refused) {
		return none, of.begun, of.refused
	}
	if of.refused == nil && of.begun.After(since) {
		return of.value, of.begun, nil
	}
	begun := time.Now()
	value, err := read()
	if err != nil {
		of.value, of.begun, of.refused = none, time.Time{}, nil
		if isRefusal(err) {
			of.begun, of.refused = begun, err
		}
		return none, begun, err
	}
	of.value, of.begun, of.refused = value, begun, nil
	return value, begun, nil
}

// keptFor returns how long a refusal holds.
func keptFor(refusal error) time.Duration {
	if errors.Is(refusal, errNarrow) {
		return narrowFor
	}
	return refusedFor
}

// isRefusal reports whether a list will be refused again.
func isRefusal(err error) bool {
	return errors.Is(err, ErrTooMany) || errors.Is(err, errNarrow) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
