package rollout

import (
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/records"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/fromgit"
)

// CacheOptions is what the reconciler needs of a manager's cache: no pod, no
// managedFields, and of ControllerRevisions only its own. The cache notes in fromGit what the
// managedFields of BatchReleases say.
func CacheOptions(fromGit *fromgit.Releases) cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.ControllerRevision{}: {Label: records.Selector},
			&v1alpha1.BatchRelease{}:     {Transform: fromGit.Transform},
		},
	}
}
