//go:build matrix

package rollout_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// upgradeEnv names folders with the programs of versions of Kubernetes, in their order.
const upgradeEnv = "TRANCHE_TEST_UPGRADE"

// The cluster is upgraded at each gate of a release. An upgrade moves no pod, opens no gate and
// begins no release, though each version gives a revision another name. A rollback on the last
// version finds what was stable on the first.
func TestUpgradeOfTheCluster(t *testing.T) {
	versions := filepath.SplitList(os.Getenv(upgradeEnv))
	if len(versions) < 2 {
		t.Fatalf("%s names %d versions", upgradeEnv, len(versions))
	}
	t.Setenv(clustertest.Programs, versions[0])
	c := clustertest.Start(t)
	ns := c.Namespace(t)
	var before map[string]string
	for i, version := range versions {
		if i > 0 {
			c.Upgrade(t, version)
		}
		t.Run(filepath.Base(version), func(t *testing.T) {
			s := &env{T: t, c: c, ns: ns, w: c.Watch(t, ns), brought: map[string]int{"v1": 1}}
			startControllerIn(t, c, ns)
			if i == 0 {
				s.install(4)
				s.plan("1", "2", "3", "100%")
				s.waitFor(v1alpha1.ReasonReleaseCompleted, 3, nil)
				s.bring("v2")
			} else {
				s.looked(v1alpha1.ReasonWaitingForApproval, int32(i-1), map[string]int32{"v1": int32(4 - i), "v2": int32(i)})
				if diff := cmp.Diff(before, s.running()); diff != "" {
					t.Errorf("what runs (-before the upgrade +after):\n%s", diff)
				}
				s.approve(int32(i - 1))
			}
			s.waitFor(v1alpha1.ReasonWaitingForApproval, int32(i), map[string]int32{"v1": int32(3 - i), "v2": int32(i + 1)})
			before = s.running()
			if i < len(versions)-1 {
				return
			}
			s.bring("v1")
			s.waitFor(v1alpha1.ReasonReleaseCompleted, 3, map[string]int32{"v1": 4})
			s.untouched()
			if n := len(s.sets()); n != 2 {
				t.Errorf("%d ReplicaSets, of two revisions", n)
			}
			s.bring("v3")
			s.waitFor(v1alpha1.ReasonWaitingForApproval, 0, map[string]int32{"v1": 3, "v3": 1})
		})
	}
}
