package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/cmd/tranche/view"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Kinds says which kinds are read beside BatchReleases.
type Kinds struct{ Sources, Workloads, Events bool }

// Cluster keeps a feed of a cluster up to date. It has one informer for each kind.
type Cluster struct {
	*Feed
	health
	// Reader reads from the memory of the informers.
	Reader client.Reader
	Kinds  Kinds

	cache cache.Cache
	names sync.Mutex
	// of are the releases of a Deployment or of a GitSource.
	of map[string][]ID
	// from has the names in of by release.
	from map[ID][]string
}

// NewCluster returns the feed of some namespaces; none: of all.
func NewCluster(config *rest.Config, scheme *runtime.Scheme, namespaces []string, kinds Kinds) (*Cluster, error) {
	limited := map[string]cache.Config{}
	for _, name := range namespaces {
		limited[name] = cache.Config{}
	}
	made := &Cluster{Feed: New(), Kinds: kinds, of: map[string][]ID{}, from: map[ID][]string{}}
	config = rest.CopyConfig(config)
	config.Wrap(made.informers)
	c, err := cache.New(config, cache.Options{
		Scheme: scheme, DefaultNamespaces: limited, DefaultTransform: slim, ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("making the informers: %w", err)
	}
	made.cache, made.Reader = c, c
	return made, nil
}

// syncTimeout is how long the first reading of the cluster may take.
const syncTimeout = 2 * time.Minute

// Start reads the cluster, and then follows it until the context ends.
func (c *Cluster) Start(ctx context.Context) error {
	kinds := map[client.Object]func(client.Object, bool){&v1alpha1.BatchRelease{}: c.onRelease}
	if c.Kinds.Sources {
		kinds[&v1alpha1.GitSource{}] = c.onSource
	}
	if c.Kinds.Workloads {
		kinds[&appsv1.Deployment{}], kinds[&appsv1.ReplicaSet{}] = c.onWorkload, c.onWorkload
	}
	if c.Kinds.Events {
		kinds[&eventsv1.Event{}] = c.onEvent
	}
	go func() { _ = c.cache.Start(ctx) }()               // it ends with the context, and has no other error
	first, stop := context.WithTimeout(ctx, syncTimeout) // the cache itself goes on
	defer stop()
	for kind, follow := range kinds {
		informer, err := c.cache.GetInformer(first, kind)
		if err != nil {
			return fmt.Errorf("reading the cluster: %w", err)
		}
		registered, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { each(o, false, follow) },
			UpdateFunc: func(_, o any) { each(o, false, follow) },
			DeleteFunc: func(o any) { each(o, true, follow) },
		})
		if err != nil {
			return fmt.Errorf("reading the cluster: %w", err)
		}
		if !toolscache.WaitForCacheSync(first.Done(), registered.HasSynced) {
			return errors.New("reading the cluster: it did not answer in time")
		}
	}
	return nil
}

func each(o any, gone bool, follow func(client.Object, bool)) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	if object, ok := o.(client.Object); ok {
		follow(object, gone)
	}
}

func (c *Cluster) onRelease(o client.Object, gone bool) {
	br, ok := o.(*v1alpha1.BatchRelease)
	if !ok {
		return
	}
	id := ID{Releases, br.Namespace, br.Name}
	names := []string{"deployment " + br.Namespace + "/" + br.Spec.WorkloadRef.Name}
	if key := view.SourceKey(br); key.Name != "" {
		names = append(names, "source "+key.String())
	}
	c.names.Lock()
	for _, name := range c.from[id] {
		c.of[name] = slices.DeleteFunc(c.of[name], func(other ID) bool { return other == id })
		if len(c.of[name]) == 0 {
			delete(c.of, name)
		}
	}
	delete(c.from, id)
	if !gone {
		c.from[id] = names
		for _, name := range names {
			c.of[name] = append(c.of[name], id)
		}
	}
	c.names.Unlock()
	if gone {
		c.Delete(id)
		return
	}
	c.Put(id, view.NewRow(br))
}

// touch says that the releases of a Deployment or a source have changed.
func (c *Cluster) touch(name string) {
	c.names.Lock()
	ids := slices.Clone(c.of[name])
	c.names.Unlock()
	for _, id := range ids {
		c.Touch(id)
	}
}

func (c *Cluster) onSource(o client.Object, gone bool) {
	gs, ok := o.(*v1alpha1.GitSource)
	if !ok {
		return
	}
	id := ID{Sources, gs.Namespace, gs.Name}
	if gone {
		c.Delete(id)
	} else {
		c.Put(id, view.NewSourceRow(gs))
	}
	c.touch("source " + gs.Namespace + "/" + gs.Name)
}

func (c *Cluster) onWorkload(o client.Object, _ bool) {
	name := o.GetName()
	if owner := metav1.GetControllerOf(o); owner != nil {
		name = owner.Name
	}
	c.touch("deployment " + o.GetNamespace() + "/" + name)
}

func (c *Cluster) onEvent(o client.Object, _ bool) {
	e, ok := o.(*eventsv1.Event)
	if !ok || e.Regarding.GroupVersionKind().Group != v1alpha1.Group {
		return
	}
	switch e.Regarding.Kind {
	case "BatchRelease":
		c.Touch(ID{Releases, e.Regarding.Namespace, e.Regarding.Name})
	case "GitSource":
		c.touch("source " + e.Regarding.Namespace + "/" + e.Regarding.Name)
	}
}

// slim removes from an object what no page shows. Most of the memory of the server would be
// that otherwise.
func slim(o any) (any, error) {
	switch x := o.(type) {
	case *v1alpha1.GitSource: // its managed fields say when its status was written
		x.Status.Inventory = nil
		return x, nil
	case *v1alpha1.BatchRelease:
		x.Spec.Template = slimTemplate(x.Spec.Template)
		x.Status.Conditions = slices.Clip(x.Status.Conditions)
		slimRecords(x)
	case *appsv1.Deployment:
		x.Spec.Template = *slimTemplate(&x.Spec.Template)
		x.Annotations = nil
	case *appsv1.ReplicaSet:
		x.Spec.Template = *slimTemplate(&x.Spec.Template)
		x.Annotations = nil
	case *eventsv1.Event:
		if x.Regarding.GroupVersionKind().Group != v1alpha1.Group {
			x = &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: x.Name, Namespace: x.Namespace, ResourceVersion: x.ResourceVersion, UID: x.UID}}
			return x, nil
		}
	}
	if object, ok := o.(client.Object); ok {
		object.SetManagedFields(nil)
	}
	return o, nil
}

// slimRecords removes the single values of what was measured at steps that are over: 120 of
// each metric.
func slimRecords(br *v1alpha1.BatchRelease) {
	forget := func(records []v1alpha1.MetricRecord) {
		for i := range records {
			records[i].StableValues = nil
		}
	}
	for i := range br.Status.History {
		forget(br.Status.History[i].Analysis)
	}
	if a := br.Status.Analysis; a != nil {
		forget(a.Records)
	}
}

// slimTemplate keeps the names and images of the containers.
func slimTemplate(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if t == nil {
		return nil
	}
	images := func(all []corev1.Container) (kept []corev1.Container) {
		for _, c := range all {
			kept = append(kept, corev1.Container{Name: c.Name, Image: c.Image})
		}
		return kept
	}
	return &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: images(t.Spec.InitContainers), Containers: images(t.Spec.Containers),
	}}
}
