package gitsync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/clustertest"
)

// Another manager sets a label of a Deployment again after each revert. The first change
// is reverted at once, the later ones less and less often, and the status names the manager
// and the field. A user who asks for a sync does not wait.
func TestDriftThatComesAgain(t *testing.T) {
	t.Parallel()
	s := newEnv(t, gitsyncOnly)
	s.source()
	s.applied(s.push(map[string]string{"deploy/web.yaml": web("v1"), "deploy/release.yaml": webPlan}))
	team := func() string { return s.deployment("web").Labels["team"] }
	write := func() {
		t.Helper()
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "web"}}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"team":"hand"}}}`))
		if err := s.c.Client.Patch(t.Context(), d, patch, client.FieldOwner("other")); err != nil {
			t.Fatal(err)
		}
	}
	last := func() (at time.Time) { // the API server says when gitsync wrote, in whole seconds
		for _, e := range s.deployment("web").ManagedFields {
			if e.Manager == v1alpha1.ManagerGitSync && e.Operation == metav1.ManagedFieldsOperationApply {
				at = e.Time.Time
			}
		}
		return at
	}
	var first time.Time
	for n := range 4 {
		write()
		clustertest.Wait(t, fmt.Sprintf("revert %d", n), func() error {
			if now := team(); now != "shop" {
				return fmt.Errorf("the label is %q", now)
			}
			return nil
		})
		if n == 0 {
			first = last()
		}
	}
	if took := last().Sub(first); took < 3*time.Second { // 1 s, 2 s and 4 s; the first write may have come late to the server
		t.Errorf("three more reverts within %s", took)
	}
	clustertest.Wait(t, "the status to name the manager", func() error {
		c := s.inSync()
		if c.Status != metav1.ConditionFalse || c.Reason != "FieldConflict" || !strings.Contains(c.Message, "metadata.labels.team was changed by other, again after each revert") {
			return fmt.Errorf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
		return nil
	})
	write()
	s.lookNow()
	if now := team(); now != "shop" {
		t.Errorf("the label is %q after a sync that was asked for", now)
	}
}
