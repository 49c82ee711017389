package apply

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// When a source looks changes nothing of what it applies: what was applied whole still is.
func TestDigest(t *testing.T) {
	hour := metav1.Duration{Duration: time.Hour}
	was := Digest(&v1alpha1.GitSourceSpec{Path: "deploy"})
	for _, tc := range []struct {
		why  string
		spec v1alpha1.GitSourceSpec
		same bool
	}{
		{"interval", v1alpha1.GitSourceSpec{Path: "deploy", Interval: hour}, true},
		{"retryInterval", v1alpha1.GitSourceSpec{Path: "deploy", RetryInterval: &hour}, true},
		{"path", v1alpha1.GitSourceSpec{Path: "other"}, false},
	} {
		if same := Digest(&tc.spec) == was; same != tc.same {
			t.Errorf("with another %s it is the same: %t", tc.why, same)
		}
	}
}

// The API server sets the finalizer of a foreground deletion. The objects that it waits for
// are those to look at.
func TestFinalizersAdvice(t *testing.T) {
	for _, tc := range []struct {
		finalizers []string
		want       string
	}{
		{[]string{"foregroundDeletion"}, "waits for the objects that it owns"},
		{[]string{"example.org/a", "foregroundDeletion"}, "waits for the objects that it owns"},
		{[]string{"example.org/a"}, "see to who has set them"},
	} {
		if got := FinalizersAdvice(tc.finalizers); !strings.Contains(got, tc.want) {
			t.Errorf("%v: %q, want %q", tc.finalizers, got, tc.want)
		}
	}
}
