package hashtext

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/dump"
	"sigs.k8s.io/randfill"
)

// The dumper and k8s.io/utils/dump.ForHash agree on anything.
func TestDumpEqualsForHash(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.5).NumElements(0, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(100_000), resource.DecimalSI)
		},
	)
	for range 2000 {
		var template corev1.PodTemplateSpec
		fill.Fill(&template)
		var ours strings.Builder
		dumper{w: &ours}.dump(&template)
		if want := dump.ForHash(template); ours.String() != want {
			t.Fatalf("dump\n%s\nForHash\n%s", ours.String(), want)
		}
	}
}

// since names fields that exist, so that a typing error does not go unnoticed.
func TestSinceNamesFields(t *testing.T) {
	var all strings.Builder
	fill := randfill.NewWithSeed(1).NilChance(0).NumElements(1, 1).MaxDepth(14)
	var template corev1.PodTemplateSpec
	fill.Fill(&template)
	dumper{w: &all}.dump(&template)
	for name := range since {
		field := name[strings.LastIndex(name, ".")+1:]
		if !strings.Contains(all.String(), field+":") {
			t.Errorf("%s: there is no such field", name)
		}
	}
}
