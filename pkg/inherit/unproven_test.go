// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// A kubelet chooses its addresses. With another Machine's it gets what restricts it, and no privileges.
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
	written := func(by inherit.Writer) inherit.NodeState {
		t.Helper()
		now := inherit.OfNode(node, time.Now())
		state, err := withProblems(policy.Node(policy.SourceFor(node, &m).WithFacts([]inherit.FactValue{zone.InMachine(&m)}, now), now, by))
		Expect(err).NotTo(HaveOccurred())
		return state
	}
	privileges := []types.GomegaMatcher{HaveKey("node-role.kubernetes.io/vault"), HaveKey("node-restriction.kubernetes.io/tenant"), HaveKey("topology.kubernetes.io/zone")}

	registered := written(inherit.Kubelet)
	node.Labels, node.Annotations, node.Spec.Taints = registered.Labels, registered.Annotations, registered.Taints
	synced := written(inherit.Privileged)
	Expect(synced.Labels).To(HaveKeyWithValue("node.cluster.x-k8s.io/pool", "p"))
	Expect(synced.Labels).NotTo(Or(privileges...))
	Expect(synced.Annotations).To(And(HaveKeyWithValue("node.cluster.x-k8s.io/note", "n"), HaveKeyWithValue(inherit.MatchedByAddressAnnotation, HavePrefix("m."))))
	Expect(taint.FormatList(synced.Taints)).To(ContainSubstring("gpu:NoSchedule"))
	Expect(taint.Find(synced.Taints, taint.IDOf(clusterv1.NodeUninitializedTaint))).NotTo(Equal(-1), "no workload until the labels are there")

	node.Spec.ProviderID = "aws://1"
	proven := written(inherit.Privileged)
	Expect(proven.Labels).To(And(privileges...))
	Expect(proven.Annotations).NotTo(Or(HaveKey(inherit.MatchedByAddressAnnotation), HaveKey(inherit.UninitializedAnnotation)))
	Expect(taint.FormatList(proven.Taints)).To(Equal("gpu:NoSchedule"))

	node.Spec.ProviderID = ""
	node.Labels, node.Annotations, node.Spec.Taints = proven.Labels, proven.Annotations, proven.Taints
	borrowed := written(inherit.Privileged)
	Expect(borrowed.Labels).NotTo(Or(privileges...), "what an earlier release gave for an address goes")
	Expect(m.Labels).To(HaveLen(3), "the input is not mutated")
}

// What came by an address goes when that Machine is another Node, and not because a kubelet has another address or providerID. A
// kubelet that makes a record up, or takes another Node's, achieves nothing.
func TestNoLongerMatches(t *testing.T) {
	for _, tc := range []struct {
		name    string
		node    known
		machine known
		// record is another one than that of the Node and the Machine.
		record string
		want   bool
	}{
		{name: "a Node that still has the address", node: known{name: "n", addresses: "InternalIP=10.0.0.1"}, machine: known{name: "m", addresses: "InternalIP=10.0.0.1"}},
		{name: "a Node that has another", node: known{name: "n", addresses: "InternalIP=10.0.0.2"}, machine: known{name: "m", addresses: "InternalIP=10.0.0.1"}},
		{name: "a Machine without addresses", node: known{name: "n"}, machine: known{name: "m"}},
		{name: "a Machine that is another Node", node: known{name: "n"}, machine: known{name: "m", nodeRef: "other"}, want: true},
		{name: "a Machine that is this Node", node: known{name: "n"}, machine: known{name: "m", nodeRef: "n", addresses: "InternalIP=10.0.0.1"}},
		{name: "a Node that claims to be another instance", node: known{name: "n", providerID: "aws://2"}, machine: known{name: "m", providerID: "aws://1"}},
		{name: "a record that is made up", node: known{name: "n"}, machine: known{name: "m", nodeRef: "other"}, record: "m.00"},
		{name: "no record", node: known{name: "n"}, machine: known{name: "m", nodeRef: "other"}, record: "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node, m := tc.node.node(), tc.machine.machine()
			record := known{name: tc.node.name}.node()
			unknown := m
			unknown.Spec.ProviderID, unknown.Status.NodeRef.Name = "", ""
			had, err := withProblems(inherit.Policy{}.Node(inherit.Policy{}.SourceFor(record, &unknown), inherit.NodeState{}, inherit.Kubelet))
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
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
