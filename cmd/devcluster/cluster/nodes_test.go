package cluster

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestRegisterNodes(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "somebody-elses"}})
	for _, test := range []struct {
		n      int
		reason string
		want   []string
	}{
		{2, "all are made", []string{"node-0", "node-1", "somebody-elses"}},
		{3, "those there already stay", []string{"node-0", "node-1", "node-2", "somebody-elses"}},
		{1, "the surplus goes, what is not ours stays", []string{"node-0", "somebody-elses"}},
	} {
		if err := registerNodes(t.Context(), client, test.n); err != nil {
			t.Fatal(err)
		}
		list, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, node := range list.Items {
			names = append(names, node.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, test.want) {
			t.Errorf("%d nodes: %s: got %v, want %v", test.n, test.reason, names, test.want)
		}
	}
}

func TestPodNetworksDoNotOverlap(t *testing.T) {
	previous := netip.MustParsePrefix(newNode(0).Spec.PodCIDR)
	for i := 1; i < maxNodes; i++ {
		network := netip.MustParsePrefix(newNode(i).Spec.PodCIDR)
		if network.Overlaps(previous) || network.Masked() != network {
			t.Fatalf("node %d has %s, node %d has %s", i-1, previous, i, network)
		}
		previous = network
	}
	if last := "10.255.252.0/22"; previous.String() != last {
		t.Errorf("the last node has %s, want %s", previous, last)
	}
}

func TestUsable(t *testing.T) {
	ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	tainted := corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}}
	for _, test := range []struct {
		reason string
		node   corev1.Node
		want   bool
	}{
		{"kwok has not played it yet", corev1.Node{}, false},
		{"the scheduler still avoids it", corev1.Node{Spec: tainted, Status: ready}, false},
		{"pods go there", corev1.Node{Status: ready}, true},
	} {
		if got := usable(&test.node); got != test.want {
			t.Errorf("%s: got %v", test.reason, got)
		}
	}
}
