// Package hashtext writes a pod template as the Deployment controller does before it hashes it.
package hashtext

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// since names the fields below PodTemplateSpec that a version of Kubernetes has brought.
// Older versions do not know them, so they are not part of their hashes. The list goes
// back to 1.34.
var since = map[string]int{
	"v1.Container.RestartPolicyRules":                34,
	"v1.EphemeralContainerCommon.RestartPolicyRules": 34,
	"v1.EnvVarSource.FileKeyRef":                     34,
	"v1.PodSpec.HostnameOverride":                    34,
	"v1.VolumeProjection.PodCertificate":             34,
	"v1.PodCertificateProjection.UserAnnotations":    35,
	"v1.PodSpec.SchedulingGroup":                     36,
	"v1.ClusterTrustBundleProjection.User":           37,
	"v1.ConfigMapVolumeSource.DefaultUser":           37,
	"v1.DownwardAPIVolumeFile.User":                  37,
	"v1.DownwardAPIVolumeSource.DefaultUser":         37,
	"v1.EmptyDirVolumeSource.Mode":                   37,
	"v1.GRPCAction.Mode":                             37,
	"v1.HTTPGetAction.Protocol":                      37,
	"v1.KeyToPath.User":                              37,
	"v1.PodCertificateProjection.User":               37,
	"v1.PodSpec.EvictionResponders":                  37,
	"v1.ProjectedVolumeSource.DefaultUser":           37,
	"v1.SecretVolumeSource.DefaultUser":              37,
	"v1.ServiceAccountTokenProjection.User":          37,
	"v1.VolumeMount.BindMountOptions":                37,
}

// renamed are fields that took the place of another one: 1.35 alone had
// workloadRef where 1.36 has schedulingGroup.
var renamed = map[int]map[string]string{
	35: {"v1.PodSpec.SchedulingGroup": "WorkloadRef:(*v1.WorkloadReference)<nil>"},
}

// dumper writes a value as k8s.io/utils/dump.ForHash does: in the format %#v of
// davecgh/go-spew with sorted keys, no methods and no addresses. It leaves out empty
// fields that Kubernetes 1.minor does not know. A test compares the two.
type dumper struct {
	w     io.Writer
	minor int
}

// Write writes a template for the hash of Kubernetes 1.minor. Minor 0 stands for the version that
// this program is built with. A hash never fails, so no error is returned.
func Write(w io.Writer, t *corev1.PodTemplateSpec, minor int) { dumper{w: w, minor: minor}.dump(t) }

func (d dumper) dump(t *corev1.PodTemplateSpec) { d.value(reflect.ValueOf(*t), true) }

func (d dumper) text(s string) { _, _ = io.WriteString(d.w, s) } // a hash never fails

func (d dumper) value(v reflect.Value, typed bool) {
	if v.Kind() == reflect.Pointer {
		d.pointer(v, typed)
		return
	}
	if typed {
		d.text("(" + v.Type().String() + ")")
	}
	switch v.Kind() {
	case reflect.Slice:
		if v.IsNil() {
			d.text("<nil>")
			return
		}
		d.text("[")
		for i := range v.Len() {
			d.space(i)
			d.value(v.Index(i), false)
		}
		d.text("]")
	case reflect.Map:
		d.mapping(v)
	case reflect.Struct:
		d.structure(v)
	case reflect.String:
		d.text(v.String())
	case reflect.Bool:
		d.text(fmt.Sprint(v.Bool()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		d.text(fmt.Sprint(v.Uint()))
	default: // signed integers; templates have no other kinds
		d.text(fmt.Sprint(v.Int()))
	}
}

func (d dumper) space(i int) {
	if i > 0 {
		d.text(" ")
	}
}

func (d dumper) pointer(v reflect.Value, typed bool) {
	switch {
	case v.IsNil() && typed:
		d.text("(" + v.Type().String() + ")<nil>")
	case v.IsNil():
		d.text("<nil>")
	case typed:
		d.text("(*" + v.Type().Elem().String() + ")")
		d.value(v.Elem(), false)
	default:
		d.text("<*>")
		d.value(v.Elem(), false)
	}
}

func (d dumper) mapping(v reflect.Value) {
	if v.IsNil() {
		d.text("<nil>")
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	d.text("map[")
	for i, k := range keys {
		d.space(i)
		d.text(k.String() + ":")
		d.value(v.MapIndex(k), false)
	}
	d.text("]")
}

func (d dumper) structure(v reflect.Value) {
	d.text("{")
	written := 0
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name := v.Type().String() + "." + field.Name
		if d.minor > 0 && d.minor < since[name] && v.Field(i).IsZero() {
			if other := renamed[d.minor][name]; other != "" {
				d.space(written)
				d.text(other)
				written++
			}
			continue
		}
		d.space(written)
		d.text(field.Name + ":")
		d.value(v.Field(i), true)
		written++
	}
	d.text("}")
}
