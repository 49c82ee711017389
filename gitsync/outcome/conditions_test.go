package outcome

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/plan"
)

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 3}
}

// conditionsTest is an outcome, and the conditions that say it.
type conditionsTest struct {
	name, reason string
	outcome      Outcome
	before       []metav1.Condition
	want         []metav1.Condition
}

const commit = "3f2c1e0a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e"

func conditionsTests() []conditionsTest {
	bad := plan.Problems{{Reason: "DryRunFailed", Where: "a.yaml", Err: errors.New("no")}}
	passing := plan.Problems{{Reason: "Timeout", Where: "https://git.example.org", Err: errors.New("no answer"), Retry: true}}
	ready := condition("Ready", "True", "Applied", "applied main@3f2c1e0a9b8c")
	const waiting = "main@3f2c1e0a9b8c: waiting for the hand-back of Deployment shop/web, whose plan is gone from Git"
	const overdue = waiting + "; it takes too long: kubectl events -n shop --for deployment/web says why"
	return []conditionsTest{
		{"applied", "nothing is left to do", Outcome{}, nil, []metav1.Condition{
			ready, condition("Reconciling", "False", "Idle", ""), condition("Stalled", "False", "Idle", ""),
			condition("InSync", "True", "InSync", "the cluster is as main@3f2c1e0a9b8c says")}},
		{"an approval ignored", "it does no harm, but somebody waits for it",
			Outcome{Ignored: plan.Problems{{Reason: "ApprovalIgnored", Where: "b.yaml", Err: errors.New("another release")}}},
			nil, []metav1.Condition{
				ready, condition("Reconciling", "False", "Idle", ""), condition("Stalled", "False", "Idle", ""),
				condition("InSync", "False", "ApprovalIgnored", "b.yaml: another release")}},
		{"refused", "somebody must change something", Outcome{Problems: bad}, nil, []metav1.Condition{
			condition("Ready", "False", "DryRunFailed", "a.yaml: no"), condition("Reconciling", "False", "Idle", ""),
			condition("Stalled", "True", "DryRunFailed", "a.yaml: no"), condition("InSync", "False", "DryRunFailed", "a.yaml: no")}},
		{"unreachable", "trying again may do", Outcome{Problems: passing}, nil, []metav1.Condition{
			condition("Ready", "False", "Timeout", "https://git.example.org: no answer"),
			condition("Reconciling", "True", "Progressing", "trying again after Timeout"),
			condition("Stalled", "False", "Idle", ""), condition("InSync", "False", "Timeout", "https://git.example.org: no answer")}},
		{"both kinds of problem", "one that does not pass is enough", Outcome{Problems: append(passing, bad...)}, nil, []metav1.Condition{
			condition("Ready", "False", "Timeout", "https://git.example.org: no answer | a.yaml: no"),
			condition("Reconciling", "False", "Idle", ""),
			condition("Stalled", "True", "Timeout", "https://git.example.org: no answer | a.yaml: no"),
			condition("InSync", "False", "Timeout", "https://git.example.org: no answer | a.yaml: no")}},
		{"applying", "the look is under way", Outcome{Applying: true}, nil, []metav1.Condition{
			condition("Ready", "Unknown", "Applying", "applying main@3f2c1e0a9b8c"),
			condition("Reconciling", "True", "Applying", "applying main@3f2c1e0a9b8c"),
			condition("Stalled", "False", "Idle", ""), condition("InSync", "False", "Applying", "applying main@3f2c1e0a9b8c")}},
		{"waiting", "rollout hands back first",
			Outcome{Waiting: []types.NamespacedName{{Namespace: "shop", Name: "web"}}},
			nil, []metav1.Condition{
				condition("Ready", "False", "WaitingForHandBack", waiting),
				condition("Reconciling", "True", "WaitingForHandBack", waiting),
				condition("Stalled", "False", "Idle", ""),
				condition("InSync", "False", "WaitingForHandBack", waiting)}},
		{"waiting for too long", "a policy must let the hand-back pass",
			Outcome{Waiting: []types.NamespacedName{{Namespace: "shop", Name: "web"}}, Overdue: true},
			nil, []metav1.Condition{
				condition("Ready", "False", "HandBackOverdue", overdue), condition("Reconciling", "False", "Idle", ""),
				condition("Stalled", "True", "HandBackOverdue", overdue), condition("InSync", "False", "HandBackOverdue", overdue)}},
		{"ending", "what was applied is going", Outcome{Ending: true}, nil, []metav1.Condition{
			condition("Ready", "Unknown", "Pruning", "deleting what was applied"),
			condition("Reconciling", "True", "Pruning", "deleting what was applied"),
			condition("Stalled", "False", "Idle", ""), condition("InSync", "False", "Pruning", "deleting what was applied")}},
		{"suspended at once", "nothing is known", Outcome{Suspended: true}, nil, []metav1.Condition{
			condition("Ready", "Unknown", "Suspended", "spec.suspend is true"), condition("Reconciling", "False", "Idle", ""),
			condition("Stalled", "False", "Idle", ""), condition("InSync", "Unknown", "Suspended", "not looked at: spec.suspend is true")}},
		{"suspended later", "what was applied is still applied", Outcome{Suspended: true}, []metav1.Condition{ready}, []metav1.Condition{
			ready, condition("Reconciling", "False", "Idle", ""),
			condition("Stalled", "False", "Idle", ""), condition("InSync", "Unknown", "Suspended", "not looked at: spec.suspend is true")}},
	}
}

func TestConditions(t *testing.T) {
	for _, tt := range conditionsTests() {
		t.Run(tt.name, func(t *testing.T) {
			tt.outcome.Branch, tt.outcome.Commit = "main", commit
			got := tt.outcome.Conditions(3, tt.before)
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.reason, diff)
			}
		})
	}
}
