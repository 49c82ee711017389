package gitsync

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

// outcome is how a sync of a GitSource went.
type outcome struct {
	branch, commit string
	author         string // of the commit; empty where this sync has not fetched it
	behind         int    // commits that are not applied
	suspended      bool
	// applying: the sync is under way, and there is something to apply.
	applying bool
	// ending: the GitSource is deleted, and what it applied is going.
	ending bool
	// inUse says what of that is in use, and how long it is waited for.
	inUse string
	// problems are why nothing, or not everything, was applied.
	problems plan.Problems
	// waiting are the Deployments whose hand-back is waited for.
	waiting []types.NamespacedName
	// overdue: that takes longer than a hand-back does.
	overdue bool
	// awaited are the sources that are not as this one needs them.
	awaited []string
	// held are the BatchReleases for which a refused commit has something that does
	// not count before it is applied.
	held []string
	// amiss is what could not be done meanwhile for what is applied.
	amiss plan.Problems
	// unready is what is applied and not ready; empty where spec.wait does not ask.
	unready []readiness.Unready
	// withheld is what of the commit is not done before its plans are approved.
	withheld []string
	// ignored is what was left out and does no harm: approvals that count for
	// nothing, submodules, releases that are left alone.
	ignored plan.Problems
	// contested is when drift is to be reverted that stays until then; zero: none does.
	contested time.Time
	// intents are what the cluster decided and the branch does not say.
	intents plan.Problems
}

// conditions maps an outcome to the four conditions.
func (o outcome) conditions(generation int64, now []metav1.Condition) []metav1.Condition {
	conditions := append([]metav1.Condition(nil), now...)
	for _, c := range o.all(now) {
		c.ObservedGeneration = generation
		meta.SetStatusCondition(&conditions, c)
	}
	return conditions
}

func (o outcome) all(now []metav1.Condition) []metav1.Condition {
	idle, calm := isFalse(v1alpha1.ConditionReconciling, v1alpha1.ReasonIdle, ""), isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, "")
	tip := desired.CommitName(o.branch, o.commit)
	switch {
	case o.suspended:
		ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonSuspended, Message: "spec.suspend is true"}
		if last := meta.FindStatusCondition(now, v1alpha1.ConditionReady); last != nil && last.Status != metav1.ConditionUnknown {
			ready = *last
		}
		return []metav1.Condition{ready, idle, calm, {Type: v1alpha1.ConditionInSync, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonSuspended, Message: "not looked at: spec.suspend is true"}}
	case len(o.problems) > 0:
		return o.failed()
	case len(o.awaited) > 0:
		return o.awaits(tip)
	case len(o.waiting) > 0:
		return o.awaitsHandBack(tip)
	case o.ending:
		return underWay(v1alpha1.ReasonPruning, "deleting what was applied"+o.inUse)
	case o.applying:
		return underWay(v1alpha1.ReasonApplying, "applying "+tip)
	}
	inSync := metav1.Condition{Type: v1alpha1.ConditionInSync, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonInSync, Message: "the cluster is as " + tip + " says"}
	if differ := slices.Concat(o.intents, o.ignored); len(differ) > 0 {
		inSync = isFalse(v1alpha1.ConditionInSync, differ[0].Reason, oneCondition(differ.Error()))
	}
	if len(o.withheld) > 0 {
		message := oneCondition(tip + " is applied without " + plan.JoinNames(o.withheld) + ", which a signer has to approve")
		return []metav1.Condition{isFalse(v1alpha1.ConditionReady, plan.ReasonPlanNotApproved, message), idle, calm, inSync}
	}
	if len(o.unready) > 0 {
		return append(o.notReady(tip), inSync)
	}
	return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonApplied, Message: "applied " + tip}, idle, calm, inSync}
}

// notReady are the conditions where all is applied and not all of it is ready.
// One object that has failed is for people.
func (o outcome) notReady(tip string) []metav1.Condition {
	var failed, underWay []string
	for _, u := range o.unready {
		if u.Failed {
			failed = append(failed, u.Explain())
		} else {
			underWay = append(underWay, u.Explain())
		}
	}
	message := oneCondition("applied " + tip + ", not ready: " + plan.JoinNames(slices.Concat(failed, underWay)))
	if len(failed) > 0 {
		return []metav1.Condition{
			isFalse(v1alpha1.ConditionReady, v1alpha1.ReasonHealthCheckFailed, message), isFalse(v1alpha1.ConditionReconciling, v1alpha1.ReasonIdle, ""),
			{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHealthCheckFailed, Message: message},
		}
	}
	return []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonWaitingForReadiness, Message: message},
		{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonWaitingForReadiness, Message: message},
		isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, ""),
	}
}

// awaitsHandBack are the conditions while a hand-back is waited for. rollout tells of the
// Deployment why it does not hand back. There is no BatchRelease any more to say it.
func (o outcome) awaitsHandBack(tip string) []metav1.Condition {
	var names []string
	for _, d := range o.waiting {
		names = append(names, "Deployment "+d.String())
	}
	message := fmt.Sprintf("%s: waiting for the hand-back of %s, whose plan is gone from Git", tip, plan.JoinNames(names))
	if !o.overdue {
		return waits(v1alpha1.ReasonWaitingForHandBack, message)
	}
	message = oneCondition(fmt.Sprintf("%s; it takes too long: kubectl events -n %s --for deployment/%s says why", message, o.waiting[0].Namespace, o.waiting[0].Name))
	return stalls(v1alpha1.ReasonHandBackOverdue, message)
}

// stalls are the conditions where a person must do something before the sync can go on.
func stalls(reason, message string) []metav1.Condition {
	return []metav1.Condition{
		isFalse(v1alpha1.ConditionReady, reason, message), isFalse(v1alpha1.ConditionReconciling, v1alpha1.ReasonIdle, ""),
		{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: message}, isFalse(v1alpha1.ConditionInSync, reason, message),
	}
}

// awaits are the conditions while other sources are waited for. An intent of the
// cluster says more than that the branch is ahead.
func (o outcome) awaits(tip string) []metav1.Condition {
	said := o.awaited
	if len(o.amiss) > 0 {
		said = append(slices.Clone(said), o.amiss.Error())
	}
	conditions := waits(v1alpha1.ReasonDependencyNotReady, tip+" is not applied yet: "+strings.Join(said, "; "))
	if len(o.intents) > 0 {
		conditions[len(conditions)-1] = isFalse(v1alpha1.ConditionInSync, o.intents[0].Reason, oneCondition(o.intents.Error()))
	}
	return conditions
}

// waits are the conditions of a sync that has to wait for something else.
func waits(reason, message string) []metav1.Condition {
	message = oneCondition(message)
	return []metav1.Condition{
		isFalse(v1alpha1.ConditionReady, reason, message),
		{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: reason, Message: message},
		isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, ""), isFalse(v1alpha1.ConditionInSync, reason, message),
	}
}

func underWay(reason, message string) []metav1.Condition {
	return []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: reason, Message: message},
		{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: reason, Message: message},
		isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, ""), isFalse(v1alpha1.ConditionInSync, reason, message),
	}
}

// failed are the conditions of a sync with problems: Stalled where a person must do
// something, Reconciling where trying again may do.
func (o outcome) failed() []metav1.Condition {
	reason, message := o.problems[0].Reason, o.problems.Error()
	if len(o.held) > 0 {
		message += "; until " + desired.CommitName(o.branch, o.commit) + " is applied, these wait for it: " + plan.JoinNames(o.held)
	}
	message = oneCondition(message)
	reconciling, stalled := isFalse(v1alpha1.ConditionReconciling, v1alpha1.ReasonIdle, ""), isFalse(v1alpha1.ConditionStalled, v1alpha1.ReasonIdle, "")
	if o.retry() {
		reconciling = metav1.Condition{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProgressing, Message: "trying again after " + reason}
	} else {
		stalled = metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: reason, Message: message}
	}
	return []metav1.Condition{isFalse(v1alpha1.ConditionReady, reason, message), reconciling, stalled, isFalse(v1alpha1.ConditionInSync, reason, message)}
}

// retry reports whether all problems may pass by themselves.
func (o outcome) retry() bool {
	for _, p := range o.problems {
		if !p.Retry {
			return false
		}
	}
	return true
}

func isFalse(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: cmp.Or(reason, v1alpha1.ReasonIdle), Message: message}
}

// maxCondition is well below the length that a condition's message may have.
const maxCondition = 4096

func oneCondition(message string) string {
	if r := []rune(message); len(r) > maxCondition {
		return string(r[:maxCondition-1]) + "…"
	}
	return message
}
