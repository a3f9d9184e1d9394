// SPDX-License-Identifier: Apache-2.0

package inherit_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// A gate opens once: its taint goes when the Node has the condition or a ready Pod of the DaemonSet, and never comes back. The record of
// opened gates drops a gate that is no longer declared.
func TestGatesOpenOnce(t *testing.T) {
	const net, cni = "taints.heirloom.dev/until=net=calico:NoSchedule until condition Net=False", "taints.heirloom.dev/until=cni:NoExecute until daemonset kube-system/cni"
	const opened = "heirloom.dev/opened-gates="
	conditions := []corev1.NodeCondition{{Type: "Ready", Status: "True"}, {Type: "Net", Status: "False"}}
	ready := sets.New(types.NamespacedName{Namespace: "kube-system", Name: "cni"})
	for _, tc := range []struct {
		name                string
		machine, node, want content
		conditions          []corev1.NodeCondition
		ready               sets.Set[types.NamespacedName]
		closed              int
	}{
		{name: "a condition opens a gate", machine: content{annotations: net}, conditions: conditions, node: content{taints: "net=calico:NoSchedule,z:NoSchedule"}, want: content{taints: "z:NoSchedule", annotations: opened + "net:NoSchedule"}},
		{name: "a DaemonSet opens a gate", machine: content{annotations: cni}, ready: ready, node: content{taints: "cni:NoExecute"}, want: content{annotations: opened + "cni:NoExecute"}},
		{name: "another status does not", machine: content{annotations: net}, conditions: []corev1.NodeCondition{{Type: "Net", Status: "True"}}, node: content{taints: "net=calico:NoSchedule"}, want: content{taints: "net=calico:NoSchedule"}, closed: 1},
		{name: "a taint that comes back by hand stays", machine: content{annotations: net}, conditions: conditions, node: content{taints: "net=calico:NoSchedule", annotations: opened + "net:NoSchedule"}, want: content{taints: "net=calico:NoSchedule", annotations: opened + "net:NoSchedule"}},
		{name: "a taint with another value is foreign", machine: content{annotations: net}, conditions: conditions, node: content{taints: "net=other:NoSchedule"}, want: content{taints: "net=other:NoSchedule"}},
		{name: "a taint that is Always stays", machine: content{taints: "net=calico:NoSchedule", annotations: net}, conditions: conditions, node: content{taints: "net=calico:NoSchedule"}, want: content{taints: "net=calico:NoSchedule"}},
		{name: "a typed Initialize taint may have a gate", machine: content{taints: "net=typed:NoSchedule@OnInitialization", annotations: net}, conditions: conditions, node: content{taints: "net=typed:NoSchedule"}, want: content{annotations: opened + "net:NoSchedule"}},
		{name: "a gate that is no longer declared is left out of the record", machine: content{annotations: cni}, node: content{annotations: opened + "cni:NoExecute,net:NoSchedule"}, want: content{annotations: opened + "cni:NoExecute"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect, from := NewWithT(t).Expect, inherit.SourceOfMachine(tc.machine.machine())
			got := from.OpenGates(tc.node.node(), tc.conditions, tc.ready)
			Expect(describe(got)).To(Equal(describe(tc.want.node())))
			Expect(from.ClosedGates(got)).To(HaveLen(tc.closed))
		})
	}
}

// A gate's taint is an OnInitialization taint. A kubelet cannot claim opened gates; after a gate has opened, the reason names it.
func TestAGateIsClosedAtRegistration(t *testing.T) {
	Expect, p := NewWithT(t).Expect, inherit.Policy{}
	from := inherit.SourceOfMachine(content{annotations: "taints.heirloom.dev/until=net:NoSchedule until condition Net=False"}.machine())
	claimed := content{annotations: "heirloom.dev/opened-gates=net:NoSchedule"}.node()
	registered, _ := p.Node(from, claimed, inherit.Kubelet)
	Expect(registered.Taints).To(ContainElement(corev1.Taint{Key: "net", Effect: "NoSchedule"}))
	Expect(from.ClosedGates(registered)).To(HaveLen(1))

	entry := inherit.Entry{What: "taint", Name: "net:NoSchedule"}
	claimed.Annotations[clusterv1.TaintsFromMachineAnnotation] = ""
	_, dropped := p.Node(from, claimed, inherit.Privileged)
	Expect(from.WhyNot(dropped, entry)).To(Equal(inherit.DropGateOpened))
	Expect(inherit.Release(claimed, true).Annotations).NotTo(HaveKey(inherit.OpenedGatesAnnotation))
}

// In the template of a MachinePool, typed taints become annotations, and gates stay unchanged.
func TestGatesOfAPool(t *testing.T) {
	const until = "net:NoSchedule until condition Net=False"
	class := content{annotations: "taints.heirloom.dev/until=" + until + "; taints.heirloom.dev/initialize=a:NoSchedule", taints: "b:NoSchedule@OnInitialization"}.section()
	pool, _ := inherit.Policy{}.MachinePool(inherit.Section{Class: class}, &clusterv1.MachinePool{})
	NewWithT(t).Expect(pool.Template.Annotations).To(Equal(map[string]string{
		"taints.heirloom.dev/until": until, "taints.heirloom.dev/initialize": "a:NoSchedule,b:NoSchedule",
	}))
}
