package feed

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Releases stand still if their controller does not renew its lease, or has given it up. The clock
// of another machine may be wrong by minutes.
func TestLeaders(t *testing.T) {
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	lease := func(name, holder string, ago time.Duration) coordinationv1.Lease {
		at := metav1.NewMicroTime(noon.Add(-ago))
		return coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "tranche-system", Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &at},
		}
	}
	of := func(all ...coordinationv1.Lease) []coordinationv1.Lease { return all }
	const one, other = "tranche-controller", "tranche-controller-0123abcd"
	for _, tt := range []struct {
		reason      string
		first, then []coordinationv1.Lease // half a minute apart
		want        string                 // empty: all is well
	}{
		{"it is renewed", of(lease(one, "a", 1)), of(lease(one, "a", -29*time.Second)), ""},
		{"by a clock that is late", of(lease(one, "a", 5*time.Minute)), of(lease(one, "a", 4*time.Minute)), ""},
		{"it is not renewed", of(lease(one, "a", 0)), of(lease(one, "a", 0)),
			"The controller has not renewed its lease since 2026-07-01T12:00:00Z"},
		{"it was dead before", nil, of(lease(one, "a", time.Hour)), "The controller has not renewed its lease since 2026-07-01T11:00:00Z"},
		{"it has ended", nil, of(lease(one, "", time.Hour)), "No controller has had the lease since 2026-07-01T11:00:00Z"},
		{"one of two", of(lease(one, "a", 0)), of(lease(one, "a", 0), lease(other, "b", 0)), "One of the controllers"},
		{"one that is not used any more", nil, of(lease(one, "a", 0), lease(other, "", time.Hour)), ""},
		{"a lease of another program", nil, of(lease("tranche-controller-syncs", "a", time.Hour)), ""},
		{"none", nil, nil, ""},
	} {
		var l leaders
		l.look(tt.first, noon)
		got := l.look(tt.then, noon.Add(30*time.Second))
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.reason, got, tt.want)
		}
	}
}
