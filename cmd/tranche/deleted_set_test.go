package main

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// docs/operating.md says what a deletion of a ReplicaSet in the middle of a release does.
// The policy refuses it. If it passes, the release comes back to its step from the record
// of the stable template, and no gate opens. With the controller down the native
// controller brings the other revision up, and it stays there until then.
func TestReplicaSetDeleted(t *testing.T) {
	t.Parallel()
	s := envOf(t, "web")
	stop := s.process(s.ownOnly())
	s.follow("source", ".", s.own)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})
	s.replace("deployment.yaml", "web:v1", "web:v2")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})

	s.c.Guard(t, s.ns)
	clustertest.Wait(t, "the policy to refuse", func() error {
		if out, err := s.c.Kubectl(t, "delete", "replicaset", s.setOf("v1"), "-n", s.ns, "--dry-run=server"); err == nil {
			return fmt.Errorf("it passes: %s", out)
		}
		return nil
	})
	if out, err := s.c.Kubectl(t, "delete", "replicaset", s.setOf("v1"), "-n", s.ns); err == nil ||
		!strings.Contains(out, "held for a release in batches") {
		t.Errorf("%v: %s", err, out)
	}

	const passes = "--as=system:serviceaccount:kube-system:generic-garbage-collector"
	for _, tag := range []string{"v1", "v2"} {
		if out, err := s.c.Kubectl(t, "delete", "replicaset", s.setOf(tag), "-n", s.ns, passes); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
		t.Logf("the one of %s was deleted:\n%s", tag, s.w.Timeline())
	}

	stop()
	if out, err := s.c.Kubectl(t, "delete", "replicaset", s.setOf("v1"), "-n", s.ns, passes); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	clustertest.Wait(t, "the native controller to bring v2 up", func() error {
		if got := s.pods("web"); got["v2"] != 10 {
			return fmt.Errorf("pods %v", got)
		}
		return nil
	})
	s.process(s.ownOnly())
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(".", "web", 1)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	s.untouched("web")
}

// setOf is the name of the ReplicaSet of a tag.
func (s *env) setOf(tag string) string {
	s.Helper()
	var sets appsv1.ReplicaSetList
	s.must(s.c.Client.List(s.Context(), &sets, client.InNamespace(s.ns)))
	for _, rs := range sets.Items {
		if strings.HasSuffix(rs.Spec.Template.Spec.Containers[0].Image, ":"+tag) {
			return rs.Name
		}
	}
	s.Fatalf("there is no ReplicaSet of %s", tag)
	return ""
}
