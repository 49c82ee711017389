// Package fromgit remembers which BatchReleases were written by their GitSources. One that was
// restored from a back-up was not, and says what Git said then.
package fromgit

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Releases are the BatchReleases that their GitSources have written. The zero value has none.
type Releases struct {
	mu sync.Mutex
	of map[types.NamespacedName]types.UID
}

// Transform is that of a cache. It notes who has written an object that was read, and takes its
// managedFields off.
func (r *Releases) Transform(o any) (any, error) {
	if br, ok := o.(*v1alpha1.BatchRelease); ok && Wrote(br) {
		r.Add(br)
	}
	return cache.TransformStripManagedFields()(o)
}

// Wrote reports whether the managedFields of a BatchRelease have an apply of a GitSource. Its
// patches of annotations and its status say nothing of spec.
func Wrote(br metav1.Object) bool {
	return slices.ContainsFunc(br.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == "" && e.Manager == v1alpha1.ManagerGitSync && e.Operation == metav1.ManagedFieldsOperationApply
	})
}

// Has reports whether a BatchRelease was added. Another one of its name was not.
func (r *Releases) Has(br *v1alpha1.BatchRelease) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[client.ObjectKeyFromObject(br)] == br.UID
}

// Add adds a BatchRelease in place of another one of its name.
func (r *Releases) Add(br *v1alpha1.BatchRelease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[types.NamespacedName]types.UID{}
	}
	r.of[client.ObjectKeyFromObject(br)] = br.UID
}

// Forget removes a BatchRelease.
func (r *Releases) Forget(release types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, release)
}
