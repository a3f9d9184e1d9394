// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestMachine is rule 8: MachineSet spec.template → Machine.
func TestMachine(t *testing.T) {
	const always, initialize = "taints.heirloom.dev/always=", "taints.heirloom.dev/initialize="
	const unknown, enabled, disabled = inherit.PropagationUnknown, inherit.PropagationEnabled, inherit.PropagationDisabled
	for _, tc := range []struct {
		name         string
		taints       inherit.TaintPropagation
		template     content
		selects      string
		machine      content
		controlPlane bool
		orphan       bool
		want         content
		problem      string
	}{
		{name: "an empty template brings nothing", machine: content{labels: "mine=1", annotations: "mine=1"}},
		{name: "labels and annotations reach the Machine", template: content{labels: "team=a", annotations: "note=x"}, want: content{labels: "team=a", annotations: "note=x"}},
		{name: "what the Machine has besides is no business of the rules", template: content{labels: "team=a"}, machine: content{labels: "mine=1,team=b"}, want: content{labels: "team=a"}},
		{name: "a label that the MachineSet selects by is not touched", template: content{labels: "team=a,pool=x"}, selects: "pool=x", want: content{labels: "team=a"}},
		{name: "typed taints reach the Machine", template: content{taints: "gpu=true:NoSchedule,b:NoExecute@OnInitialization"}, want: content{taints: "gpu=true:NoSchedule,b:NoExecute@OnInitialization"}},
		{name: "typed taints reach the Machine where Cluster API accepts them", taints: enabled, template: content{taints: "gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule"}},
		{name: "typed taints stay where Cluster API would refuse them", taints: disabled, template: content{taints: "gpu:NoSchedule"}},
		{name: "a Machine without an owner inherits nothing", orphan: true, machine: content{labels: "mine=1", taints: "x:NoSchedule"}},

		{name: "annotated taints stay annotations while nothing is known", taints: unknown, template: content{annotations: always + "gpu:NoSchedule"}, want: content{annotations: always + "gpu:NoSchedule"}},
		{name: "annotated taints stay annotations where Cluster API would refuse typed ones", taints: disabled, template: content{annotations: always + "gpu:NoSchedule"}, want: content{annotations: always + "gpu:NoSchedule"}},
		{name: "annotated taints become typed too where Cluster API accepts them", taints: enabled, template: content{annotations: always + "gpu=1:NoSchedule; " + initialize + "b:NoExecute"}, want: content{annotations: always + "gpu=1:NoSchedule; " + initialize + "b:NoExecute", taints: "b:NoExecute@OnInitialization,gpu=1:NoSchedule"}},
		{name: "so do those that only the Machine carries", taints: enabled, machine: content{annotations: always + "gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule"}},
		{name: "so do those of a Machine without a MachineSet", taints: enabled, orphan: true, machine: content{annotations: initialize + "gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule@OnInitialization"}},
		{name: "the template's annotation counts, not the one it replaces", taints: enabled, template: content{annotations: always + "new:NoSchedule"}, machine: content{annotations: always + "old:NoSchedule"}, want: content{annotations: always + "new:NoSchedule", taints: "new:NoSchedule"}},
		{name: "the template's typed taint wins over an annotated one", taints: enabled, template: content{taints: "gpu=typed:NoSchedule", annotations: always + "gpu=annotated:NoSchedule"}, want: content{taints: "gpu=typed:NoSchedule", annotations: always + "gpu=annotated:NoSchedule"}},
		{name: "a typo loses that entry only, and says so", taints: enabled, machine: content{annotations: always + "typo,gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule"}, problem: `"typo" has no effect`},
		{name: "nobody hears of a typo where annotations stay annotations", taints: disabled, machine: content{annotations: always + "typo"}},

		{name: "a reserved taint is left out, and said so", template: content{taints: "node.kubernetes.io/x:NoSchedule,gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule"}, problem: "node.kubernetes.io/x:NoSchedule"},
		{name: "an annotated reserved taint is left out, and said so", taints: enabled, machine: content{annotations: always + "node.kubernetes.io/x:NoSchedule"}, problem: "node.kubernetes.io/x:NoSchedule"},
		{name: "the control plane's taint is left out for a worker", template: content{taints: "node-role.kubernetes.io/control-plane:NoSchedule"}, problem: "reserved for control plane Machines"},
		{name: "the control plane's taint is for the control plane", taints: enabled, orphan: true, controlPlane: true, machine: content{annotations: always + "node-role.kubernetes.io/control-plane:NoSchedule"}, want: content{taints: "node-role.kubernetes.io/control-plane:NoSchedule"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			ms := &clusterv1.MachineSet{Spec: clusterv1.MachineSetSpec{Selector: selector(tc.selects, ""), Template: tc.template.template()}}
			if tc.orphan {
				ms = nil
			}
			m := tc.machine.machine()
			if tc.controlPlane {
				m = tc.machine.controller()
			}
			msBefore, mBefore := ms.DeepCopy(), m.DeepCopy()

			got, err := withProblems(inherit.Policy{ClusterAPITaints: tc.taints}.MachineFrom(inherit.TemplateOfMachineSet(ms), m))

			expectProblem(t, err, tc.problem)
			Expect(describeContent(&got.Top)).To(Equal(tc.want.want()))
			Expect(got.Template).To(BeNil())
			Expect(ms).To(Equal(msBefore), "the input is not mutated")
			Expect(m).To(Equal(mBefore), "the input is not mutated")
		})
	}
}

// docs/design.md §3: on the same key and effect the typed field wins. Here somebody set the Machine's own typed field, so the
// annotated taint is handed on as Default; package managedfields lets the child's own win over it.
func TestAMachinesOwnTypedTaintWinsOverItsAnnotation(t *testing.T) {
	m := content{taints: "gpu=typed:NoSchedule", annotations: "taints.heirloom.dev/always=gpu=annotated:NoSchedule"}.machine()
	got, err := withProblems(inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}.MachineFrom(nil, m))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(got.Top.Taints).To(HaveLen(1))
	NewWithT(t).Expect(got.Top.Claims).To(Equal(map[string]inherit.Claim{"gpu:NoSchedule": inherit.Default}))
}

// Cluster API brings what is typed to all Nodes at once. So where the pace of evictions counts, taints that evict become typed
// only in Machines that have no Node yet, and those that Cluster API has brought already stay typed.
func TestTaintsThatEvictBecomeTypedInNewMachinesOnly(t *testing.T) {
	const always, initialize = "taints.heirloom.dev/always=", "taints.heirloom.dev/initialize="
	for _, tc := range []struct {
		name                 string
		nodeRef, providerID  string
		annotations, typed   string
		unpaced, gateUnknown bool
		want                 string
	}{
		{name: "a new Machine", annotations: always + "a:NoExecute,b:NoSchedule;" + initialize + "c:NoExecute", want: "a:NoExecute,b:NoSchedule,c:NoExecute@OnInitialization"},
		{name: "a Machine with a Node", nodeRef: "n", annotations: always + "a:NoExecute,b:NoSchedule;" + initialize + "c:NoExecute", want: "b:NoSchedule"},
		{name: "one whose Node is not known again yet", providerID: "p", annotations: always + "a:NoExecute,b:NoSchedule", want: "b:NoSchedule"},
		{name: "what is typed already stays", nodeRef: "n", annotations: always + "a:NoExecute", typed: "a:NoExecute", want: "a:NoExecute"},
		{name: "and follows its declaration", nodeRef: "n", annotations: always + "a=new:NoExecute", typed: "a=old:NoExecute", want: "a=new:NoExecute"},
		{name: "and may become Initialize, which evicts nobody", nodeRef: "n", annotations: initialize + "a:NoExecute", typed: "a:NoExecute", want: "a:NoExecute@OnInitialization"},
		{name: "but not Always, which the Node may not have", nodeRef: "n", annotations: always + "a:NoExecute", typed: "a:NoExecute@OnInitialization"},
		{name: "without a pace all become typed", nodeRef: "n", unpaced: true, annotations: always + "a:NoExecute", want: "a:NoExecute"},
		{name: "while the gate is not known, what is typed stays", nodeRef: "n", gateUnknown: true, annotations: always + "a:NoExecute,b:NoExecute", typed: "a:NoExecute", want: "a:NoExecute"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			policy := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled, PaceEviction: !tc.unpaced}
			if tc.gateUnknown {
				policy.ClusterAPITaints = inherit.PropagationUnknown
			}
			m := content{annotations: tc.annotations, taints: tc.typed}.machine()
			m.Status.NodeRef.Name, m.Spec.ProviderID = tc.nodeRef, tc.providerID
			got, err := withProblems(policy.MachineFrom(nil, m))
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(describeContent(&got.Top)).To(Equal(content{taints: tc.want}.want()))
		})
	}
}
