// SPDX-License-Identifier: Apache-2.0

package integration

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// declaring is a Machine as it is once it has inherited, before it has a Node.
func declaring(name string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	m.Spec.ProviderID = stage.ProviderID(name)
	return m
}

// declaringAll is a Machine with one of everything.
func declaringAll(name string) *clusterv1.Machine {
	m, d := declaring(name), declared()
	m.Labels, m.Annotations, m.Spec.Taints = d.Labels, d.Annotations, d.Taints
	m.Labels["topology.kubernetes.io/zone"] = "z"
	m.Annotations["node.cluster.x-k8s.io/odd"] = "a=b,c\n100%25 %0A\n\n'\"\\ ß"
	return m
}

// addressed is a Machine that is found by addresses alone.
func addressed(name string, addresses ...string) *clusterv1.Machine {
	m := declaring(name)
	m.Spec.ProviderID = ""
	m.Annotations["node.cluster.x-k8s.io/a"] = name
	for _, address := range addresses {
		m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: address})
	}
	return m
}

// anonymous makes a Node bring addresses instead of a providerID.
func anonymous(addresses ...string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Spec.ProviderID = ""
		for _, address := range addresses {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
		}
	}
}
