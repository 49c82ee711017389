package fence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/failures"
	"github.com/tranche-dev/tranche/rollout/fence"
)

// apiServer has ReplicaSets by name.
type apiServer struct {
	client.Reader
	sets  map[string]*appsv1.ReplicaSet
	fails error
	reads int
}

func (s *apiServer) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.reads++
	if s.fails != nil {
		return s.fails
	}
	rs, ok := s.sets[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "replicasets"}, key.Name)
	}
	rs.DeepCopyInto(o.(*appsv1.ReplicaSet))
	return nil
}

func replicaSet(name string, uid types.UID, size int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid},
		Spec:       appsv1.ReplicaSetSpec{Replicas: ptr.To(size)},
	}
}

func deployment(generation, seen int64) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web", Generation: generation}}
	d.Status.ObservedGeneration = seen
	return d
}

// The cache has web-1 with 2 pods and web-2 with 4; an empty one is of no interest.
func TestSizes(t *testing.T) {
	observed := []*appsv1.ReplicaSet{replicaSet("web-0", "0", 0), replicaSet("web-1", "1", 2), replicaSet("web-2", "2", 4)}
	for name, tc := range map[string]struct {
		sets []*appsv1.ReplicaSet
		want bool // changed
	}{
		"as observed":                            {[]*appsv1.ReplicaSet{replicaSet("web-1", "1", 2), replicaSet("web-2", "2", 4)}, false},
		"the native controller has ended it":     {[]*appsv1.ReplicaSet{replicaSet("web-1", "1", 0), replicaSet("web-2", "2", 4)}, true},
		"one is deleted":                         {[]*appsv1.ReplicaSet{replicaSet("web-2", "2", 4)}, true},
		"one is deleted, and made again":         {[]*appsv1.ReplicaSet{replicaSet("web-1", "3", 2), replicaSet("web-2", "2", 4)}, true},
		"an empty one that was observed is gone": {[]*appsv1.ReplicaSet{replicaSet("web-1", "1", 2), replicaSet("web-2", "2", 4)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			api := &apiServer{sets: map[string]*appsv1.ReplicaSet{}}
			for _, rs := range tc.sets {
				api.sets[rs.Name] = rs
			}
			err := fence.New(api).Sizes(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, deployment(2, 2), observed)
			if got := errors.Is(err, failures.ErrChanged); got != tc.want || err != nil && !got {
				t.Errorf("got %v, want changed %t", err, tc.want)
			}
		})
	}
}

// The API server is asked until it agrees at a generation that the native controller has seen.
func TestSizes_OncePerGeneration(t *testing.T) {
	api := &apiServer{sets: map[string]*appsv1.ReplicaSet{"web-1": replicaSet("web-1", "1", 2)}}
	f, release := fence.New(api), client.ObjectKey{Namespace: "shop", Name: "web"}
	var got []string
	ask := func(d *appsv1.Deployment, size int32) {
		before := api.reads
		err := f.Sizes(t.Context(), release, d, []*appsv1.ReplicaSet{replicaSet("web-1", "1", size)})
		got = append(got, fmt.Sprintf("reads=%d ok=%t", api.reads-before, err == nil))
	}
	ask(deployment(2, 1), 2) // not seen yet
	ask(deployment(2, 2), 3) // not as observed
	ask(deployment(2, 2), 2)
	ask(deployment(2, 2), 2)
	ask(deployment(3, 3), 2)
	api.fails = errors.New("timeout")
	ask(deployment(4, 4), 2)
	api.fails = nil
	ask(deployment(4, 4), 2)
	f.Forget(release)
	ask(deployment(4, 4), 2)
	want := []string{
		"reads=1 ok=true", "reads=1 ok=false", "reads=1 ok=true", "reads=0 ok=true",
		"reads=1 ok=true", "reads=1 ok=false", "reads=1 ok=true", "reads=1 ok=true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
