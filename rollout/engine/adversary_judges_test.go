package engine_test

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// This file is more of [oracle]. It judges losses of pods, targets that are raised, holds
// that are opened, and pauses of a person. It judges Deployments that are left alone, and
// records that a plan leaves behind.

// waitedAt is the gate that status has said to wait at. Its pods were there then.
type waitedAt struct {
	of  string // the release and its step; empty: none
	had int32
}

// absence is how long the pods of a gate were away in all, since they were there for a
// whole deadline.
type absence struct {
	gate   waitedAt
	sum    time.Duration // of the times that have ended
	now    time.Duration // of the present one
	stayed time.Duration // since the last one
}

// gateOf identifies the gate that the ledger has a release at.
func gateOf(r *release) string {
	return fmt.Sprint(r.version, r.commit, r.position, r.steps)
}

// countAbsence counts time that passes while the controller has seen that pods of a gate are
// away. If they were away for a deadline in all, the next loss ends the step.
func countAbsence(c *cluster, to time.Time) {
	a := &c.oracle.away
	if c.br == nil || c.d == nil || a.gate.of == "" {
		return
	}
	r := c.oracle.of(c, c.version, c.commit)
	if a.gate.of != gateOf(r) || c.sizeOf(r.version) == 0 {
		*a = absence{}
		return
	}
	all, counted := to.Sub(c.now), to.Sub(c.now)
	if !c.wake.IsZero() {
		counted = min(counted, c.wake.Sub(c.now))
	}
	deadline := time.Duration(c.deadline)*time.Second + time.Duration(c.minReady)*time.Second
	_, _, available, _, _ := c.podsOf(r.version)
	if seen := c.looked == c.rv && !c.woken && counted > 0 && c.informed(); !seen || available >= a.gate.had-tolerated(c, a.gate.had) {
		a.sum, a.now, a.stayed = a.sum+a.now, 0, a.stayed+all
		if a.stayed >= deadline {
			a.sum = 0
		}
		return
	}
	if a.sum > deadline {
		c.violate("losses", "pods of v%d were away for %s in all and are away again; the deadline is %s", r.version+1, a.sum, deadline)
	}
	a.now, a.stayed = a.now+counted, all-counted
}

// judgeRound judges a complete round.
func judgeRound(c *cluster, ob *engine.Observed, actions []engine.Action) {
	judgeOpened(c, ob)
	c.oracle.rounded(c, ob, actions)
	noteGate(c, ob)
}

// noteGate notes the gate that status says to wait at. The pods of a release are counted in
// one ReplicaSet.
func noteGate(c *cluster, ob *engine.Observed) {
	o, s := &c.oracle, c.br.Status
	if !waiting[s.Reason] && s.Reason != v1alpha1.ReasonUpgrading {
		o.away = absence{}
	}
	if !usable(ob) || c.d == nil {
		return
	}
	r := o.current(c, &ob.Release.Spec)
	w := r.waits[r.position]
	if w.since.IsZero() {
		o.gate = waitedAt{}
	}
	gate := waitedAt{of: gateOf(r)}
	if s.Reason != v1alpha1.ReasonWaitingForApproval && s.Reason != v1alpha1.ReasonWaitingForPause || w.since.IsZero() ||
		!c.informed() || s.RollingBack || int(s.CurrentStepIndex) != r.position || len(setsOf(c, r.version)) != 1 {
		return
	}
	_, _, gate.had, _, _ = c.podsOf(r.version)
	gate.had = min(gate.had, most(r.steps[:r.position+1], c.replicas()))
	if o.gate = gate; o.away.gate != gate {
		o.away = absence{gate: gate}
	}
}

// setsOf are the ReplicaSets of a version.
func setsOf(c *cluster, version int) []int {
	return slices.DeleteFunc(c.live(), func(i int) bool { return versionIn(&c.sets[i].rs.Spec.Template) != version })
}

// fails reports whether a version lacks pods that it had, and some fail.
func fails(c *cluster, version int, had int32) bool {
	_, _, there, failing, _ := c.podsOf(version)
	return there < had && failing > 0
}

// judgeStatus judges a status that was written.
func judgeStatus(c *cluster, ob *engine.Observed, before v1alpha1.BatchReleaseStatus) {
	s, r := c.br.Status, c.oracle.current(c, &ob.Release.Spec)
	failed := s.FailedCommit == r.commit && s.FailedRevision != "" && before.FailedRevision == ""
	if gate := c.oracle.gate; failed && gate.of == gateOf(r) && !r.waits[r.position].since.IsZero() && !fails(c, r.version, gate.had) &&
		ob.Release.Annotations[v1alpha1.AnnotationRollback] == "" && len(setsOf(c, r.version)) == 1 {
		c.violate("false rollback", "v%d goes back, and the pods that its gate had are there: %s", r.version+1, s.FailedMessage)
	}
	c.oracle.said(c, ob, before)
	if ob.Deployment == nil || !isLeftAlone(ob) || c.oracle.meddled != "" {
		return
	}
	if !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) || !c.fresh() {
		return
	}
	if versionIn(&ob.Deployment.Spec.Template) != r.version {
		c.violate("Ready", "Ready=True of a Deployment that is left alone, and spec says v%d", r.version+1)
	}
}

// judgeWrite judges one write.
func judgeWrite(c, before *cluster, ob *engine.Observed, a engine.Action) {
	c.oracle.wrote(c, before, ob, a)
	switch a := a.(type) {
	case engine.Hold:
		begins := before.d.Labels[v1alpha1.LabelHeld] == "" && before.d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType
		if begins && refusesBounds(ob.Release.Spec.DeploymentStrategy) { // one that has lost its label is put back
			c.violate("hold", "%s, and the API server would refuse the hand-back\n was %s", a, before)
		}
	case engine.HandBack:
		judgeLabels(c, ob, a)
		same := plan.EqualTemplate(&before.d.Spec.Template, &c.d.Spec.Template)
		if before.halted && same && ob.Release.Spec.DeploymentStrategy == nil && before.d.Labels[v1alpha1.LabelHeld] == "" {
			c.violate("pause", "%s ends the pause of a person, and the plan says no strategy\n was %s", a, before)
		}
	}
}

// judgeLabels: at a hand-back no ReplicaSet that was observed has the label of the hold.
func judgeLabels(c *cluster, ob *engine.Observed, a engine.Action) {
	for _, rs := range ob.ReplicaSets {
		i := slices.IndexFunc(c.sets, func(s podSet) bool { return s.rs != nil && s.rs.UID == rs.UID })
		if i >= 0 && v1alpha1.HasHeld(c.sets[i].rs.Labels) {
			c.violate("I7", "%s, and ReplicaSet %s has the label of the hold", a, rs.Name)
		}
	}
}

// mayHandBack reports whether a strategy is the manifest's, or the API server's default one
// in place of what it refuses.
func mayHandBack(c *cluster, s *appsv1.DeploymentStrategy) bool {
	return facts.EqualStrategy(*s, c.manifestStrategy()) || c.badBounds && facts.EqualStrategy(*s, appsv1.DeploymentStrategy{})
}

// judgeOpened: a hold that another writer has opened is whole after the next round. The
// native controller may not have seen it then.
func judgeOpened(c *cluster, ob *engine.Observed) {
	d := ob.Deployment
	if d == nil || d.Labels[v1alpha1.LabelHeld] == "" || engine.Held(d) || !usable(ob) || ob.Release.Spec.Paused {
		return
	}
	same := equality.Semantic.DeepEqual(ob.Release.Status, c.br.Status) // else it has begun a release, and nothing more
	if !same || d.Status.ObservedGeneration >= d.Generation {
		return
	}
	if c.d != nil && c.d.UID == d.UID && c.d.Labels[v1alpha1.LabelHeld] != "" && !c.held() && c.replicas() > 0 {
		c.violate("I10", "the hold is opened, and a round leaves it so")
	}
}

// checkLeft judges what is left when nothing moves.
func checkLeft(c *cluster) {
	checkMarks(c)
	for _, s := range c.sets {
		if s.rs != nil && c.d != nil && v1alpha1.HasHeld(s.rs.Labels) && !v1alpha1.HasHeld(c.d.Labels) {
			c.violate("I7", "ReplicaSet %s has the label of a hold, and the Deployment has none", s.rs.Name)
		}
	}
	if c.br == nil && c.d != nil && len(c.records) > 0 {
		c.violate("I7", "the plan is gone, and %d records are there", len(c.records))
	}
}

// judgeCause is about reasons of Stalled that no other rule knows.
func judgeCause(c *cluster, reason string) {
	if reason == v1alpha1.ReasonUnsupportedStrategy && c.badBounds {
		return
	}
	c.violate("I14", "Stalled=True with %s, and no cause for that is there", reason)
}
