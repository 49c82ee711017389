package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/gitsync/gittest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// A CRD is replaced by one that lacks a field of a spec, while the controller runs and while it
// does not. No commit counts, and no gate opens, because the field is not read. It is in the
// cluster once the CRD is back.
func TestOlderCRDLacksSpec(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t)
	s := envIn(t, c, "web")
	stop := restarted(s)
	followSigned(s)
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v1": 10})

	s.replace("deployment.yaml", "web:v1", "web:bad")
	s.run(s.clone, "git", "config", "commit.gpgSign", "false")
	s.push("web: bad, not signed")
	hasReason(s, "CommitNotVerified")
	s.without("gitsources", "spec/properties/verify", "spec/x-kubernetes-validations/1")
	staysWhileOutdated(s, "GitSource source", "spec.verify", map[string]int32{"v1": 10})
	s.shell(".", crds)
	if s.source().Spec.Verify == nil {
		t.Error("spec.verify is lost")
	}
	s.run(s.clone, "git", "config", "commit.gpgSign", "true")
	s.replace("deployment.yaml", "web:bad", "web:v2")
	s.replace("release.yaml", "spec:\n", "spec:\n  paused: false\n")
	s.push("web: v2")
	s.waitFor("web", "WaitingForApproval", 0, map[string]int32{"v1": 8, "v2": 2})

	s.replace("release.yaml", "paused: false", "paused: true")
	s.push("pause")
	s.waitFor("web", "ReleasePaused", 0, map[string]int32{"v1": 8, "v2": 2})
	s.approve(".", "web", 1)
	s.applied(s.run(s.clone, "git", "rev-parse", "HEAD"))
	stop()
	s.without("batchreleases", "spec/properties/paused")
	restarted(s)
	staysWhileOutdated(s, "BatchRelease web", "spec.paused", map[string]int32{"v1": 8, "v2": 2})
	s.shell(".", crds)
	if !s.release("web").Spec.Paused {
		t.Error("spec.paused is lost")
	}
	s.write("other.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: other}}")
	s.applied(s.push("something else"))
	s.waitFor("web", "ReleasePaused", 0, map[string]int32{"v1": 8, "v2": 2})
	s.replace("release.yaml", "paused: true", "paused: false")
	s.push("resume")
	s.waitFor("web", "ReleaseCompleted", 2, map[string]int32{"v2": 10})
	s.untouched("web")
}

// followSigned lets the namespace follow the repository, of which only commits count that the
// clone's key has signed.
func followSigned(s *env) {
	s.Helper()
	key := gittest.NewSSHKey(s, "ed25519", "")
	for _, line := range append([]string{"commit.gpgSign=true"}, key.Config...) {
		name, value, _ := strings.Cut(line, "=")
		s.run(s.clone, "git", "config", name, value)
	}
	s.must(s.c.Client.Create(s.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "signers"},
		Data: map[string][]byte{"allowed_signers": []byte("ada@example.org " + key.Public)}}))
	s.write("signed.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: signed}}")
	s.push("signed")
	s.follow("source", ".", func(gs *v1alpha1.GitSource) {
		gs.Spec.Interval.Duration = time.Second
		gs.Spec.Verify = &v1alpha1.CommitVerification{}
		gs.Spec.Verify.SecretRef.Name = "signers"
	})
}

// hasReason waits until the source is not ready for a reason.
func hasReason(s *env, reason string) {
	s.Helper()
	clustertest.Wait(s, reason, func() error {
		if ready := s.ready(); ready == nil || ready.Reason != reason {
			return fmt.Errorf("%+v", ready)
		}
		return nil
	})
}

// staysWhileOutdated waits until an event of an object says that a field is not known. It fails if
// the pods change meanwhile.
func staysWhileOutdated(s *env, object, field string, pods map[string]int32) {
	s.Helper()
	clustertest.Wait(s, "an event that says so", func() error {
		if got := s.pods("web"); !maps.Equal(got, pods) {
			s.Fatalf("pods %v; want %v", got, pods)
		}
		var list eventsv1.EventList
		s.must(s.c.Client.List(s.Context(), &list, client.InNamespace(s.ns)))
		for _, e := range list.Items {
			if e.Regarding.Kind+" "+e.Regarding.Name == object && e.Reason == v1alpha1.ReasonOutdatedCRD && strings.Contains(e.Note, field) {
				return nil
			}
		}
		return fmt.Errorf("none; source: %+v", s.ready())
	})
}
