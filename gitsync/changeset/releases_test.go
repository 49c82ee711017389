package changeset

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// A release has the labels that its source is selected by, and not those of its
// own by which another controller would have it.
func TestShardOfARelease(t *testing.T) {
	selector, err := labels.Parse("shard!=b,tier")
	if err != nil {
		t.Fatal(err)
	}
	br := &v1alpha1.BatchRelease{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"shard": "b", "app": "web"}}}
	gs := &v1alpha1.GitSource{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"tier": "one", "team": "a"}}}
	Shard(selector, gs, br)
	if want := (labels.Set{"tier": "one", "app": "web"}); !labels.Equals(want, br.Labels) {
		t.Errorf("labels are %v, want %v", br.Labels, want)
	}
}
