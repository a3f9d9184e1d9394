// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// known holds the data that identify a Node or a Machine: addresses are like "Hostname=h,InternalIP=10.0.0.1".
type known struct{ name, nodeRef, providerID, addresses string }

func (k known) node() *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: k.providerID}}
	n.Name = k.name
	for kind, address := range labels(k.addresses) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeAddressType(kind), Address: address})
	}
	return n
}

func (k known) machine() clusterv1.Machine {
	m := clusterv1.Machine{Spec: clusterv1.MachineSpec{ProviderID: k.providerID}}
	m.Name, m.Status.NodeRef.Name = k.name, k.nodeRef
	for kind, address := range labels(k.addresses) {
		m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineAddressType(kind), Address: address})
	}
	return m
}

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		name     string
		node     known
		machines []known
		want     string
	}{
		{name: "without Machines there is none", node: known{name: "n", providerID: "aws://1"}},
		{name: "nothing in common is no match", node: known{name: "n", providerID: "aws://1", addresses: "InternalIP=10.0.0.1"}, machines: []known{{name: "a", nodeRef: "x"}, {name: "b", providerID: "aws://2"}, {name: "c", addresses: "InternalIP=10.0.0.2"}}},
		{name: "a nodeRef names the Node", node: known{name: "n"}, machines: []known{{name: "a", nodeRef: "n"}, {name: "b", nodeRef: "other"}}, want: "a"},
		{name: "an equal providerID is a match, wherever", node: known{name: "n", providerID: "aws://1"}, machines: []known{{name: "a", providerID: "aws://1"}, {name: "b", providerID: "aws://2"}}, want: "a"},
		{name: "an equal address is a match", node: known{name: "n", addresses: "InternalIP=10.0.0.1"}, machines: []known{{name: "a", addresses: "InternalIP=10.0.0.1"}}, want: "a"},
		{name: "an internal DNS name is an address", node: known{name: "n", addresses: "InternalDNS=h.local"}, machines: []known{{name: "a", addresses: "InternalDNS=h.local"}}, want: "a"},
		{name: "the Node's name is an address before it has any", node: known{name: "h"}, machines: []known{{name: "a", addresses: "Hostname=h"}}, want: "a"},
		{name: "external addresses do not count", node: known{name: "n", addresses: "ExternalIP=1.2.3.4,ExternalDNS=h.example.com"}, machines: []known{{name: "a", addresses: "ExternalIP=1.2.3.4,ExternalDNS=h.example.com"}}},

		{name: "nodeRef comes before providerID", node: known{name: "n", providerID: "aws://1"}, machines: []known{{name: "a", providerID: "aws://1"}, {name: "b", nodeRef: "n"}}, want: "b"},
		{name: "providerID comes before addresses", node: known{name: "n", providerID: "aws://1", addresses: "InternalIP=10.0.0.1"}, machines: []known{{name: "a", addresses: "InternalIP=10.0.0.1"}, {name: "b", providerID: "aws://1"}}, want: "b"},
		{name: "two nodeRefs are ambiguous", node: known{name: "n"}, machines: []known{{name: "a", nodeRef: "n"}, {name: "b", nodeRef: "n"}}},
		{name: "what is ambiguous is not settled by less", node: known{name: "n", addresses: "InternalIP=10.0.0.1"}, machines: []known{{name: "a", nodeRef: "n"}, {name: "b", nodeRef: "n", addresses: "InternalIP=10.0.0.1"}}},
		{name: "two providerIDs are ambiguous", node: known{name: "n", providerID: "aws://1"}, machines: []known{{name: "a", providerID: "aws://1"}, {name: "b", providerID: "aws://1"}}},
		{name: "two addresses are ambiguous", node: known{name: "n", addresses: "InternalIP=10.0.0.1,Hostname=h"}, machines: []known{{name: "a", addresses: "InternalIP=10.0.0.1"}, {name: "b", addresses: "Hostname=h"}}},

		{name: "a Machine that is another Node's is no match by providerID", node: known{name: "n", providerID: "aws://1"}, machines: []known{{name: "a", providerID: "aws://1", nodeRef: "other"}}},
		{name: "a Machine that is another Node's is no match by address", node: known{name: "n", addresses: "InternalIP=10.0.0.1"}, machines: []known{{name: "a", addresses: "InternalIP=10.0.0.1", nodeRef: "other"}}},
		{name: "a Machine that is another Node's leaves the free one", node: known{name: "n", addresses: "InternalIP=10.0.0.1"}, machines: []known{{name: "a", addresses: "InternalIP=10.0.0.1", nodeRef: "other"}, {name: "b", addresses: "InternalIP=10.0.0.1"}}, want: "b"},
		{name: "a nodeRef is not believed against the providerID", node: known{name: "n", providerID: "aws://new"}, machines: []known{{name: "a", nodeRef: "n", providerID: "aws://old"}}},
		{name: "the new Machine of a reused name is found by providerID", node: known{name: "n", providerID: "aws://new"}, machines: []known{{name: "a", nodeRef: "n", providerID: "aws://old"}, {name: "b", providerID: "aws://new"}}, want: "b"},
		{name: "an address is not believed against the providerID", node: known{name: "n", providerID: "aws://new", addresses: "InternalIP=10.0.0.1"}, machines: []known{{name: "a", providerID: "aws://old", addresses: "InternalIP=10.0.0.1"}}},
		{name: "a Node without providerID does not contradict", node: known{name: "n"}, machines: []known{{name: "a", nodeRef: "n", providerID: "aws://1"}}, want: "a"},

		{name: "a Node that has no name yet is no Machine's without a nodeRef", machines: []known{{name: "a"}}},
		{name: "an empty address is nobody's", node: known{name: "n", addresses: "Hostname="}, machines: []known{{name: "a", addresses: "Hostname="}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			var machines []*clusterv1.Machine
			for _, k := range tc.machines {
				m := k.machine()
				machines = append(machines, &m)
			}
			Expect(nameOf(inherit.Match(tc.node.node(), machines))).To(Equal(tc.want))
		})
	}
}

func nameOf(m *clusterv1.Machine) string {
	if m == nil {
		return ""
	}
	return m.Name
}

// A kubelet chooses its addresses. With another Machine's address it gets the restrictions of that Machine, and no privileges.
func TestAnAddressBringsNoPrivileges(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := known{name: "m", providerID: "aws://1", addresses: "InternalIP=10.0.0.1"}.machine()
	m.UID = "secret"
	m.Labels = labels("node-role.kubernetes.io/vault=,node-restriction.kubernetes.io/tenant=a,node.cluster.x-k8s.io/pool=p")
	m.Annotations = labels("node.cluster.x-k8s.io/note=n")
	m.Spec.Taints = []clusterv1.MachineTaint{{Key: "gpu", Effect: "NoSchedule", Propagation: "Always"}}
	m.Spec.FailureDomain = "z1"
	node := known{name: "n", addresses: "InternalIP=10.0.0.1"}.node()
	zone, err := inherit.ParseFact("Machine.cluster.x-k8s.io:spec.failureDomain=topology.kubernetes.io/zone")
	Expect(err).NotTo(HaveOccurred())
	policy := inherit.Policy{Facts: []inherit.Fact{zone}}
	written := func(by inherit.Turn) inherit.NodeState {
		t.Helper()
		now := inherit.OfNode(node)
		state := whole(planned(policy, policy.SourceFor(node, &m).WithFacts([]inherit.FactValue{zone.InMachine(&m)}, old(now)), now, by))
		return state
	}
	privileges := []types.GomegaMatcher{HaveKey("node-role.kubernetes.io/vault"), HaveKey("node-restriction.kubernetes.io/tenant"), HaveKey("topology.kubernetes.io/zone")}

	registered := written(kubelet)
	node.Labels, node.Annotations, node.Spec.Taints = registered.Labels, registered.Annotations, registered.Taints
	synced := written(privileged)
	Expect(synced.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "p"))
	Expect(synced.Labels).NotTo(Or(privileges...))
	Expect(synced.Annotations).To(And(HaveKeyWithValue("node.cluster.x-k8s.io/note", "n"), HaveKeyWithValue(inherit.MatchedByAddressAnnotation, HavePrefix("m."))))
	Expect(taint.FormatList(synced.Taints)).To(ContainSubstring("gpu:NoSchedule"))
	Expect(taint.Find(synced.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))).NotTo(Equal(-1), "no workload until the labels are there")

	node.Spec.ProviderID = "aws://1"
	proven := written(privileged)
	Expect(proven.Labels).To(And(privileges...))
	Expect(proven.Annotations).NotTo(Or(HaveKey(inherit.MatchedByAddressAnnotation), HaveKey(inherit.UninitializedAnnotation)))
	Expect(taint.FormatList(proven.Taints)).To(Equal("gpu:NoSchedule"))

	node.Spec.ProviderID = ""
	node.Labels, node.Annotations, node.Spec.Taints = proven.Labels, proven.Annotations, proven.Taints
	borrowed := written(privileged)
	Expect(borrowed.Labels).NotTo(Or(privileges...), "privileges that an earlier release granted by address go")
	Expect(m.Labels).To(HaveLen(3), "the input is not mutated")
}

// The entries that a Node has by an address match go when the Machine belongs to another Node, and stay when the kubelet reports another
// address or providerID. A kubelet that forges a record, or copies another Node's record, achieves nothing.
func TestNoLongerMatches(t *testing.T) {
	for _, tc := range []struct {
		name    string
		node    known
		machine known
		// record replaces the record of the Node and the Machine, if set.
		record string
		want   bool
	}{
		{name: "a Node that still has the address", node: known{name: "n", addresses: "InternalIP=10.0.0.1"}, machine: known{name: "m", addresses: "InternalIP=10.0.0.1"}},
		{name: "a Node that has another", node: known{name: "n", addresses: "InternalIP=10.0.0.2"}, machine: known{name: "m", addresses: "InternalIP=10.0.0.1"}},
		{name: "a Machine that is another Node", node: known{name: "n"}, machine: known{name: "m", nodeRef: "other"}, want: true},
		{name: "a Machine that is this Node", node: known{name: "n"}, machine: known{name: "m", nodeRef: "n", addresses: "InternalIP=10.0.0.1"}},
		{name: "a Node that claims to be another instance", node: known{name: "n", providerID: "aws://2"}, machine: known{name: "m", providerID: "aws://1"}},
		{name: "a record that is made up", node: known{name: "n"}, machine: known{name: "m", nodeRef: "other"}, record: "m.00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node, m := tc.node.node(), tc.machine.machine()
			record := known{name: tc.node.name}.node()
			unknown := m
			unknown.Spec.ProviderID, unknown.Status.NodeRef.Name = "", ""
			had := whole(planned(inherit.Policy{}, inherit.Policy{}.SourceFor(record, &unknown), inherit.NodeState{}, kubelet))
			node.Annotations = had.Annotations
			if tc.record != "" {
				node.Annotations[inherit.MatchedByAddressAnnotation] = tc.record
			} else {
				NewWithT(t).Expect(inherit.MatchedBefore(node)).To(Equal("m"))
			}
			NewWithT(t).Expect(inherit.NoLongerMatches(node, &m)).To(Equal(tc.want))
			NewWithT(t).Expect(inherit.WasMatched(node, &m)).To(Equal(tc.record == ""))
		})
	}
	NewWithT(t).Expect(inherit.MatchedBefore(known{name: "n"}.node())).To(BeEmpty())
}
