// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// TestNodeTaints is rule 13, on a Node that has been synced before.
func TestNodeTaints(t *testing.T) {
	const always, initialize = "taints.heirloom.dev/always=", "taints.heirloom.dev/initialize="
	enabled := inherit.Policy{ClusterAPITaints: inherit.PropagationEnabled}
	disabled := inherit.Policy{ClusterAPITaints: inherit.PropagationDisabled}
	for _, tc := range []nodeCase{
		{name: "a typed Always taint is added and recorded", machine: content{taints: "gpu=1:NoSchedule"}, node: content{taints: "z:NoSchedule"}, want: content{taints: "z:NoSchedule,gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "it is recorded in Cluster API's form where Cluster API reads it", policy: enabled, machine: content{taints: "gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "it is recorded with its value where Cluster API does not", policy: disabled, machine: content{taints: "gpu=1:NoSchedule,b:NoExecute"}, want: content{taints: "b:NoExecute,gpu=1:NoSchedule", annotations: "capi/taints=b:NoExecute,gpu=1:NoSchedule"}},
		{name: "a record in Cluster API's form stays if it says the same, wherever Cluster API is", policy: disabled, machine: content{taints: "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "a record with values becomes Cluster API's form where Cluster API reads it", policy: enabled, machine: content{taints: "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "an annotated Always taint is added and recorded apart", machine: content{annotations: always + "gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "own/taints=gpu=1:NoSchedule"}},
		{name: "typed and annotated taints are recorded each in its place", machine: content{taints: "a=1:NoSchedule", annotations: always + "b=2:NoSchedule"}, want: content{taints: "a=1:NoSchedule,b=2:NoSchedule", annotations: "capi/taints=a:NoSchedule; own/taints=b=2:NoSchedule"}},
		{name: "the typed taint wins on the same key and effect", machine: content{taints: "gpu=typed:NoSchedule", annotations: always + "gpu=annotated:NoSchedule"}, want: content{taints: "gpu=typed:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "a typed Initialize taint wins over an annotated Always one", machine: content{taints: "gpu=typed:NoSchedule@OnInitialization", annotations: always + "gpu=annotated:NoSchedule"}},

		{name: "an Always taint removed by somebody comes back", machine: content{annotations: always + "gpu:NoSchedule"}, node: content{annotations: "own/taints=gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule", annotations: "own/taints=gpu:NoSchedule"}},
		{name: "another value on the same key and effect is replaced", machine: content{taints: "gpu=1:NoSchedule"}, node: content{taints: "gpu=2:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "a foreign taint is never touched", node: content{taints: "gpu=1:NoSchedule,node.kubernetes.io/unreachable:NoExecute"}, want: content{taints: "gpu=1:NoSchedule,node.kubernetes.io/unreachable:NoExecute"}},
		{name: "a typed taint no longer declared goes", node: content{taints: "gpu=1:NoSchedule,z:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, want: content{taints: "z:NoSchedule", annotations: "capi/taints="}},
		{name: "a typed taint recorded with its value goes", policy: disabled, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu=1:NoSchedule"}, want: content{annotations: "capi/taints="}},
		{name: "with another value since, it stays", policy: disabled, node: content{taints: "gpu=2:NoSchedule", annotations: "capi/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=2:NoSchedule", annotations: "capi/taints="}},
		{name: "an annotated taint no longer declared goes, and its record", node: content{taints: "gpu=1:NoSchedule", annotations: "own/taints=gpu=1:NoSchedule"}},
		{name: "a taint that becomes typed stays in our record until Cluster API knows of it", policy: enabled, machine: content{taints: "gpu=1:NoSchedule", annotations: always + "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=b:NoSchedule; own/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=; own/taints=gpu=1:NoSchedule"}},
		{name: "also while nobody knows whether Cluster API reads it", machine: content{taints: "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "own/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=; own/taints=gpu=1:NoSchedule"}},
		{name: "once Cluster API lists it, it is recorded as typed", policy: enabled, machine: content{taints: "gpu=1:NoSchedule", annotations: always + "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule; own/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "a taint that becomes typed is recorded as typed where Cluster API reads nothing", policy: disabled, machine: content{taints: "gpu=1:NoSchedule", annotations: always + "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "own/taints=gpu=1:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu=1:NoSchedule"}},
		{name: "a taint that is annotated only from now on stays", machine: content{annotations: always + "gpu=1:NoSchedule"}, node: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=; own/taints=gpu=1:NoSchedule"}},

		{name: "an Initialize taint comes no more", machine: content{taints: "a:NoSchedule@OnInitialization", annotations: initialize + "b:NoSchedule"}},
		{name: "Always to Initialize keeps the taint and drops the record, typed", machine: content{taints: "gpu:NoSchedule@OnInitialization"}, node: content{taints: "gpu:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule", annotations: "capi/taints="}},
		{name: "Always to Initialize keeps the taint and drops the record, annotated", machine: content{annotations: initialize + "gpu:NoSchedule"}, node: content{taints: "gpu:NoSchedule", annotations: "own/taints=gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule"}},
		{name: "Initialize to Always records the taint, typed", machine: content{taints: "gpu:NoSchedule"}, node: content{taints: "gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
		{name: "Initialize to Always brings the taint back, annotated", machine: content{annotations: always + "gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule", annotations: "own/taints=gpu:NoSchedule"}},

		{name: "a broken record is passed over and put right", node: content{taints: "gpu:NoSchedule,z:NoSchedule", annotations: "capi/taints=rubbish,gpu:NoSchedule,:,a:b:c"}, want: content{taints: "z:NoSchedule", annotations: "capi/taints="}},
		{name: "a broken record of ours is passed over and goes", node: content{taints: "gpu:NoSchedule", annotations: "own/taints=gpu"}, want: content{taints: "gpu:NoSchedule"}},
		{name: "a reserved taint never reaches the Node, and that is said", machine: content{taints: "node.kubernetes.io/x:NoSchedule,gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}, problem: "node.kubernetes.io/x:NoSchedule"},
		{name: "a typo loses that entry only", machine: content{annotations: always + "typo,gpu:NoSchedule"}, want: content{taints: "gpu:NoSchedule", annotations: "own/taints=gpu:NoSchedule"}, problem: `"typo" has no effect`},
		{name: "the control plane's taint never reaches a worker", machine: content{annotations: always + "node-role.kubernetes.io/control-plane:NoSchedule"}, problem: "reserved for control plane Machines"},
		{name: "a repeated typed taint counts once", machine: content{taints: "gpu=1:NoSchedule,gpu=2:NoSchedule"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints=gpu:NoSchedule"}},
	} {
		t.Run(tc.name, tc.run)
	}
}

// TestFirstSync is rule 13 on a Node that carries no annotation taints-from-machine yet.
func TestFirstSync(t *testing.T) {
	const initialize = "taints.heirloom.dev/initialize="
	for _, tc := range []struct {
		name                string
		machine, node, want content
	}{
		{name: "the annotation is there from the first sync on, empty", want: content{annotations: "capi/taints="}},
		{name: "an Initialize taint lands with the annotation", machine: content{taints: "gpu=1:NoSchedule@OnInitialization"}, want: content{taints: "gpu=1:NoSchedule", annotations: "capi/taints="}},
		{name: "the alias Initialize means the same", machine: content{taints: "gpu:NoSchedule@Initialize"}, want: content{taints: "gpu:NoSchedule", annotations: "capi/taints="}},
		{name: "an annotated Initialize taint lands too", machine: content{annotations: initialize + "gpu:NoExecute"}, want: content{taints: "gpu:NoExecute", annotations: "capi/taints="}},
		{name: "an Always taint beside it is recorded", machine: content{taints: "a=1:NoSchedule", annotations: initialize + "b:NoExecute"}, want: content{taints: "a=1:NoSchedule,b:NoExecute", annotations: "capi/taints=a:NoSchedule"}},
		{name: "a taint that the kubelet registered with stays", machine: content{taints: "a:NoSchedule@OnInitialization"}, node: content{taints: "kubelet:NoSchedule"}, want: content{taints: "kubelet:NoSchedule,a:NoSchedule", annotations: "capi/taints="}},
		{name: "an Initialize taint replaces the kubelet's value", machine: content{taints: "a=1:NoSchedule@OnInitialization"}, node: content{taints: "a=2:NoSchedule"}, want: content{taints: "a=1:NoSchedule", annotations: "capi/taints="}},
		{name: "our own record alone does not mean that it has been synced", machine: content{annotations: initialize + "b:NoExecute"}, node: content{annotations: "own/taints=a:NoSchedule"}, want: content{taints: "b:NoExecute", annotations: "capi/taints="}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			got, err := withProblems(inherit.Policy{}.Node(inherit.SourceOfMachine(tc.machine.machine()), tc.node.node(), inherit.Privileged))
			Expect(err).NotTo(HaveOccurred())
			Expect(describe(got)).To(Equal(describe(tc.want.node())))
		})
	}
}
