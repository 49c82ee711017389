package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A quota refuses the record of a release, and the update revision has a ReplicaSet of before. The
// native controller would bring that to all replicas, under a hold that lasts, when N is 0 for a
// while (H4). So nothing is held.
func TestRecordRefused(t *testing.T) {
	t.Parallel()
	s := newEnv(t)
	startControllerIn(t, s.c, s.ns)
	s.install(4)
	for _, tag := range []string{"v2", "v1"} {
		s.kubectl("-n", s.ns, "set", "image", "deployment/web", "web=registry.example.org/web:"+tag)
		s.become(map[string]int32{tag: 4})
	}
	s.plan("1", "100%")
	s.completed("web")
	const quota = "count/controllerrevisions.apps"
	s.kubectl("-n", s.ns, "create", "quota", "records", fmt.Sprintf("--hard=%s=%d", quota, len(s.records())))
	clustertest.Wait(s, "the quota to count", func() error {
		var q corev1.ResourceQuota
		s.must(s.c.Client.Get(t.Context(), client.ObjectKey{Namespace: s.ns, Name: "records"}, &q))
		if used := q.Status.Used[quota]; used.Value() == 0 {
			return fmt.Errorf("%+v", q.Status)
		}
		return nil
	})
	s.bring("v2")
	s.waitFor("WriteRefused", 0, map[string]int32{"v1": 4})
	if m := s.release().Status.Message; !strings.Contains(m, "ControllerRevision") || !strings.Contains(m, "exceeded quota: records") {
		t.Errorf("it says %q", m)
	}
	s.untouched()
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=0")
	s.become(map[string]int32{})
	s.kubectl("-n", s.ns, "scale", "deployment/web", "--replicas=4")
	s.become(map[string]int32{"v1": 4})
	s.kubectl("-n", s.ns, "delete", "quota", "records")
	s.waitFor("WaitingForApproval", 0, map[string]int32{"v1": 3, "v2": 1})
}
