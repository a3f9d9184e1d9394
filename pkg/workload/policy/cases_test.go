// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// declaring is a Machine that declares nothing and is found by its providerID.
func declaring(name string) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}}
	m.Spec.ProviderID = "cloud:///" + name
	return m
}

// declaringAll is a Machine with one of everything.
func declaringAll(name string) *clusterv1.Machine {
	m := declaring(name)
	m.Labels = map[string]string{
		"node.cluster.x-k8s.io/pool": "gpu", "node-role.kubernetes.io/gpu": "", "team": "ml", "topology.kubernetes.io/zone": "z", "other": "no",
	}
	m.Annotations = map[string]string{
		"node.cluster.x-k8s.io/note": "ours", "note": "ours", "other": "no", "node.cluster.x-k8s.io/odd": "a=b,c\n100%25 %0A\n\n'\"\\ ß",
		taint.AlwaysAnnotation: "annotated=yes:NoSchedule", taint.InitializeAnnotation: "once=yes:NoExecute",
	}
	m.Spec.Taints = []clusterv1.MachineTaint{
		{Key: "gpu", Value: "true", Effect: "NoSchedule", Propagation: "Always"}, {Key: "gpu", Value: "true", Effect: "NoExecute", Propagation: "OnInitialization"},
	}
	return m
}

// addressed is a Machine that is found by its name or addresses alone.
func addressed(name string, addresses ...string) *clusterv1.Machine {
	m := declaring(name)
	m.Spec.ProviderID = ""
	m.Annotations["node.cluster.x-k8s.io/a"] = name
	for _, address := range addresses {
		m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: address})
	}
	return m
}

// anonymous is a Node that brings addresses instead of a providerID.
func anonymous(name string, addresses ...string) *corev1.Node {
	node := nodeNamed(name)
	for _, address := range addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return node
}

// registering is the Node of the Machine of that name, as its kubelet brings it.
func registering(name string, change func(*corev1.Node)) *corev1.Node {
	node := nodeNamed(name)
	node.Labels, node.Spec.ProviderID = map[string]string{corev1.LabelOSStable: "linux"}, "cloud:///"+name
	if change != nil {
		change(node)
	}
	return node
}

func inventory() []*clusterv1.Machine {
	taken, again, controller := addressed("taken", "10.0.0.3", "10.0.0.4"), addressed("again", "10.0.0.5"), declaringAll("controller")
	taken.Status.NodeRef.Name, again.Status.NodeRef.Name = "another", "again"
	controller.Labels[clusterv1.MachineControlPlaneLabel] = ""
	return []*clusterv1.Machine{
		declaringAll("all"), declaring("nothing"), controller, addressed("by-address", "10.0.0.1"), addressed("by-name", "by-name"),
		addressed("twin-a", "10.0.0.2"), addressed("twin-b", "10.0.0.2"), taken, again,
		addressed("reused", "10.0.0.4", "10.0.0.6"), addressed("lately", "again"),
	}
}

// What a kubelet's create brings is what the rules say, whatever the kubelet claims.
func TestWhatANodeGetsAtItsRegistration(t *testing.T) {
	additional := []*regexp.Regexp{regexp.MustCompile("team|zone|^note")}
	rules, machines := inherit.Policy{AdditionalLabels: additional, AdditionalAnnotations: additional}, complete(inventory()...)
	e, parameters := evaluatorBy(t, rules), parametersBy(t, rules, machines)
	for _, tc := range []struct {
		name string
		node *corev1.Node
		// taints are those that the Node has then, besides the kubelet's. Without any, it is left as it is.
		taints string
	}{
		{name: "labels, annotations and taints of every sort", node: registering("all", nil), taints: "gpu=true:NoSchedule,gpu=true:NoExecute,annotated=yes:NoSchedule,once=yes:NoExecute,GUARD"},
		{name: "a Machine that declares nothing is recorded and guarded all the same", node: registering("nothing", nil), taints: "GUARD"},
		{name: "a control plane's Node is not guarded", node: registering("controller", nil), taints: "gpu=true:NoSchedule,gpu=true:NoExecute,annotated=yes:NoSchedule,once=yes:NoExecute"},
		{name: "a kubelet's own taints stay, and the declared value wins", node: registering("all", func(node *corev1.Node) {
			node.Spec.Taints, _ = taint.ParseList("gpu=no:NoSchedule,gpu=no:NoExecute,mine:NoSchedule")
			node.Labels["team"] = "theirs"
			node.Annotations = map[string]string{"node.cluster.x-k8s.io/note": "theirs", "mine": "yes"}
		}), taints: "gpu=true:NoSchedule,gpu=true:NoExecute,mine:NoSchedule,annotated=yes:NoSchedule,once=yes:NoExecute,GUARD"},
		{name: "a kubelet that brings the guard", node: registering("nothing", func(node *corev1.Node) {
			node.Spec.Taints = []corev1.Taint{clusterv1.NodeUninitializedTaint}
		}), taints: "GUARD"},
		{name: "a kubelet that claims to have been here before", node: registering("nothing", func(node *corev1.Node) {
			node.Annotations = map[string]string{clusterv1.TaintsFromMachineAnnotation: "mine:NoSchedule", inherit.UninitializedAnnotation: "added",
				clusterv1.LabelsFromMachineAnnotation: "a", inherit.TaintsFromMachineAnnotation: "x:NoSchedule", inherit.LabelsFromMachineAnnotation: "b"}
		}), taints: "GUARD"},
		{name: "a Node that is found by an address", node: anonymous("addressed", "10.0.0.9", "10.0.0.1"), taints: "GUARD"},
		{name: "a Node that is found by its name", node: anonymous("by-name"), taints: "GUARD"},
		{name: "a Node that registers again waits for the loop", node: anonymous("again", "10.0.0.5")},
		{name: "a Node that may be either of two Machines", node: anonymous("twin", "10.0.0.2")},
		{name: "a Node with the address of another Node's Machine", node: anonymous("late", "10.0.0.3")},
		{name: "a Node that may be another Node's Machine, by one of its addresses", node: anonymous("late", "10.0.0.4", "10.0.0.6")},
		{name: "a Node that is found by another address of that Machine", node: anonymous("late", "10.0.0.6"), taints: "GUARD"},
		{name: "a Node without a Machine", node: registering("stranger", nil)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			want, m := expected(tc.node, machines, rules)
			Expect(m == nil).To(Equal(tc.taints == ""), "the case is what its name says")
			got := inherit.OfNode(e.register(tc.node, parameters), time.Now())
			Expect(got.Equal(want)).To(BeTrue(), "got %+v\nwant %+v", got, want)
			if m != nil {
				Expect(taintsOf(got)).To(ConsistOf(listed(tc.taints)))
			}
		})
	}
}

// taintsOf are the taints of a Node as kubectl writes them.
func taintsOf(state inherit.NodeState) []string {
	var all []string
	for _, t := range state.Taints {
		all = append(all, taint.FormatList([]corev1.Taint{t}))
	}
	return all
}

// listed are taints of a list, in which GUARD stands for the taint that keeps workload away.
func listed(list string) []string {
	guard := taint.FormatList([]corev1.Taint{clusterv1.NodeUninitializedTaint})
	return strings.Split(strings.Replace(list, "GUARD", guard, 1), ",")
}

// An API server invokes a policy again when another one has changed the Node meanwhile. Both have what they want.
func TestAnotherPolicyChangesTheNodeInBetween(t *testing.T) {
	Expect := NewWithT(t).Expect
	e, machines := newEvaluator(t), inventory()
	node, parameters := registering("all", nil), parametersOf(t, machines...)
	want, _ := expected(node, complete(machines...), inherit.Policy{})
	for round := range 3 {
		node = e.register(node, parameters)
		node.Annotations["rounds"] += "x"
		if round == 0 {
			node.Spec.Taints = append([]corev1.Taint{{Key: "meddler", Effect: corev1.TaintEffectNoSchedule}}, node.Spec.Taints...)
		}
	}
	Expect(node.Annotations).To(HaveKeyWithValue("rounds", "xxx"))
	delete(node.Annotations, "rounds")
	Expect(node.Labels).To(Equal(want.Labels))
	Expect(node.Annotations).To(Equal(want.Annotations))
	Expect(node.Spec.Taints).To(ConsistOf(append(want.Taints, corev1.Taint{Key: "meddler", Effect: corev1.TaintEffectNoSchedule})))
}
