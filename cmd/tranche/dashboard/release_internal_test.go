package dashboard

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A release that was deleted and made again does not have the events of the earlier one.
func TestEventsOf_EarlierObject(t *testing.T) {
	about := func(name string, uid types.UID) *eventsv1.Event {
		return &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Note: name,
			Regarding: corev1.ObjectReference{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "BatchRelease", Namespace: "shop", Name: "web", UID: uid,
			},
		}
	}
	c := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(about("earlier", "1"), about("own", "2")).Build()
	found, err := (&eventsOf{"BatchRelease", "shop", "2"}).read(t.Context(), c)
	if err != nil || len(found) != 1 || found[0].Message != "own" {
		t.Errorf("%+v, %v", found, err)
	}
}
