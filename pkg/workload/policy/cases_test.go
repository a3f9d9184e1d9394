// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// declaring returns a Machine without declarations that has a providerID.
func declaring(name string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	m.Spec.ProviderID = "cloud:///" + name
	return m
}

// addressed returns a Machine that has only a name and addresses, and no providerID.
func addressed(name string, addresses ...string) *clusterv1.Machine {
	m := declaring(name)
	m.Spec.ProviderID = ""
	m.Annotations["node.cluster.x-k8s.io/a"] = name
	for _, address := range addresses {
		m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: address})
	}
	return m
}

// anonymous returns a Node with addresses and without a providerID.
func anonymous(name string, addresses ...string) *corev1.Node {
	node := nodeNamed(name)
	for _, address := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return node
}

// taintsOf returns the taints of a Node in kubectl's format.
func taintsOf(state inherit.NodeState) []string {
	var all []string
	for _, t := range state.Taints {
		all = append(all, taint.FormatList([]corev1.Taint{t}))
	}
	return all
}
