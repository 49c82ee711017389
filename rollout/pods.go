package rollout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/rollout/engine"
)

// observePods finds out why pods of the update revision are not available. They are
// read past the cache, which has none: only a release that is stuck asks.
func (r *reconciler) observePods(ctx context.Context, o *engine.Observed) (*engine.Pods, error) {
	causes := causes{pods: &engine.Pods{}, counted: map[string]int32{}}
	for _, rs := range o.ReplicaSets {
		if !engine.IsUpdate(o, rs) {
			continue
		}
		causes.notCreated(rs)
		var pods corev1.PodList
		selector := client.MatchingLabels(rs.Spec.Selector.MatchLabels)
		if err := r.reader.List(ctx, &pods, client.InNamespace(rs.Namespace), selector); err != nil {
			return nil, fmt.Errorf("listing the pods of ReplicaSet %s/%s: %w", rs.Namespace, rs.Name, err)
		}
		for i := range pods.Items {
			lost, err := r.isLost(ctx, &pods.Items[i])
			if err != nil {
				return nil, err
			}
			causes.add(&pods.Items[i], lost, isAvailable(&pods.Items[i], o.Deployment.Spec.MinReadySeconds, r.now()))
		}
	}
	return causes.sum(), nil
}

// isLost reports whether a pod sits on a node that is gone, or does not answer.
func (r *reconciler) isLost(ctx context.Context, pod *corev1.Pod) (bool, error) {
	if pod.Spec.NodeName == "" {
		return false, nil
	}
	var node corev1.Node
	err := r.reader.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &node)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err):
		return false, nil // without the right to see nodes, none is lost
	case err != nil:
		return false, fmt.Errorf("getting Node %s: %w", pod.Spec.NodeName, err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != corev1.ConditionTrue, nil
		}
	}
	return false, nil
}

// causes counts pods by why they are not available.
type causes struct {
	pods    *engine.Pods
	counted map[string]int32
}

// notCreated counts what the ReplicaSet controller could not create. A quota that
// is used up does not tell against a release; a template that is refused does.
func (c *causes) notCreated(rs *appsv1.ReplicaSet) {
	for _, condition := range rs.Status.Conditions {
		if condition.Type != appsv1.ReplicaSetReplicaFailure || condition.Status != corev1.ConditionTrue || rs.Spec.Replicas == nil {
			continue
		}
		missing := *rs.Spec.Replicas - rs.Status.Replicas
		if missing <= 0 {
			continue
		}
		if strings.Contains(condition.Message, "exceeded quota") {
			c.pods.Waiting += missing
		} else {
			c.pods.Failing += missing
		}
		c.counted["not created: "+condition.Message] += missing
	}
}

func (c *causes) add(pod *corev1.Pod, lost, available bool) {
	switch {
	case available && !lost:
		return
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return // the ReplicaSet controller has replaced it, as one that was evicted
	case pod.DeletionTimestamp != nil:
		return // it does not count any more
	case lost:
		c.pods.Waiting++
		c.counted["on node "+pod.Spec.NodeName+", which does not answer"]++
		return
	}
	if pod.Spec.NodeName == "" {
		c.pods.Waiting++
		c.counted["not scheduled"+because(pod)]++
		return
	}
	c.pods.Failing++
	c.counted[waitingReason(pod)]++
}

// isAvailable reports whether a pod is available, or too young to be.
func isAvailable(pod *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	soak := time.Duration(minReadySeconds) * time.Second
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return now.Sub(c.LastTransitionTime.Time) >= soak || now.Sub(pod.CreationTimestamp.Time) <= 2*soak
		}
	}
	return false
}

// because is what the scheduler says of a pod.
func because(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Message != "" {
			return ": " + c.Message
		}
	}
	return ""
}

// waitingReason is why a scheduled pod is not ready: ImagePullBackOff, or
// CrashLoopBackOff with the last exit code.
func waitingReason(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Waiting == nil || s.State.Waiting.Reason == "" {
			continue
		}
		if last := s.LastTerminationState.Terminated; last != nil {
			return fmt.Sprintf("%s, last exit code %d", s.State.Waiting.Reason, last.ExitCode)
		}
		return s.State.Waiting.Reason
	}
	return "not available"
}

// namedCauses is how many causes a message names.
const namedCauses = 3

func (c *causes) sum() *engine.Pods {
	var said []string
	for _, cause := range slices.Sorted(maps.Keys(c.counted)) {
		noun := "pods"
		if c.counted[cause] == 1 {
			noun = "pod"
		}
		said = append(said, fmt.Sprintf("%d %s %s", c.counted[cause], noun, cause))
	}
	if more := len(said) - namedCauses; more > 0 {
		said = append(said[:namedCauses], fmt.Sprintf("and %d more causes", more))
	}
	c.pods.Cause = strings.Join(said, "; ")
	return c.pods
}
