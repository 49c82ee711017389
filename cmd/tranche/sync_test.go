package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/cmd/tranche/cli"
	"github.com/tranche-dev/tranche/cmd/tranche/clitest"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Each case is a state of a source, and the outcome of its sync if there is one yet.
func TestSyncOutcome(t *testing.T) {
	reconciling := func(reason string) metav1.Condition {
		return metav1.Condition{Type: "Reconciling", Status: metav1.ConditionTrue, Reason: reason}
	}
	for _, tc := range []struct {
		reason string
		source int
		edit   func(*v1alpha1.GitSource)
		over   bool
		code   int
		said   string
	}{
		{"applied", 0, nil, true, 0, "applied main@90f3b1d"},
		{"refused", 1, nil, true, cli.ExitFailed, "must be a number"},
		{"out of sync is applied", 2, nil, true, 0, "applied main@90f3b1d"},
		{"not seen yet", 4, nil, false, 0, "has not synced it yet"},
		{
			"an outcome of before it was asked for", 1, func(gs *v1alpha1.GitSource) { gs.Status.LastHandledReconcileAt = "before" },
			false, 0, "has not synced it yet",
		},
		{"an outcome of another spec", 0, func(gs *v1alpha1.GitSource) { gs.Generation++ }, false, 0, "has not synced it yet"},
		{
			"it is tried again, by another sync", 1,
			func(gs *v1alpha1.GitSource) { gs.Status.Conditions[1] = reconciling("Progressing") }, true, cli.ExitFailed,
			"must be a number",
		},
		{
			"it waits for another source", 1,
			func(gs *v1alpha1.GitSource) { gs.Status.Conditions[1] = reconciling("DependencyNotReady") }, false, 0,
			"must be a number",
		},
		{"it waits for pods", 0, func(gs *v1alpha1.GitSource) {
			gs.Status.Conditions[0].Status, gs.Status.Conditions[1] = metav1.ConditionUnknown, reconciling("WaitingForReadiness")
		}, false, 0, "applied"},
	} {
		gs := clitest.Sources()[tc.source]
		if tc.source != 4 {
			gs.Status.LastHandledReconcileAt = "now"
		}
		if tc.edit != nil {
			tc.edit(&gs)
		}
		said, over, err := syncOutcome(&gs, "now")
		code := 0
		if err != nil {
			code = cli.ExitCode(err)
		}
		if over != tc.over || code != tc.code || !strings.Contains(said, tc.said) {
			t.Errorf("%s: %q, over %t with %d (%v); want %q, %t with %d", tc.reason, said, over, code, err, tc.said, tc.over, tc.code)
		}
	}
}
