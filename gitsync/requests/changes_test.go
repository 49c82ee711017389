package requests_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/requests"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// The sync of a source ends when the source does, whether its deletion was seen before or
// not.
func TestChanges_CutTheSyncOfADeletedSource(t *testing.T) {
	source := func(deleting bool) *v1alpha1.GitSource {
		gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "git", Finalizers: []string{"tranche.dev/gitsync"}}}
		if deleting {
			gs.DeletionTimestamp = &metav1.Time{}
		}
		return gs
	}
	cut := 0
	w := &requests.Watches{Pending: &requests.Pending{}, Cut: func(types.NamespacedName) { cut++ }}
	h, q := w.Changes(), workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	for _, c := range []struct {
		name   string
		happen func()
		want   bool
	}{
		{"it comes", func() { h.Create(t.Context(), event.CreateEvent{Object: source(false)}, q) }, false},
		{"it changes", func() {
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: source(false), ObjectNew: source(false)}, q)
		}, false},
		{"it is being deleted", func() { h.Update(t.Context(), event.UpdateEvent{ObjectOld: source(false), ObjectNew: source(true)}, q) }, true},
		{"it is gone at once", func() { h.Delete(t.Context(), event.DeleteEvent{Object: source(false)}, q) }, true},
	} {
		cut = 0
		c.happen()
		if (cut > 0) != c.want || q.Len() != 1 {
			t.Errorf("%s: cut %d times, %d queued", c.name, cut, q.Len())
		}
	}
}
