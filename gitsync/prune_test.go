package gitsync

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/gitsync/prune"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// An object that was created again since it was read is not the one that was to be
// deleted.
func TestDeleteOnly(t *testing.T) {
	c := clustertest.Shared(t)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace(t), Name: "a"}}
	makeAnew := func() *unstructured.Unstructured {
		t.Helper()
		cm.UID, cm.ResourceVersion = "", ""
		if err := c.Client.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
		live, err := inventory.Get(t.Context(), c.Client, inventory.Entry{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: cm.Namespace, Name: cm.Name})
		if err != nil {
			t.Fatal(err)
		}
		return live
	}
	former := makeAnew()
	if err := inventory.Delete(t.Context(), c.Client, former); err != nil {
		t.Fatal(err)
	}
	now := makeAnew()
	if err := inventory.Delete(t.Context(), c.Client, former); !isConflict(err) {
		t.Errorf("deleting the former one: %v", err)
	}
	if err := inventory.Delete(t.Context(), c.Client, now); err != nil {
		t.Errorf("the new one: %v", err)
	}
}

// meddling lets another write come before the first deletion.
type meddling struct {
	client.Client
	other func() error
}

func (m *meddling) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if other := m.other; other != nil {
		m.other = nil
		if err := other(); err != nil {
			return err
		}
	}
	return m.Client.Delete(ctx, o, opts...)
}

// A ReplicaSet that a Deployment adopts after it was read is not deleted.
func TestPrune_AdoptedMeanwhile(t *testing.T) {
	c := clustertest.Shared(t)
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "flow"}}
	for name, tt := range map[string]struct {
		change func(cm, owner *corev1.ConfigMap)
		left   string
	}{
		"adopted": {func(cm, owner *corev1.ConfigMap) {
			yes := true
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: &yes}}
		}, "it is controlled by ConfigMap owner"},
		"another change": {func(cm, _ *corev1.ConfigMap) { cm.Data = map[string]string{"a": "b"} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace(t), Name: "a", Labels: inventory.Labels(gs)}}
			owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cm.Namespace, Name: "owner"}}
			for _, o := range []*corev1.ConfigMap{cm, owner} {
				if err := c.Client.Create(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			as := &meddling{c.Client, func() error {
				tt.change(cm, owner)
				return c.Client.Update(t.Context(), cm)
			}}
			e := inventory.Entry{GVK: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Namespace: cm.Namespace, Name: cm.Name}
			result, err := prune.Run(t.Context(), prune.Input{Source: gs, As: as, Own: c.Client}, []inventory.Entry{e})
			if err != nil || as.other != nil {
				t.Fatalf("%v, changed: %t", err, as.other == nil)
			}
			because := ""
			for _, l := range result.Left {
				because += l.Because
			}
			if because != tt.left || len(result.Kept) > 0 {
				t.Errorf("left %q, want %q; kept %v", because, tt.left, result.Kept)
			}
			err = c.Client.Get(t.Context(), client.ObjectKeyFromObject(cm), cm)
			if gone := apierrors.IsNotFound(err); gone != (tt.left == "") {
				t.Errorf("%v after the deletion", err)
			}
		})
	}
}
