package inventory

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

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
			{
				Name:         "4",
				VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "csi"}}},
			},
			{Name: "5", VolumeSource: corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure"}}},
			{
				Name:         "6",
				VolumeSource: corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: &corev1.LocalObjectReference{Name: "ceph"}}},
			},
		},
	}}
	used := Used{}
	if err := used.AddTemplate("ReplicaSet shop/web-1", "shop", template); err != nil {
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
