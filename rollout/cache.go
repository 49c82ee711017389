package rollout

import (
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/records"
)

// CacheOptions is what the reconciler needs of a manager's cache: no pod, no
// managedFields, and of ControllerRevisions only its own.
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.ControllerRevision{}: {Label: records.Selector},
		},
	}
}
