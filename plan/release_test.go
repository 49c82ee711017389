package plan_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A plan of a GitSource goes before one made by hand, then the older one, then the first
// by name.
func TestComparePlans(t *testing.T) {
	at := func(name, source string, second int64) *v1alpha1.BatchRelease {
		br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(second, 0))}}
		if source != "" {
			br.Labels = map[string]string{v1alpha1.LabelSource: source}
		}
		return br
	}
	want := []string{"first", "a", "b", "old", "new"}
	plans := []*v1alpha1.BatchRelease{at("new", "", 2), at("b", "shop", 9), at("first", "other", 8), at("old", "", 1), at("a", "shop", 9)}
	slices.SortFunc(plans, plan.ComparePlans)
	for i, p := range plans {
		if p.Name != want[i] {
			t.Errorf("%d: %s, want %s", i, p.Name, want[i])
		}
	}
}
