package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	podsPerNode = 1000
	// podNetworkBits leaves each node a network with an address for every pod.
	podNetworkBits = 22
	// maxNodes is how many such networks there are from 10.128.0.0 to the end of 10.0.0.0/8.
	maxNodes = 1 << (podNetworkBits - 9)
)

// Nodes have the addresses 172.16.0.1, 172.16.0.2 and so on, their pods the networks 10.128.0.0/22, 10.128.4.0/22 and so on.
var (
	nodeAddresses = netip.MustParseAddr("172.16.0.1")
	podNetworks   = netip.MustParseAddr("10.128.0.0")
)

// nodeLabels are on the nodes that we registered.
var nodeLabels = map[string]string{"type": "kwok"}

// registerNodes makes the first n nodes, and takes away what an earlier Run with more of them left.
func registerNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	nodes := client.CoreV1().Nodes()
	wanted := make(map[string]bool, n)
	for i := range n {
		node := newNode(i)
		wanted[node.Name] = true
		if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("registering node %s: %w", node.Name, err)
		}
	}
	existing, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(metav1.SetAsLabelSelector(nodeLabels))})
	if err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for _, node := range existing.Items {
		if wanted[node.Name] {
			continue
		}
		if err := nodes.Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing node %s: %w", node.Name, err)
		}
	}
	return nil
}

func newNode(i int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	podNetwork := netip.PrefixFrom(plus(podNetworks, i<<(32-podNetworkBits)), podNetworkBits).String()
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("1k"),
		corev1.ResourceMemory:           resource.MustParse("4Ti"),
		corev1.ResourceEphemeralStorage: resource.MustParse("16Ti"),
		corev1.ResourcePods:             *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	labels := map[string]string{
		corev1.LabelHostname:   name,
		corev1.LabelOSStable:   "linux",
		corev1.LabelArchStable: "amd64",
	}
	for k, v := range nodeLabels {
		labels[k] = v
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{PodCIDR: podNetwork, PodCIDRs: []string{podNetwork}},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: plus(nodeAddresses, i).String()},
				{Type: corev1.NodeHostName, Address: name},
			},
		},
	}
}

// plus is the address n after another, both IPv4.
func plus(addr netip.Addr, n int) netip.Addr {
	bytes := addr.As4()
	binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])+uint32(n))
	return netip.AddrFrom4(bytes)
}

// usable reports whether the scheduler puts pods on a node and kwok plays them.
func usable(node *corev1.Node) bool {
	if len(node.Spec.Taints) > 0 {
		return false
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
