package engine

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tranche-dev/tranche/plan/v1alpha1"
)

// answers is how long the native controller may take without a word on it.
const answers = 20 * time.Second

// unanswered says why the native controller has not done what the release waits for, as
// far as its condition tells. It is empty before [answers] have passed.
func unanswered(d *draft) string {
	if d.Seen() && (d.Touched() || !d.Scaling()) {
		return ""
	}
	was := &d.Release.Status
	if !waitsForCluster[was.Reason] && was.Reason != v1alpha1.ReasonRollingBack || was.ReasonTime == nil {
		d.wakeIn(answers)
		return ""
	}
	if left := answers - d.Now.Sub(d.Status.ReasonTime.Time); left > 0 {
		d.wakeIn(left)
		return ""
	}
	for _, c := range d.Deployment.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return "; the Deployment controller cannot scale: " + c.Message
		}
	}
	if !d.Seen() {
		return fmt.Sprintf("; the Deployment controller has not answered for more than %s", answers)
	}
	return fmt.Sprintf("; the Deployment controller has not brought the pods to %d for more than %s", d.Replicas, answers)
}
