// Package kubeversion reads the version of the cluster. The names of new revisions depend on
// it, and Tranche refuses a cluster that is too old.
package kubeversion

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Oldest is the minor version of the oldest Kubernetes that Tranche works on. The tests run on it
// and on all later ones, and package plan knows the types of pod templates back to it.
const Oldest = 34

// interval is how often the version is read again. It changes with an upgrade of the cluster.
const interval = time.Minute

// Minor returns the minor version of a cluster: 36 for Kubernetes 1.36 and 1.36+. It
// returns an error for a cluster that Tranche does not work on.
func Minor(server discovery.ServerVersionInterface) (int, error) {
	v, err := server.ServerVersion()
	if err != nil {
		return 0, fmt.Errorf("reading the version of the cluster: %w", err)
	}
	major, majorErr := strconv.Atoi(v.Major)
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if err != nil || majorErr != nil {
		return 0, fmt.Errorf("reading the version of the cluster: %q.%q is not a version", v.Major, v.Minor)
	}
	if major != 1 || minor < Oldest {
		return 0, fmt.Errorf("the cluster runs Kubernetes %d.%d (%s), and Tranche needs 1.%d or later; upgrade the cluster first",
			major, minor, v.GitVersion, Oldest)
	}
	return minor, nil
}

// Version is the version of a cluster as it was read last. As a runnable of a manager it is
// read again each minute.
type Version struct {
	server discovery.ServerVersionInterface
	minor  atomic.Int32
}

// Read reads the version of a cluster. It returns the errors of [Minor].
func Read(server discovery.ServerVersionInterface) (*Version, error) {
	minor, err := Minor(server)
	if err != nil {
		return nil, err
	}
	v := &Version{server: server}
	v.minor.Store(int32(minor))
	return v, nil
}

// Minor returns the minor version: 36 for Kubernetes 1.36.
func (v *Version) Minor() int { return int(v.minor.Load()) }

// NeedLeaderElection is false, since a controller that becomes leader at once needs the version.
func (v *Version) NeedLeaderElection() bool { return false }

// Start reads the version again and again until the context ends.
func (v *Version) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, v.refresh, interval)
	return nil
}

// refresh reads the version. It keeps the last one when it cannot, or when the cluster was
// downgraded too far. A release under way goes on.
func (v *Version) refresh(context.Context) {
	log := ctrl.Log.WithName("kubeversion")
	minor, err := Minor(v.server)
	if err != nil {
		log.Error(err, "Kept the last version of the cluster", "minor", v.Minor())
		return
	}
	if last := v.minor.Swap(int32(minor)); int(last) != minor {
		log.Info("Cluster was upgraded", "from", last, "to", minor)
	}
}
