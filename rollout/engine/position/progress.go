package position

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/plan"
	"github.com/tranche-dev/tranche/plan/v1alpha1"
	"github.com/tranche-dev/tranche/rollout/engine/facts"
)

// Progress is the sentence on where the pods are. The size of a ReplicaSet is what is
// wanted: pods run that are ready.
func (c *Course) Progress() string {
	g := c.GoalPods()
	s := fmt.Sprintf("%d of %d pods run %s", g.Ready, c.Replicas, c.Goal.Name)
	if g.Available < g.Ready {
		s += fmt.Sprintf(", %d of them available", g.Available)
	}
	if g.Ready < g.Size {
		s += fmt.Sprintf(", %d wanted", g.Size)
	}
	if c.Pods != nil && c.Pods.Cause != "" {
		s += ": " + c.Pods.Cause
	}
	return s + c.Deletions()
}

// Missing is the Progress of a completed release, if none of its pods is available, or fewer than
// the Deployment's own bounds demand. It is empty otherwise.
func Missing(c *Course) string {
	none := c.Replicas > 0 && (c.Goal.ReplicaSet == nil || c.GoalPods().Available == 0)
	if !none && c.GoalPods().Available >= c.Replicas-c.Unavailable {
		return ""
	}
	return c.Progress()
}

// IsUnready reports whether fewer pods are ready than are wanted.
func (c *Course) IsUnready() bool {
	g := c.GoalPods()
	return g.Ready < g.Size
}

// Deletions names the ReplicaSets that are being deleted and still count. They have a size
// or pods, or are of the revision that the way leads to. It begins with a separator, and is
// empty without any.
func (c *Course) Deletions() string {
	var b strings.Builder
	for _, rs := range c.ReplicaSets {
		if !facts.Deleted(rs) || facts.Size(rs) == 0 && rs.Status.Replicas == 0 && !c.Goal.Equal(&rs.Spec.Template) {
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

// DeletionAdvice says which finalizers keep a Deployment. That of a foreground deletion goes
// with the ReplicaSets and pods, so theirs are the ones to look at.
func DeletionAdvice(finalizers []string) string {
	others := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == metav1.FinalizerDeleteDependents })
	var advice []string
	if len(others) > 0 {
		advice = append(advice, "see its finalizers, "+strings.Join(others, ", "))
	}
	if len(others) < len(finalizers) {
		advice = append(advice, "it waits until its ReplicaSets and their pods are gone, see the finalizers of those")
	}
	return strings.Join(advice, "; ")
}

// DeadlineLength is how long a step may take without an increase in available
// pods. A pod needs minReadySeconds to become available, whatever the deadline.
func (c *Course) DeadlineLength() time.Duration {
	seconds := int64(v1alpha1.DefaultProgressDeadlineSeconds)
	if s := c.Spec.Strategy.ProgressDeadlineSeconds; s != nil {
		seconds = int64(*s)
	}
	if c.Deployment != nil {
		seconds += int64(c.Deployment.Spec.MinReadySeconds)
	}
	return time.Duration(seconds) * time.Second
}

// Deadline returns how long the step has left for its next new best. If a step has lost
// its pods again and again, the times that it takes to have them back are added up. So
// pods that come and go do not extend the deadline for ever.
func (p *Position) Deadline() time.Duration {
	length := p.DeadlineLength()
	if p.Status.ProgressTime == nil {
		return length
	}
	left := length - p.Now.Sub(p.Status.ProgressTime.Time)
	if lost := p.Status.CurrentStepLostSeconds; lost > 0 && p.Status.StepStateTime != nil {
		left = min(left, length-time.Duration(lost)*time.Second-p.Now.Sub(p.Status.StepStateTime.Time))
	}
	return left
}
