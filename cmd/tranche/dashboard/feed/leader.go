package feed

import (
	"context"
	"regexp"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leaseNamed matches the names of the leases of controllers.
var leaseNamed = regexp.MustCompile(`^tranche-controller(-[0-9a-f]{8})?$`)

const (
	// silentFor is how long a controller may not renew its lease, as seen here. It renews it each
	// few seconds, and another one takes it after 15.
	silentFor = 30 * time.Second
	// longAgo is how old a lease may be by its own time. The clocks of machines differ.
	longAgo = 10 * time.Minute
)

// leaders is what is known of the leases of controllers.
type leaders struct{ seen map[client.ObjectKey]renewal }

type renewal struct {
	renewed time.Time // by the clock of the controller
	at      time.Time // when that was seen first
}

// look says what follows from the leases: no controller moves some releases. It is empty if one
// does, and if no controller has a lease: one may run without.
func (l *leaders) look(leases []coordinationv1.Lease, now time.Time) string {
	seen := map[client.ObjectKey]renewal{}
	alive := false
	var dead, left time.Time // the last of each
	for i := range leases {
		of := &leases[i]
		if !leaseNamed.MatchString(of.Name) || of.Spec.RenewTime == nil {
			continue
		}
		r, key := renewal{of.Spec.RenewTime.Time, now}, client.ObjectKeyFromObject(of)
		if known, ok := l.seen[key]; ok && known.renewed.Equal(r.renewed) {
			r.at = known.at
		}
		seen[key] = r
		switch {
		case ptr.Deref(of.Spec.HolderIdentity, "") == "": // its controller has ended
			left = latest(left, r.renewed)
		case now.Sub(r.at) >= silentFor, now.Sub(r.renewed) >= longAgo:
			dead = latest(dead, r.renewed)
		default:
			alive = true
		}
	}
	l.seen = seen
	const then = " releases stand still, unless a controller without a lease runs. See tranche doctor."
	switch {
	case !dead.IsZero() && alive:
		return "One of the controllers has not renewed its lease since " + dead.UTC().Format(time.RFC3339) + ". Its" + then
	case !dead.IsZero():
		return "The controller has not renewed its lease since " + dead.UTC().Format(time.RFC3339) + ". All" + then
	case !alive && !left.IsZero():
		return "No controller has had the lease since " + left.UTC().Format(time.RFC3339) + ". All" + then
	}
	return ""
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// FollowLeaders looks at the leases of controllers, until the context ends. Without the right to
// list them in all namespaces it looks in one.
func (c *Cluster) FollowLeaders(ctx context.Context, from client.Reader, namespace string, every time.Duration) {
	var known leaders
	for tick := time.NewTicker(every); ; {
		var list coordinationv1.LeaseList
		err := from.List(ctx, &list)
		if apierrors.IsForbidden(err) {
			err = from.List(ctx, &list, client.InNamespace(namespace))
		}
		if err == nil {
			c.SetStill(known.look(list.Items, time.Now()))
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}
