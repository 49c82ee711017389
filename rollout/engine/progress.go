package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// progress is the sentence on where the pods are. The size of a ReplicaSet is what is
// wanted: pods run that are ready.
func (c *course) progress() string {
	g := c.goalPods()
	s := fmt.Sprintf("%d of %d pods run %s", g.ready, c.replicas, c.goal.name)
	if g.available < g.ready {
		s += fmt.Sprintf(", %d of them available", g.available)
	}
	if g.ready < g.size {
		s += fmt.Sprintf(", %d wanted", g.size)
	}
	if c.Pods != nil && c.Pods.Cause != "" {
		s += ": " + c.Pods.Cause
	}
	return s + c.deletions()
}

// isUnready reports whether fewer pods are ready than are wanted.
func (c *course) isUnready() bool {
	g := c.goalPods()
	return g.ready < g.size
}

// deletions names the ReplicaSets that are being deleted and still count. They have a size
// or pods, or are of the revision that the way leads to. It begins with a separator, and is
// empty without any.
func (c *course) deletions() string {
	var b strings.Builder
	for _, rs := range c.ReplicaSets {
		if !deleted(rs) || size(rs) == 0 && rs.Status.Replicas == 0 && !c.goal.equal(&rs.Spec.Template) {
			continue
		}
		fmt.Fprintf(&b, "; ReplicaSet %s is being deleted", rs.Name)
		if len(rs.Finalizers) > 0 {
			fmt.Fprintf(&b, " and kept by finalizers %s", plan.JoinNames(rs.Finalizers))
		}
		if n := rs.Status.Replicas; n > 0 {
			fmt.Fprintf(&b, "; it has %d pods", n)
		}
		if n := rs.Status.TerminatingReplicas; n != nil && *n > 0 {
			fmt.Fprintf(&b, "; %d of its pods are terminating: see their finalizers and nodes", *n)
		}
	}
	return b.String()
}

// deadlineLength is how long a step may take without an increase in available
// pods. A pod needs minReadySeconds to become available, whatever the deadline.
func (c *course) deadlineLength() time.Duration {
	seconds := int64(v1alpha1.DefaultProgressDeadlineSeconds)
	if s := c.spec.Strategy.ProgressDeadlineSeconds; s != nil {
		seconds = int64(*s)
	}
	if c.Deployment != nil {
		seconds += int64(c.Deployment.Spec.MinReadySeconds)
	}
	return time.Duration(seconds) * time.Second
}

// deadline returns how long the step has left for its next new best. If a step has lost
// its pods again and again, the times that it takes to have them back are added up. So
// pods that come and go do not extend the deadline for ever.
func (p *position) deadline() time.Duration {
	length := p.deadlineLength()
	if p.status.ProgressTime == nil {
		return length
	}
	left := length - p.now.Sub(p.status.ProgressTime.Time)
	if lost := p.status.CurrentStepLostSeconds; lost > 0 && p.status.StepStateTime != nil {
		left = min(left, length-time.Duration(lost)*time.Second-p.now.Sub(p.status.StepStateTime.Time))
	}
	return left
}
