package rollout_test

import (
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/rollout/clustertest"
	"github.com/tranche-dev/tranche/rollout/fromgit"
	"github.com/tranche-dev/tranche/rollout/impersonate"
)

// A list of ReplicaSets or records has what was written of its Deployment before, though the
// events of the watches come late.
func TestListsOfOwnWrites(t *testing.T) {
	t.Parallel()
	c := clustertest.Shared(t)
	ns := c.Namespace(t)
	must := (&env{T: t}).must
	own := rest.CopyConfig(c.Controller)
	for _, resource := range []string{"replicasets", "controllerrevisions"} {
		own.Wrap(late(resource, 700*time.Millisecond))
	}
	mgr, err := ctrl.NewManager(own, managerOptions(c.Scheme, ns, &fromgit.Releases{}))
	must(err)
	w, err := impersonate.NewClient(mgr)
	must(err)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(t.Context()) }()
	t.Cleanup(func() { must(<-ended) }) // the context ends before
	if !mgr.GetCache().WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not start")
	}
	ctx := impersonate.ForDeployment(t.Context(), types.NamespacedName{Namespace: ns, Name: "web"})
	meta := metav1.ObjectMeta{Namespace: ns, Name: "web-1"}
	labels := map[string]string{"app": "web", plan.LabelManagedBy: plan.ManagedBy, "tried": "yes"} // a record is in the cache by its label
	for name, written := range map[string]struct {
		object client.Object
		list   func() int // how many have the label tried
	}{
		"ReplicaSet": {
			&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{
				Replicas: ptr.To(int32(0)), Template: template("web", "v1"),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			}}, func() int {
				var list appsv1.ReplicaSetList
				must(w.List(ctx, &list, client.InNamespace(ns), client.HasLabels{"tried"}))
				return len(list.Items)
			},
		},
		"ControllerRevision": {&appsv1.ControllerRevision{ObjectMeta: meta, Data: runtime.RawExtension{Raw: []byte("{}")}}, func() int {
			var list appsv1.ControllerRevisionList
			must(w.List(ctx, &list, client.InNamespace(ns), client.HasLabels{"tried"}))
			return len(list.Items)
		}},
	} {
		has := func(after string, want int) {
			t.Helper()
			if got := written.list(); got != want {
				t.Errorf("%s: after %s the list has %d, want %d", name, after, got, want)
			}
		}
		label := func(value string) {
			t.Helper()
			patch := []byte(`{"metadata":{"labels":{"tried":` + value + `}}}`)
			must(w.Patch(ctx, written.object, client.RawPatch(types.MergePatchType, patch)))
		}
		has("nothing", 0) // the watch begins
		written.object.SetLabels(maps.Clone(labels))
		must(w.Create(ctx, written.object))
		has("a creation", 1)
		label("null")
		has("a patch", 0)
		label(`"again"`)
		has("another patch", 1)
		must(w.Delete(ctx, written.object))
		has("a deletion", 0)
	}
}
