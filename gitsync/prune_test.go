package gitsync

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/inventory"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

func objectOf(kind string, edit ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	group, kind, ok := strings.Cut(kind, ":")
	if !ok {
		group, kind = "", group
	}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	u.SetNamespace("shop")
	u.SetName("a")
	u.SetLabels(map[string]string{v1alpha1.LabelSource: "shop", v1alpha1.LabelSourceNamespace: "flow", "app": "a"})
	for _, e := range edit {
		e(u)
	}
	return u
}

func annotated(key, value string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.SetAnnotations(map[string]string{key: value}) }
}

func controlled(u *unstructured.Unstructured) {
	yes := true
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "1", Controller: &yes}})
}

func TestJudge(t *testing.T) {
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "flow"}}
	used := usedNames{"ConfigMap shop/a": "ReplicaSet shop/web-1"}
	tests := []struct {
		reason string
		live   *unstructured.Unstructured
		want   verdict
	}{
		{"ours, and nobody needs it", objectOf("Service"), remove},
		{"the same name in another kind is used", objectOf("Secret"), remove},
		{"pods refer to it", objectOf("ConfigMap"), keepForNow},
		{"somebody took our labels away", objectOf("Service", func(u *unstructured.Unstructured) { u.SetLabels(nil) }), forget},
		{"another source of the same name", objectOf("Service", func(u *unstructured.Unstructured) {
			u.SetLabels(map[string]string{v1alpha1.LabelSource: "shop", v1alpha1.LabelSourceNamespace: "other"})
		}), forget},
		{"the owner said no", objectOf("Service", annotated(v1alpha1.AnnotationPrune, "disabled")), forget},
		{"the owner said not to touch it", objectOf("Service", annotated(v1alpha1.AnnotationReconcile, "disabled")), forget},
		{"a claim has data", objectOf("PersistentVolumeClaim"), forget},
		{"a namespace has everything", objectOf("Namespace"), forget},
		{"a CRD has all its objects", objectOf("apiextensions.k8s.io:CustomResourceDefinition"), forget},
		{"the owner said yes", objectOf("PersistentVolumeClaim", annotated(v1alpha1.AnnotationPrune, "enabled")), remove},
		{"a Deployment bears no labels of ours, but our manager", objectOf("apps:Deployment", func(u *unstructured.Unstructured) {
			u.SetLabels(nil)
			u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: v1alpha1.ManagerGitSync, Operation: metav1.ManagedFieldsOperationApply}})
		}), remove},
		{"a Deployment that was made anew by another hand", objectOf("apps:Deployment"), forget},
		{"a Deployment has adopted it", objectOf("apps:ReplicaSet", controlled), forget},
		{"an operator has adopted it", objectOf("Service", controlled), forget},
		{"an owner that does not control it", objectOf("Service", func(u *unstructured.Unstructured) {
			u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "1"}})
		}), remove},
		{"a plan ends the hold of its Deployment", objectOf("tranche.dev:BatchRelease", controlled), remove},
		{"a namespace of another API is a plain object", objectOf("example.org:Namespace"), remove},
	}
	for _, tt := range tests {
		got, because := judge(tt.live, gs, used)
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.reason, got, tt.want)
		}
		if (because == "") != (got == remove) {
			t.Errorf("%s: says %q", tt.reason, because)
		}
	}
}

// What was made anew since it was looked at is not what was to be deleted.
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
			result, err := prune(t.Context(), pruner{gs: gs, as: as, own: c.Client}, []inventory.Entry{e})
			if err != nil || as.other != nil {
				t.Fatalf("%v, changed: %t", err, as.other == nil)
			}
			because := ""
			for _, l := range result.left {
				because += l.because
			}
			if because != tt.left || len(result.kept) > 0 {
				t.Errorf("left %q, want %q; kept %v", because, tt.left, result.kept)
			}
			err = c.Client.Get(t.Context(), client.ObjectKeyFromObject(cm), cm)
			if gone := apierrors.IsNotFound(err); gone != (tt.left == "") {
				t.Errorf("%v after the deletion", err)
			}
		})
	}
}

func TestUsedNames(t *testing.T) {
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{ref("pull")},
		InitContainers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("envfrom")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("envfrom")}},
		}}},
		Containers: []corev1.Container{{Env: []corev1.EnvVar{
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("key")}}},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("key")}}},
		}}},
		Volumes: []corev1.Volume{
			{Name: "1", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("volume")}}},
			{Name: "2", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
			{Name: "3", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("projected")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: ref("projected")}},
			}}}},
			{Name: "4", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "csi"}}}},
			{Name: "5", VolumeSource: corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure"}}},
			{Name: "6", VolumeSource: corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: &corev1.LocalObjectReference{Name: "ceph"}}}},
		},
	}}
	used := usedNames{}
	if err := used.addTemplate("ReplicaSet shop/web-1", "shop", template); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ConfigMap shop/envfrom", "ConfigMap shop/key", "ConfigMap shop/projected", "ConfigMap shop/volume",
		"Secret shop/azure", "Secret shop/ceph", "Secret shop/csi", "Secret shop/envfrom", "Secret shop/key",
		"Secret shop/projected", "Secret shop/pull", "Secret shop/volume",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(used))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
