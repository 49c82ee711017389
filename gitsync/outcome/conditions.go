package outcome

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/gitsync/desired"
	"github.com/tranche-dev/tranche/gitsync/readiness"
	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// Outcome is how a sync of a GitSource went.
type Outcome struct {
	Branch, Commit string
	Author         string // of the commit; empty where this sync has not fetched it
	Behind         int    // commits that are not applied
	Suspended      bool
	// Applying: the sync is under way, and there is something to apply.
	Applying bool
	// Ending: the GitSource is deleted, and what it applied is going.
	Ending bool
	// Applied is what events say of the commits that this sync has applied.
	Applied []string
	// InUse says what of that is in use, and how long it is waited for.
	InUse string
	// Problems are why nothing, or not everything, was applied.
	Problems plan.Problems
	// Waiting are the Deployments whose hand-back is waited for.
	Waiting []types.NamespacedName
	// Overdue: that takes longer than a hand-back does.
	Overdue bool
	// Awaited are the sources that are not as this one needs them.
	Awaited []string
	// Held are the BatchReleases for which a refused commit has something that does
	// not count before it is applied.
	Held []string
	// MaintenanceErrors is what could not be done meanwhile for what is applied.
	MaintenanceErrors plan.Problems
	// Unready is what is applied and not ready; empty where spec.wait does not ask.
	Unready []readiness.Unready
	// Withheld is what of the commit is not done before its plans are approved.
	Withheld []string
	// Ignored is what was left out and does no harm: approvals that count for
	// nothing, submodules, releases that are left alone.
	Ignored plan.Problems
	// Contested is when drift is to be reverted that stays until then; zero: none does.
	Contested time.Time
	// Intents are what the cluster decided and the branch does not say.
	Intents plan.Problems
}

// Conditions maps an outcome to the four conditions.
func (o Outcome) Conditions(generation int64, now []metav1.Condition) []metav1.Condition {
	conditions := append([]metav1.Condition(nil), now...)
	for _, c := range o.all(now) {
		c.ObservedGeneration = generation
		meta.SetStatusCondition(&conditions, c)
	}
	return conditions
}

func (o Outcome) all(now []metav1.Condition) []metav1.Condition {
	idle := isFalse(v1alpha1.ConditionReconciling, v1alpha1.ReasonIdle, "")
	calm := isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, "")
	tip := desired.CommitName(o.Branch, o.Commit)
	switch {
	case o.Suspended:
		ready := isUnknown(v1alpha1.ConditionReady, v1alpha1.ReasonSuspended, "spec.suspend is true")
		if last := meta.FindStatusCondition(now, v1alpha1.ConditionReady); last != nil && last.Status != metav1.ConditionUnknown {
			ready = *last
		}
		inSync := isUnknown(v1alpha1.ConditionInSync, v1alpha1.ReasonSuspended, "not looked at: spec.suspend is true")
		return []metav1.Condition{ready, idle, calm, inSync}
	case len(o.Problems) > 0:
		return o.failed()
	case len(o.Awaited) > 0:
		return o.awaits(tip)
	case len(o.Waiting) > 0:
		return o.AwaitsHandBack(tip)
	case o.Ending:
		return underWay(v1alpha1.ReasonPruning, "deleting what was applied"+o.InUse)
	case o.Applying:
		return underWay(v1alpha1.ReasonApplying, "applying "+tip)
	}
	inSync := isTrue(v1alpha1.ConditionInSync, v1alpha1.ReasonInSync, "the cluster is as "+tip+" says")
	if differ := slices.Concat(o.Intents, o.Ignored); len(differ) > 0 {
		inSync = isFalse(v1alpha1.ConditionInSync, differ[0].Reason, OneCondition(differ.Error()))
	}
	if len(o.Withheld) > 0 {
		message := OneCondition(tip + " is applied without " + plan.JoinNames(o.Withheld) + ", which a signer has to approve")
		return []metav1.Condition{isFalse(v1alpha1.ConditionReady, plan.ReasonPlanNotApproved, message), idle, calm, inSync}
	}
	if len(o.Unready) > 0 {
		return append(o.notReady(tip), inSync)
	}
	return []metav1.Condition{isTrue(v1alpha1.ConditionReady, v1alpha1.ReasonApplied, "applied "+tip), idle, calm, inSync}
}

// notReady are the conditions where all is applied and not all of it is ready.
// One object that has failed is for people.
func (o Outcome) notReady(tip string) []metav1.Condition {
	var failed, underWay []string
	for _, u := range o.Unready {
		if u.Failed {
			failed = append(failed, u.Explain())
		} else {
			underWay = append(underWay, u.Explain())
		}
	}
	message := OneCondition("applied " + tip + ", not ready: " + plan.JoinNames(slices.Concat(failed, underWay)))
	if len(failed) > 0 {
		return []metav1.Condition{
			isFalse(v1alpha1.ConditionReady, v1alpha1.ReasonHealthCheckFailed, message),
			isFalse(v1alpha1.ConditionReconciling, v1alpha1.ReasonIdle, ""),
			isTrue(v1alpha1.ConditionStalled, v1alpha1.ReasonHealthCheckFailed, message),
		}
	}
	return []metav1.Condition{
		isUnknown(v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForReadiness, message),
		isTrue(v1alpha1.ConditionReconciling, v1alpha1.ReasonWaitingForReadiness, message),
		isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, ""),
	}
}

// AwaitsHandBack returns the conditions while a hand-back is waited for. rollout tells of the
// Deployment why it does not hand back. There is no BatchRelease any more to say it.
func (o Outcome) AwaitsHandBack(tip string) []metav1.Condition {
	var names []string
	for _, d := range o.Waiting {
		names = append(names, "Deployment "+d.String())
	}
	message := fmt.Sprintf("%s: waiting for the hand-back of %s, whose plan is gone from Git", tip, plan.JoinNames(names))
	if !o.Overdue {
		return waits(v1alpha1.ReasonWaitingForHandBack, message)
	}
	first := o.Waiting[0]
	message = OneCondition(fmt.Sprintf("%s; it takes too long: kubectl events -n %s --for deployment/%s says why",
		message, first.Namespace, first.Name))
	return stalls(v1alpha1.ReasonHandBackOverdue, message)
}

// stalls are the conditions where a person must do something before the sync can go on.
func stalls(reason, message string) []metav1.Condition {
	return []metav1.Condition{
		isFalse(v1alpha1.ConditionReady, reason, message), isFalse(v1alpha1.ConditionReconciling, v1alpha1.ReasonIdle, ""),
		isTrue(v1alpha1.ConditionStalled, reason, message), isFalse(v1alpha1.ConditionInSync, reason, message),
	}
}

// awaits are the conditions while other sources are waited for. An intent of the
// cluster says more than that the branch is ahead.
func (o Outcome) awaits(tip string) []metav1.Condition {
	said := o.Awaited
	if len(o.MaintenanceErrors) > 0 {
		said = append(slices.Clone(said), o.MaintenanceErrors.Error())
	}
	conditions := waits(v1alpha1.ReasonDependencyNotReady, tip+" is not applied yet: "+strings.Join(said, "; "))
	if len(o.Intents) > 0 {
		conditions[len(conditions)-1] = isFalse(v1alpha1.ConditionInSync, o.Intents[0].Reason, OneCondition(o.Intents.Error()))
	}
	return conditions
}

// waits are the conditions of a sync that has to wait for something else.
func waits(reason, message string) []metav1.Condition {
	message = OneCondition(message)
	return []metav1.Condition{
		isFalse(v1alpha1.ConditionReady, reason, message),
		isTrue(v1alpha1.ConditionReconciling, reason, message),
		isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, ""), isFalse(v1alpha1.ConditionInSync, reason, message),
	}
}

func underWay(reason, message string) []metav1.Condition {
	return []metav1.Condition{
		isUnknown(v1alpha1.ConditionReady, reason, message),
		isTrue(v1alpha1.ConditionReconciling, reason, message),
		isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, ""), isFalse(v1alpha1.ConditionInSync, reason, message),
	}
}

// failed are the conditions of a sync with problems: Stalled where a person must do
// something, Reconciling where trying again may do.
func (o Outcome) failed() []metav1.Condition {
	reason, message := o.Problems[0].Reason, o.Problems.Error()
	if len(o.Held) > 0 {
		message += "; until " + desired.CommitName(o.Branch, o.Commit) + " is applied, these wait for it: " + plan.JoinNames(o.Held)
	}
	message = OneCondition(message)
	reconciling := isFalse(v1alpha1.ConditionReconciling, v1alpha1.ReasonIdle, "")
	stalled := isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, "")
	if o.retry() {
		reconciling = isTrue(v1alpha1.ConditionReconciling, v1alpha1.ReasonProgressing, "trying again after "+reason)
	} else {
		stalled = isTrue(v1alpha1.ConditionStalled, reason, message)
	}
	return []metav1.Condition{
		isFalse(v1alpha1.ConditionReady, reason, message),
		reconciling,
		stalled,
		isFalse(v1alpha1.ConditionInSync, reason, message),
	}
}

// retry reports whether all problems may pass by themselves.
func (o Outcome) retry() bool {
	for _, p := range o.Problems {
		if !p.Retry {
			return false
		}
	}
	return true
}

func isTrue(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func isUnknown(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: reason, Message: message}
}

func isFalse(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: cmp.Or(reason, v1alpha1.ReasonIdle), Message: message}
}

// maxCondition is well below the length that a condition's message may have.
const maxCondition = 4096

// OneCondition returns a message that is no longer than that.
func OneCondition(message string) string {
	if r := []rune(message); len(r) > maxCondition {
		return string(r[:maxCondition-1]) + "…"
	}
	return message
}
