package impersonate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// deploymentKey is the key of a context's value: the Deployment that a round is about.
type deploymentKey struct{}

// ForDeployment returns a context for the reads and writes of one Deployment. A list of ReplicaSets
// or ControllerRevisions by the client of [NewClient] has what was written in a context of the same
// Deployment before. Any other list is as the cache has it.
func ForDeployment(ctx context.Context, deployment types.NamespacedName) context.Context {
	return context.WithValue(ctx, deploymentKey{}, deployment)
}

// ownWrites lets the reads of a Deployment wait for its own writes, and not for those of others.
// The consistent client below does so by itself for an object. A list of it waits for all
// writes of the kind that are under way, in all namespaces. If one is slow, as behind a slow
// admission webhook, no release of any other namespace would go on.
type ownWrites struct {
	client.Client

	mu sync.Mutex
	// written has what a list may not have yet, by Deployment, and the number of the write.
	written map[types.NamespacedName]map[object]int
	writes  int
}

type object struct {
	kind string
	name types.NamespacedName
}

// The kinds that are listed after they were written.
const (
	replicaSet = "ReplicaSet"
	revision   = "ControllerRevision"
)

// empty returns an object to read one of a kind into.
func empty(kind string) client.Object {
	if kind == replicaSet {
		return &appsv1.ReplicaSet{}
	}
	return &appsv1.ControllerRevision{}
}

// note remembers that an object is written, before it is: the answer may be lost.
func (c *ownWrites) note(ctx context.Context, o client.Object) {
	deployment, ok := ctx.Value(deploymentKey{}).(types.NamespacedName)
	if !ok {
		return
	}
	w := object{name: client.ObjectKeyFromObject(o)}
	switch o.(type) {
	case *appsv1.ReplicaSet:
		w.kind = replicaSet
	case *appsv1.ControllerRevision:
		w.kind = revision
	default:
		return // it is read by its name
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written[deployment] == nil {
		c.written[deployment] = map[object]int{}
	}
	c.writes++
	c.written[deployment][w] = c.writes
}

// of returns a copy of what was written of a Deployment.
func (c *ownWrites) of(deployment types.NamespacedName) map[object]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.written[deployment])
}

// seen forgets a write, unless the object was written again.
func (c *ownWrites) seen(deployment types.NamespacedName, w object, number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.written[deployment][w] != number {
		return
	}
	delete(c.written[deployment], w)
	if len(c.written[deployment]) == 0 {
		delete(c.written, deployment)
	}
}

// List waits until the cache has what was written of the Deployment of the context, and reads.
func (c *ownWrites) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind := ""
	switch list.(type) {
	case *appsv1.ReplicaSetList:
		kind = replicaSet
	case *appsv1.ControllerRevisionList:
		kind = revision
	}
	deployment, _ := ctx.Value(deploymentKey{}).(types.NamespacedName)
	for w, number := range c.of(deployment) {
		if w.kind != kind {
			continue
		}
		if err := client.IgnoreNotFound(c.Get(ctx, w.name, empty(kind))); err != nil {
			return fmt.Errorf("waiting for %s %s, which was written before: %w", kind, w.name, err)
		}
		c.seen(deployment, w, number)
	}
	return c.Client.List(ctx, list, append(slices.Clip(opts), client.DisableReadYourWritesConsistency)...)
}

func (c *ownWrites) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	c.note(ctx, o)
	return c.Client.Create(ctx, o, opts...)
}

func (c *ownWrites) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	c.note(ctx, o)
	return c.Client.Update(ctx, o, opts...)
}

func (c *ownWrites) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	c.note(ctx, o)
	return c.Client.Patch(ctx, o, patch, opts...)
}

func (c *ownWrites) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	c.note(ctx, o)
	return c.Client.Delete(ctx, o, opts...)
}
