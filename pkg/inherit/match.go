// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Match returns the Machine that a Node is, or nil (docs/design.md §4): by status.nodeRef, then by spec.providerID, then by an
// address. If several Machines fit, or the one that fits already is another Node, the result is nil. Labels and annotations do not
// count, because the kubelet writes them.
//
// A name or an address is no proof: see Policy.SourceFor.
//
// sameCluster says that all machines belong to the Cluster that the Node is in. Without that knowledge, names and
// addresses prove nothing, because Clusters may reuse them: then only an equal providerID counts.
func Match(node *corev1.Node, machines []clusterv1.Machine, sameCluster bool) *clusterv1.Machine {
	fits := []func(*clusterv1.Machine) bool{
		func(m *clusterv1.Machine) bool {
			return sameCluster && node.Name != "" && m.Status.NodeRef.Name == node.Name
		},
		func(m *clusterv1.Machine) bool {
			return m.Spec.ProviderID != "" && m.Spec.ProviderID == node.Spec.ProviderID
		},
		func(m *clusterv1.Machine) bool { return sameCluster && sharesAddress(node, m) },
	}
	for _, fit := range fits {
		var match *clusterv1.Machine
		for i := range machines {
			m := &machines[i]
			switch {
			case !fit(m) || contradicts(node, m):
			case match != nil:
				return nil
			default:
				match = m
			}
		}
		if match != nil {
			return match
		}
	}
	return nil
}

// contradicts reports whether both sides name different instances, as when a new Node took over an old Node's name.
func contradicts(node *corev1.Node, m *clusterv1.Machine) bool {
	return m.Spec.ProviderID != "" && node.Spec.ProviderID != "" && m.Spec.ProviderID != node.Spec.ProviderID ||
		m.Status.NodeRef.Name != "" && m.Status.NodeRef.Name != node.Name
}

// MostAddresses is how many addresses of a Node count. Kubelets and cloud providers report a few; each costs a look-up.
const MostAddresses = 64

// NodeNames returns the names and addresses by which a Node is known inside its cluster, each once.
func NodeNames(node *corev1.Node) []string {
	names := []string{node.Name}
	for _, address := range NodeAddresses(node) {
		names = append(names, address.Address)
	}
	slices.Sort(names)
	return slices.Compact(notEmpty(names))
}

// NodeAddresses returns those of a Node's addresses by which it is known inside its cluster.
func NodeAddresses(node *corev1.Node) []corev1.NodeAddress {
	var inside []corev1.NodeAddress
	for _, address := range node.Status.Addresses[:min(len(node.Status.Addresses), MostAddresses)] {
		switch address.Type {
		case corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeInternalIP:
			inside = append(inside, address)
		}
	}
	return inside
}

// MachineNames returns the names and addresses by which a Machine is known inside its cluster.
func MachineNames(m *clusterv1.Machine) []string {
	var names []string
	for _, address := range MachineAddresses(m) {
		names = append(names, address.Address)
	}
	return notEmpty(names)
}

// MachineAddresses returns those of a Machine's addresses by which it is known inside its cluster.
func MachineAddresses(m *clusterv1.Machine) []clusterv1.MachineAddress {
	var inside []clusterv1.MachineAddress
	for _, address := range m.Status.Addresses {
		switch address.Type {
		case clusterv1.MachineHostName, clusterv1.MachineInternalDNS, clusterv1.MachineInternalIP:
			inside = append(inside, address)
		}
	}
	return inside
}

func notEmpty(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

func sharesAddress(node *corev1.Node, m *clusterv1.Machine) bool {
	known := sets.New(NodeNames(node)...)
	return slices.ContainsFunc(MachineNames(m), known.Has)
}
