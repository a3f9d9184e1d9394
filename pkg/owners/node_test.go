// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// change applies changes to an object and returns it.
func change[T any](object T, changes ...func(T)) T {
	for _, c := range changes {
		c(object)
	}
	return object
}

func inNamespace(namespace string) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) { m.Namespace, m.UID = namespace, types.UID(namespace) }
}
func elsewhere(m *clusterv1.Machine) { m.Spec.ClusterName = "other" }
func isNode(m *clusterv1.Machine)    { m.Status.NodeRef.Name = "n" }
func provided(m *clusterv1.Machine)  { m.Spec.ProviderID = "aws:1" }
func addressed(m *clusterv1.Machine) {
	m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.1"}}
}

// node is a Node by "<name> <providerID> <InternalIP>"; what is left out it does not have.
func node(known string) *corev1.Node {
	part := append(strings.Fields(known), "", "", "")
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: part[0]}, Spec: corev1.NodeSpec{ProviderID: part[1]}}
	if part[2] != "" {
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: part[2]}}
	}
	return n
}

// itself is the Cluster of the management cluster.
func itself() types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: "c"} }

func TestMachineOf(t *testing.T) {
	const managed, foreign = true, false
	for _, tc := range []struct {
		name     string
		node     *corev1.Node
		machines []client.Object
		// managementCluster says that --management-cluster names ns/c.
		managementCluster bool
		want              string
	}{
		{name: "a Node is found by its Machine's nodeRef", node: node("n"), machines: []client.Object{change(machine("m", ""), isNode)}, managementCluster: managed, want: "m"},
		{name: "a Node is found by address", node: node("n aws:1 10.0.0.1"), machines: []client.Object{change(machine("m", ""), addressed)}, managementCluster: managed, want: "m"},
		{name: "a Node is found by providerID", node: node("n aws:1"), machines: []client.Object{change(machine("m", ""), provided)}, managementCluster: managed, want: "m"},
		{name: "one Machine that fits in every way is one", node: node("n aws:1 10.0.0.1"), machines: []client.Object{change(machine("m", ""), isNode, provided, addressed)}, managementCluster: managed, want: "m"},
		{name: "a Machine of another Cluster does not fit", node: node("n"), machines: []client.Object{change(machine("m", ""), isNode, elsewhere)}, managementCluster: managed},
		{name: "not even by providerID", node: node("n aws:1"), machines: []client.Object{change(machine("m", ""), provided, elsewhere)}, managementCluster: managed},
		{name: "a Machine of another namespace does not fit", node: node("n"), machines: []client.Object{change(machine("m", ""), isNode, inNamespace("other"))}, managementCluster: managed},
		{name: "a Machine of another namespace does not make the match ambiguous", node: node("n"), machines: []client.Object{change(machine("m", ""), isNode), change(machine("m", ""), isNode, inNamespace("other"))}, managementCluster: managed, want: "m"},
		{name: "two Machines with one address are ambiguous", node: node("n aws:1 10.0.0.1"), machines: []client.Object{change(machine("m", ""), addressed), change(machine("m2", ""), addressed)}, managementCluster: managed},
		{name: "where the Cluster is not known a name proves nothing", node: node("n"), machines: []client.Object{change(machine("m", ""), isNode)}, managementCluster: foreign},
		{name: "where the Cluster is not known an address proves nothing", node: node("n aws:1 10.0.0.1"), machines: []client.Object{change(machine("m", ""), addressed)}, managementCluster: foreign},
		{name: "where the Cluster is not known the providerID proves nothing, neither: anybody may have created the Machine", node: node("n aws:1"), machines: []client.Object{change(machine("m", ""), provided)}, managementCluster: foreign},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chain := Chain{Reader: holds(t, tc.machines...)}
			if tc.managementCluster {
				chain.within = itself()
			}
			m, err := chain.MachineOf(t.Context(), tc.node)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			if tc.want == "" {
				NewWithT(t).Expect(m).To(BeNil())
				return
			}
			NewWithT(t).Expect(m).NotTo(BeNil())
			NewWithT(t).Expect(m.Name).To(Equal(tc.want))
		})
	}
}

// TestInherits: a Node inherits what its Machine will carry once the chain above it has inherited, and no more.
func TestInherits(t *testing.T) {
	ours := func() *clusterv1.Machine {
		return change(machine("m", "MachineSet/ms"), isNode, func(m *clusterv1.Machine) { m.Labels = map[string]string{"fromMachine": "1"} })
	}
	set := func() *clusterv1.MachineSet {
		return change(machineSet("MachineDeployment/md"), func(ms *clusterv1.MachineSet) { declaring(&ms.Spec.Template, "fromMachineSet") })
	}
	deployment := change(machineDeployment("md"), func(md *clusterv1.MachineDeployment) { declaring(&md.Spec.Template, "fromMachineDeployment") })
	pause := func(object client.Object) {
		object.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
	}
	for _, tc := range []struct {
		name   string
		node   *corev1.Node
		cached []client.Object
		policy inherit.Policy
		// withoutCluster leaves out the Cluster, which is there otherwise.
		withoutCluster bool
		want           []string
	}{
		{name: "a Machine on its own hands down what it has", cached: []client.Object{change(ours(), func(m *clusterv1.Machine) { m.OwnerReferences = nil })}, want: []string{"fromMachine"}},
		{name: "a Machine hands down what it is about to inherit", cached: []client.Object{ours(), set(), deployment}, want: []string{"fromMachine", "fromMachineSet", "fromMachineDeployment"}},
		{name: "a Machine whose owner is not cached hands down what it has", cached: []client.Object{ours()}, want: []string{"fromMachine"}},
		{name: "a MachineSet whose owner is not cached hands down what it has", cached: []client.Object{ours(), set()}, want: []string{"fromMachine", "fromMachineSet"}},
		{name: "a paused MachineSet inherits nothing that it could hand down", cached: []client.Object{ours(), change(set(), func(ms *clusterv1.MachineSet) { pause(ms) }), deployment}, want: []string{"fromMachine", "fromMachineSet"}},
		{name: "neither does one that opted out", cached: []client.Object{ours(), change(set(), func(ms *clusterv1.MachineSet) { ms.Labels = map[string]string{inherit.IgnoreLabel: ""} }), deployment}, want: []string{"fromMachine", "fromMachineSet"}},
		{name: "neither does one that another instance watches", policy: inherit.Policy{WatchFilter: "blue"}, cached: []client.Object{change(ours(), func(m *clusterv1.Machine) { m.Labels[clusterv1.WatchLabel] = "blue" }), set(), deployment}, want: []string{"fromMachine", clusterv1.WatchLabel, "fromMachineSet"}},
		{name: "a Machine that is being deleted hands down what it has", cached: []client.Object{change(ours(), func(m *clusterv1.Machine) {
			m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"x/y"}
		}), set(), deployment}, want: []string{"fromMachine"}},

		{name: "a paused Machine hands down nothing", cached: []client.Object{change(ours(), func(m *clusterv1.Machine) { pause(m) })}},
		{name: "a Machine of a paused Cluster hands down nothing", cached: []client.Object{ours(), &clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Paused: new(true)}}}, withoutCluster: true},
		{name: "a Node with the opt-out label inherits all the same", node: change(node("n"), func(n *corev1.Node) { n.Labels = map[string]string{inherit.IgnoreLabel: ""} }), cached: []client.Object{ours()}, want: []string{"fromMachine"}},
		{name: "a Machine whose Cluster does not exist hands down nothing", cached: []client.Object{ours()}, withoutCluster: true},
		{name: "a Node without a Machine inherits nothing", node: node("other"), cached: []client.Object{ours()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			live := holds(t, set(), deployment)
			if !tc.withoutCluster {
				tc.cached = append(tc.cached, &clusterv1.Cluster{ObjectMeta: named("c", "")})
			}
			chain := Chain{Reader: admission(holds(t, tc.cached...), live, nil), within: itself()}
			if tc.node == nil {
				tc.node = node("n")
			}
			decided, err := chain.EvaluateNode(t.Context(), tc.node, tc.policy)
			Expect(err).NotTo(HaveOccurred())
			Expect(decided.Inherits()).To(Equal(tc.want != nil))
			Expect(live.gets).To(BeZero(), "a Node is not worth a call")
			if tc.want == nil {
				Expect(decided.Reason).NotTo(BeEmpty())
				return
			}
			var keys []string
			for key := range decided.Source.Labels {
				keys = append(keys, key)
			}
			Expect(keys).To(ConsistOf(tc.want))
		})
	}
}

// What Nodes inherit before their Machines have it is told apart from the rest only by the Machine as it is.
func TestEffectiveMachinesAreBesideTheActualOnes(t *testing.T) {
	Expect := NewWithT(t).Expect
	set := change(machineSet(""), func(ms *clusterv1.MachineSet) { declaring(&ms.Spec.Template, "new") })
	has := func(m *clusterv1.Machine) { m.Labels = map[string]string{"new": "1"} }
	opted := func(m *clusterv1.Machine) { m.Labels = map[string]string{inherit.IgnoreLabel: ""} }
	chain := Chain{Reader: holds(t, &clusterv1.Cluster{ObjectMeta: named("c", "")}, set, machine("behind", "MachineSet/ms"),
		change(machine("complete", "MachineSet/ms"), has), change(machine("skipped", "MachineSet/ms"), opted), change(machine("other", "MachineSet/ms"), elsewhere))}

	machines, err := chain.EffectiveMachines(t.Context(), types.NamespacedName{Namespace: "ns", Name: "c"}, inherit.Policy{})
	Expect(err).NotTo(HaveOccurred())
	Expect(machines).To(HaveLen(4))
	behind, complete, skipped, withNode := machines[0], machines[1], machines[2], machines[3]
	Expect(behind.Actual.Labels).To(BeEmpty())
	Expect(behind.Effective.Labels).To(HaveKey("new"))
	Expect(complete.Actual.Labels).To(HaveKey("new"))
	Expect(complete.Effective).To(BeIdenticalTo(complete.Actual), "nothing is copied for one that has everything")
	Expect(skipped.Effective).To(BeIdenticalTo(skipped.Actual))
	Expect(withNode.Effective).To(BeIdenticalTo(withNode.Actual), "nothing is computed for one that has its Node")
}

func TestNodesOfAPool(t *testing.T) {
	pool := func(name string) *clusterv1.MachinePool {
		mp := &clusterv1.MachinePool{ObjectMeta: named(name, ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c", ProviderIDList: []string{"aws:1", "aws:2"}}}
		declaring(&mp.Spec.Template, "from-"+name)
		return mp
	}
	for _, tc := range []struct {
		name   string
		node   *corev1.Node
		cached []client.Object
		want   string
	}{
		{name: "a Node that the pool names inherits from its template", node: node("n aws:2"), cached: []client.Object{pool("mp")}, want: "from-mp"},
		{name: "a Node that it does not name does not", node: node("n aws:3"), cached: []client.Object{pool("mp")}},
		{name: "a Node without a providerID does not", node: node("n"), cached: []client.Object{pool("mp")}},
		{name: "a Node that two pools name is neither's", node: node("n aws:1"), cached: []client.Object{pool("mp"), pool("mp2")}},
		{name: "a Machine comes before a pool", node: node("n aws:1"), cached: []client.Object{pool("mp"), change(machine("m", ""), provided, func(m *clusterv1.Machine) { m.Labels = map[string]string{"from-m": ""} })}, want: "from-m"},
		{name: "a paused pool hands down nothing", node: node("n aws:1"), cached: []client.Object{change(pool("mp"), func(mp *clusterv1.MachinePool) { mp.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cached := append(slices.Clone(tc.cached), &clusterv1.Cluster{ObjectMeta: named("c", "")})
			decided, err := (&Chain{Reader: holds(t, cached...), ManagementCluster: itself}).EvaluateNode(t.Context(), tc.node, inherit.Policy{})
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(decided.Inherits()).To(Equal(tc.want != ""))
			if tc.want != "" {
				NewWithT(t).Expect(decided.Source.Labels).To(And(HaveLen(1), HaveKey(tc.want)))
			}
		})
	}
}

// What is to be looked at again when an object changes.
func TestLookAgain(t *testing.T) {
	Expect := NewWithT(t).Expect
	other := change(machine("other", "MachineSet/ms#another"), elsewhere)
	chain := Chain{Reader: holds(t, machineSet("MachineDeployment/md"), machine("m1", "MachineSet/ms"), machine("m2", "MachineSet/ms"), other,
		node("n aws:1 10.0.0.1"), node("n2 aws:2"),
		&clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c", ProviderIDList: []string{"aws:2"}}})}

	children, err := chain.Children(t.Context(), machineSet(""), &clusterv1.MachineList{})
	Expect(err).NotTo(HaveOccurred())
	Expect(names(children)).To(ConsistOf("m1", "m2"), "children by UID")

	members, err := chain.Members(t.Context(), types.NamespacedName{Namespace: "ns", Name: "c"}, &clusterv1.MachineList{})
	Expect(err).NotTo(HaveOccurred())
	Expect(names(members)).To(ConsistOf("m1", "m2"), "members by Cluster")

	all, err := Keys(t.Context(), chain, &clusterv1.MachineList{})
	Expect(err).NotTo(HaveOccurred())
	Expect(names(all)).To(ConsistOf("m1", "m2", "other"))

	for _, m := range []*clusterv1.Machine{
		change(machine("m", ""), isNode), change(machine("m", ""), provided), change(machine("m", ""), addressed),
	} {
		nodes, err := NodesOf(t.Context(), chain, m)
		Expect(err).NotTo(HaveOccurred())
		Expect(names(nodes)).To(Equal([]string{"n"}))
	}
	Expect(NodesOf(t.Context(), chain, machine("m", ""))).To(BeEmpty())

	pooled, err := NodesOf(t.Context(), chain, &clusterv1.MachinePool{Spec: clusterv1.MachinePoolSpec{ProviderIDList: []string{"aws:2", "aws:9"}}})
	Expect(err).NotTo(HaveOccurred())
	Expect(names(pooled)).To(Equal([]string{"n2"}))
}
