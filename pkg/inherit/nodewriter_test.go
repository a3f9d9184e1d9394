// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

const (
	uninitialized = "node.cluster.x-k8s.io/uninitialized:NoSchedule"
	guarded       = "heirloom.dev/uninitialized=added"
)

// TestKubeletRegisters is what a kubelet's CREATE may bring: whatever NodeRestriction accepts, and nothing else. The
// Machines are of a control plane, so that the guard, tested below, adds nothing.
func TestKubeletRegisters(t *testing.T) {
	for _, tc := range []struct {
		name          string
		policy        inherit.Policy
		machine, node content
		want          content
	}{
		{name: "managed labels come at once", machine: content{labels: "node.cluster.x-k8s.io/a=1,x.node.cluster.x-k8s.io/b=2"}, want: content{labels: "node.cluster.x-k8s.io/a=1,x.node.cluster.x-k8s.io/b=2", annotations: "capi/labels=node.cluster.x-k8s.io/a,x.node.cluster.x-k8s.io/b; capi/taints="}},
		{name: "a role must wait, and is not recorded", machine: content{labels: "node-role.kubernetes.io/gpu="}, want: content{annotations: "capi/taints="}},
		{name: "a restricted label must wait", machine: content{labels: "node-restriction.kubernetes.io/a=,x.node-restriction.kubernetes.io/b="}, want: content{annotations: "capi/taints="}},
		{name: "unrestricted labels of a regex come at once", policy: inherit.Policy{AdditionalLabels: regexes(".*")}, machine: content{labels: "team=a,mykubernetes.io/b=1,x-k8s.io/c=1"}, want: content{labels: "team=a,mykubernetes.io/b=1,x-k8s.io/c=1", annotations: "own/labels=mykubernetes.io/b,team,x-k8s.io/c; capi/taints="}},
		{name: "other labels of kubernetes.io and k8s.io must wait", policy: inherit.Policy{AdditionalLabels: regexes(".*")}, machine: content{labels: "topology.kubernetes.io/zone=z,kubernetes.io/os=linux,x.k8s.io/a=1,k8s.io/b=1"}, want: content{annotations: "capi/taints="}},
		{name: "what the kubelet brings itself stays as it is", policy: inherit.Policy{AdditionalLabels: regexes(".*")}, machine: content{labels: "kubernetes.io/os=plan9"}, node: content{labels: "kubernetes.io/os=linux,mine=1"}, want: content{labels: "kubernetes.io/os=linux,mine=1", annotations: "capi/taints="}},
		{name: "annotations come at once", machine: content{annotations: "node.cluster.x-k8s.io/a=1"}, want: content{annotations: "node.cluster.x-k8s.io/a=1; capi/annotations=node.cluster.x-k8s.io/a; capi/taints="}},
		{name: "Always and Initialize taints come at once", machine: content{taints: "a=1:NoSchedule,b:NoExecute@OnInitialization", annotations: "taints.heirloom.dev/always=c:NoSchedule"}, want: content{taints: "a=1:NoSchedule,b:NoExecute,c:NoSchedule", annotations: "capi/taints=a:NoSchedule; own/taints=c:NoSchedule"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			node := tc.node.node()
			m := tc.machine.controller()
			got, err := withProblems(tc.policy.Node(inherit.SourceOfMachine(m), node, inherit.Kubelet))
			Expect(err).NotTo(HaveOccurred())
			Expect(describe(got)).To(Equal(describe(tc.want.node())))
			Expect(node).To(Equal(tc.node.node()), "the input is not mutated")

			later, err := withProblems(tc.policy.Node(inherit.SourceOfMachine(m), got, inherit.Privileged))
			Expect(err).NotTo(HaveOccurred())
			for key, value := range tc.machine.machine().Labels {
				Expect(later.Labels).To(HaveKeyWithValue(key, value), "what had to wait comes with the first write by someone who may")
			}
		})
	}
}

// An API server asks again about a create when something else has changed the object since: the answer stays the same.
func TestAskingAgainChangesNothing(t *testing.T) {
	Expect := NewWithT(t).Expect
	m := content{labels: "node.cluster.x-k8s.io/a=1", taints: "gpu=1:NoSchedule"}.machine()
	first, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(m), content{}.node(), inherit.Kubelet))
	Expect(err).NotTo(HaveOccurred())
	Expect(first.Annotations).To(HaveKey(inherit.UninitializedAnnotation))
	second, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(m), first, inherit.Kubelet))
	Expect(err).NotTo(HaveOccurred())
	Expect(describe(second)).To(Equal(describe(first)))
}

func TestKept(t *testing.T) {
	for _, tc := range []struct {
		name                   string
		old, requested, result content
		want                   []string
	}{
		{name: "a request that changes nothing keeps nothing", old: content{labels: "a=1", taints: "t:NoSchedule"}, requested: content{labels: "a=1", taints: "t:NoSchedule"}, result: content{labels: "a=1", taints: "t:NoSchedule"}},
		{name: "what was taken away and put back was kept", old: content{labels: "a=1", annotations: "b=2", taints: "t=3:NoSchedule"}, result: content{labels: "a=1", annotations: "b=2", taints: "t=3:NoSchedule"}, want: []string{`label "a"`, `annotation "b"`, `taint "t=3:NoSchedule"`}},
		{name: "what was changed and put back was kept", old: content{labels: "a=1", annotations: "b=2", taints: "t=3:NoSchedule"}, requested: content{labels: "a=x", annotations: "b=x", taints: "t=x:NoSchedule"}, result: content{labels: "a=1", annotations: "b=2", taints: "t=3:NoSchedule"}, want: []string{`label "a"`, `annotation "b"`, `taint "t=3:NoSchedule"`}},
		{name: "what is new was not kept", result: content{labels: "a=1", annotations: "b=2", taints: "t:NoSchedule"}},
		{name: "what gets a new value was not kept", old: content{labels: "a=1", taints: "t=1:NoSchedule"}, result: content{labels: "a=2", taints: "t=2:NoSchedule"}},
		{name: "what really goes was not kept", old: content{labels: "a=1", annotations: "b=2", taints: "t:NoSchedule"}},
		{name: "names are in order", old: content{labels: "b=1,c=1,a=1"}, result: content{labels: "b=1,c=1,a=1"}, want: []string{`label "a"`, `label "b"`, `label "c"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			NewWithT(t).Expect(named(inherit.Kept(tc.old.node(), tc.requested.node(), tc.result.node()))).To(Equal(tc.want))
		})
	}
}

func named(keys []inherit.NodeKey) []string {
	var names []string
	for _, key := range keys {
		names = append(names, key.String())
	}
	return names
}

// A kubelet that registers may send any annotation. None of it makes its Node escape what its Machine declares.
func TestAKubeletCannotClaimToBeInitialized(t *testing.T) {
	m := content{labels: "node.cluster.x-k8s.io/a=1", annotations: "taints.heirloom.dev/initialize=warm:NoSchedule"}.machine()
	claims := inherit.NodeState{Annotations: map[string]string{
		clusterv1.TaintsFromMachineAnnotation: "", clusterv1.LabelsFromMachineAnnotation: "x",
		inherit.LabelsFromMachineAnnotation: "y", inherit.UninitializedAnnotation: "added", "mine": "1",
	}}
	state, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(m), claims, inherit.Kubelet))
	Expect := NewWithT(t).Expect
	Expect(err).NotTo(HaveOccurred())
	Expect(state.Taints).To(ContainElement(HaveField("Key", "warm")))
	Expect(state.Annotations).To(And(
		HaveKeyWithValue(clusterv1.LabelsFromMachineAnnotation, "node.cluster.x-k8s.io/a"),
		Not(HaveKey(inherit.LabelsFromMachineAnnotation)), HaveKeyWithValue("mine", "1"),
	))
	Expect(claims.Annotations).To(HaveLen(5), "the input is not mutated")
}
