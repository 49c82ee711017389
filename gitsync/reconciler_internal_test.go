package gitsync

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tranche-dev/tranche/gitsync/turns"
)

// The event of a deletion may begin the sync that it then cuts short. The queue has nothing
// of the source after that.
func TestReconcile_CutShort(t *testing.T) {
	turns := turns.New(1)
	_, done, err := turns.Working(t.Context(), "a") // another sync of its namespace works
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	name := types.NamespacedName{Namespace: "a", Name: "a"}
	r := &reconciler{turns: turns}
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			default:
				turns.Cut(name) // it has no effect before the sync begins
			}
		}
	}()
	result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: name})
	close(ended)
	if err != nil || result.RequeueAfter <= 0 {
		t.Errorf("the source is not synced again: %+v, %v", result, err)
	}
}
