package podcauses

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/rollout/engine"
)

// The deadline excuses pods that got their nodes late. The first of several pods that got
// its node counts. None counts if the API server refuses pods of the template.
func TestCauses_PlacedTime(t *testing.T) {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	after := func(d time.Duration) metav1.Time { return metav1.Time{Time: created.Add(d)} }
	pod := func(node string, conditions ...corev1.PodCondition) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: after(0)},
			Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Conditions: conditions},
		}
	}
	scheduled := func(status corev1.ConditionStatus, d time.Duration) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.PodScheduled, Status: status, LastTransitionTime: after(d)}
	}
	refused := &appsv1.ReplicaSet{
		Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To(int32(1))},
		Status: appsv1.ReplicaSetStatus{
			Conditions: []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Message: "denied"}},
		},
	}
	for _, tc := range []struct {
		name    string
		pods    []corev1.Pod
		lost    string // the node that does not answer
		rs      *appsv1.ReplicaSet
		failing int32
		placed  time.Time
	}{
		{name: "the first of two", failing: 2, placed: created.Add(time.Minute),
			pods: []corev1.Pod{pod("a", scheduled(corev1.ConditionTrue, 9*time.Minute)), pod("b", scheduled(corev1.ConditionTrue, time.Minute))}},
		{name: "one that names its node itself", pods: []corev1.Pod{pod("a")}, failing: 1, placed: created},
		{name: "one without a node does not fail", failing: 1, placed: created.Add(9 * time.Minute),
			pods: []corev1.Pod{pod("", scheduled(corev1.ConditionFalse, 0)), pod("b", scheduled(corev1.ConditionTrue, 9*time.Minute))}},
		{name: "one on a lost node does not fail", lost: "a", failing: 1, placed: created.Add(time.Minute),
			pods: []corev1.Pod{pod("a", scheduled(corev1.ConditionTrue, 0)), pod("b", scheduled(corev1.ConditionTrue, time.Minute))}},
		{name: "all on a lost node", lost: "a", pods: []corev1.Pod{pod("a", scheduled(corev1.ConditionTrue, 0))}},
		{name: "one is refused", failing: 2, rs: refused, pods: []corev1.Pod{pod("a", scheduled(corev1.ConditionTrue, 9*time.Minute))}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := created.Add(time.Hour)
			c := causes{pods: &engine.Pods{}, counted: map[string]int32{}, since: now.Sub}
			if tc.rs != nil {
				c.notCreated(tc.rs)
			}
			for i := range tc.pods {
				c.add(&tc.pods[i], tc.lost != "" && tc.pods[i].Spec.NodeName == tc.lost)
			}
			if got := c.sum(now); got.Failing != tc.failing || !got.PlacedTime.Equal(tc.placed) {
				t.Errorf("%d failing since %s, want %d since %s", got.Failing, got.PlacedTime, tc.failing, tc.placed)
			}
		})
	}
}
