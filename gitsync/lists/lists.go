package lists

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Shared has what many sources read of a namespace at the same time. One list of the API
// server answers all that accept its age. It is safe for use by several goroutines.
type Shared struct {
	// Own reads as the controller.
	Own client.Reader

	plans    answers[map[string][]PlanRef]
	hpas     answers[map[Scaled]bool]
	versions answers[map[string]Version]
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

// PlansIn returns the BatchReleases of a namespace by Deployment, those that are being deleted
// included. The list was begun after since, at the time that it returns.
func (s *Shared) PlansIn(ctx context.Context, namespace string, since time.Time) (map[string][]PlanRef, time.Time, error) {
	return s.plans.get(namespace, since, func() (map[string][]PlanRef, error) {
		var list v1alpha1.BatchReleaseList
		if err := s.Own.List(ctx, &list, client.InNamespace(namespace), client.Limit(listed)); err != nil {
			return nil, fmt.Errorf("listing the BatchReleases of %s: %w", namespace, err)
		}
		if list.Continue != "" {
			return nil, ErrTooMany
		}
		by := map[string][]PlanRef{}
		for i := range list.Items {
			br := &list.Items[i]
			workload := br.Spec.WorkloadRef.Name
			by[workload] = append(by[workload], PlanRef{br.Name, br.UID})
		}
		return by, nil
	})
}

// ScaledIn returns what autoscalers resize in a namespace. The list was begun after since, at
// the time that it returns.
func (s *Shared) ScaledIn(ctx context.Context, namespace string, since time.Time) (map[Scaled]bool, time.Time, error) {
	return s.hpas.get(namespace, since, func() (map[Scaled]bool, error) {
		var list autoscalingv2.HorizontalPodAutoscalerList
		if err := s.Own.List(ctx, &list, client.InNamespace(namespace), client.Limit(listed)); err != nil {
			return nil, fmt.Errorf("listing the HorizontalPodAutoscalers of %s: %w", namespace, err)
		}
		if list.Continue != "" {
			return nil, ErrTooMany
		}
		scaled := map[Scaled]bool{}
		for i := range list.Items {
			if ref, ok := ScaledBy(&list.Items[i]); ok {
				scaled[ref] = true
			}
		}
		return scaled, nil
	})
}

// ScaledBy returns what an autoscaler resizes; false: its reference is not valid.
func ScaledBy(h *autoscalingv2.HorizontalPodAutoscaler) (Scaled, bool) {
	ref := h.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return Scaled{gv.Group, ref.Kind, ref.Name}, err == nil
}

// VersionsIn returns the versions of all objects of a kind in a namespace by name, as an
// account reads them. For a kind without namespaces, the namespace is empty. The list was begun
// after since, at the time that it returns. known is how many of the objects are asked for in
// all. The error is [ErrTooMany] if there are many more.
func (s *Shared) VersionsIn(
	ctx context.Context, as client.Reader, account string, gvk schema.GroupVersionKind, namespace string, since time.Time, known func() int,
) (map[string]Version, time.Time, error) {
	key := account + "\x00" + namespace + "\x00" + gvk.String()
	return s.versions.get(key, since, func() (map[string]Version, error) {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := as.List(ctx, &list, client.InNamespace(namespace), client.Limit(max(listed, 8*int64(known())))); err != nil {
			return nil, fmt.Errorf("listing %s in %q: %w", gvk.Kind, namespace, err)
		}
		if list.Continue != "" {
			return nil, ErrTooMany
		}
		versions := make(map[string]Version, len(list.Items))
		for i := range list.Items {
			if list.Items[i].DeletionTimestamp == nil {
				versions[list.Items[i].Name] = VersionOf(&list.Items[i])
			}
		}
		return versions, nil
	})
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
	if of.refused != nil && time.Since(of.begun) < refusedFor {
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

// isRefusal reports whether a list will be refused again.
func isRefusal(err error) bool {
	return errors.Is(err, ErrTooMany) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) ||
		apierrors.IsNotFound(err) || meta.IsNoMatchError(err)
}
