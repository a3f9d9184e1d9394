// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// tenants moves an object into another namespace.
func tenants[T client.Object](object T) T {
	object.SetNamespace("tenant")
	object.SetUID("tenant's")
	return object
}

// A Node inherits only the content that its Machine or MachinePool will have once the chain above it has inherited. A tenant who may create
// Machines in a namespace controls no Nodes of another Cluster, and a kubelet does not control its own Node.
func TestTheSourceOfANode(t *testing.T) {
	of, ofSet, ignore := also[*clusterv1.Machine], also[*clusterv1.MachineSet], label(inherit.IgnoreLabel, "")
	ours := func(changes ...func(*clusterv1.Machine)) *clusterv1.Machine {
		return change(machine("m", "MachineSet/ms", isNode, provided, of(label("fromMachine", "1"))), changes...)
	}
	set := func(changes ...func(*clusterv1.MachineSet)) *clusterv1.MachineSet {
		return change(machineSet("MachineDeployment/md", setDeclares("fromMachineSet")), changes...)
	}
	pool := func(name string, changes ...func(*clusterv1.MachinePool)) *clusterv1.MachinePool {
		mp := machinePool(name, "aws:1", "aws:2")
		declaring(&mp.Spec.Template, "from-"+name)
		return change(mp, changes...)
	}
	md := machineDeployment("md", func(md *clusterv1.MachineDeployment) { declaring(&md.Spec.Template, "fromMachineDeployment") })
	c, watched, blue := ofCluster("c"), inherit.Policy{WatchFilter: "blue"}, label(clusterv1.WatchLabel, "blue")
	theirs := inherit.Reason("its Cluster" + inherit.NotFiltered + "blue")
	for _, tc := range []struct {
		name, node string
		change     func(*corev1.Node)
		cached     []client.Object
		policy     inherit.Policy
		want       []string
		why        inherit.Reason
	}{
		{name: "a Machine on its own hands down what it has", cached: []client.Object{c, ours(func(m *clusterv1.Machine) { m.OwnerReferences = nil })}, want: []string{"fromMachine"}},
		{name: "a Machine hands down what it is about to inherit", cached: []client.Object{c, ours(), set(), md}, want: []string{"fromMachine", "fromMachineSet", "fromMachineDeployment"}},
		{name: "a Machine whose owner is not cached hands down what it has", cached: []client.Object{c, ours()}, want: []string{"fromMachine"}},
		{name: "a paused MachineSet inherits nothing that it could hand down", cached: []client.Object{c, ours(), set(ofSet(pause)), md}, want: []string{"fromMachine", "fromMachineSet"}},
		{name: "neither does one with the label heirloom.dev/ignore", cached: []client.Object{c, ours(), set(ofSet(ignore)), md}, want: []string{"fromMachine", "fromMachineSet"}},
		{name: "a Machine that is being deleted hands down what it has", cached: []client.Object{c, ours(of(deleting)), set(), md}, want: []string{"fromMachine"}},
		{name: "a Node with the label heirloom.dev/ignore inherits all the same", change: also[*corev1.Node](ignore), cached: []client.Object{c, ours()}, want: []string{"fromMachine"}},
		{name: "a Node is found by address", node: "x aws:9 10.0.0.1", cached: []client.Object{c, machine("m", "", addressed, of(label("fromMachine", "1")))}, want: []string{"fromMachine"}},
		{name: "a Machine of another namespace makes no match ambiguous", cached: []client.Object{c, ours(), tenants(ours())}, want: []string{"fromMachine"}},
		{name: "a paused Machine hands down nothing", cached: []client.Object{c, ours(of(pause))}, why: inherit.IsPaused},
		{name: "nor does one of a paused Cluster", cached: []client.Object{ours(), pausedCluster()}, why: inherit.ClusterIsPaused},
		{name: "nor does one whose Cluster is not enrolled", policy: inherit.Policy{OnlyLabeled: true}, cached: []client.Object{c, ours()}, why: inherit.ClusterIsNotEnrolled},
		{name: "nor does one whose Cluster another instance has", policy: watched, cached: []client.Object{c, ours(of(blue))}, why: theirs},
		{name: "nor does one whose Cluster does not exist", cached: []client.Object{ours()}, why: inherit.ClusterDoesNotExist},
		{name: "a Node that is being deleted inherits until it is gone", change: also[*corev1.Node](deleting), cached: []client.Object{c, ours()}, want: []string{"fromMachine"}},
		{name: "a Node without a Machine inherits nothing", node: "other", cached: []client.Object{c, ours()}, why: inherit.IsNoMachine},
		{name: "a Node that a pool names inherits from its template", node: "x aws:2", cached: []client.Object{c, pool("mp")}, want: []string{"from-mp"}},
		{name: "a Machine comes before a pool", node: "n aws:1", cached: []client.Object{c, pool("mp"), ours()}, want: []string{"fromMachine"}},
		{name: "a Node that a pool does not name does not", node: "x aws:3", cached: []client.Object{c, pool("mp")}, why: inherit.IsNoMachine},
		{name: "a Node that two pools name is neither's", node: "x aws:1", cached: []client.Object{c, pool("mp"), pool("mp2")}, why: inherit.IsNoMachine},
		{name: "a pool with the label heirloom.dev/ignore hands down nothing", node: "x aws:1", cached: []client.Object{c, pool("mp", also[*clusterv1.MachinePool](ignore))}, why: inherit.HasIgnoreLabel},
		{name: "nor does one whose Cluster another instance has", node: "x aws:1", policy: watched, cached: []client.Object{c, pool("mp", also[*clusterv1.MachinePool](blue))}, why: theirs},
		{name: "nor does one whose Cluster does not exist", node: "x aws:1", cached: []client.Object{pool("mp")}, why: inherit.ClusterDoesNotExist},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect, live, n := NewWithT(t).Expect, holds(t, set(), md), node(cmp.Or(tc.node, "n"))
			if tc.change != nil {
				tc.change(n)
			}
			decided, err := admission(holds(t, tc.cached...), live).Within(itself).SourceOf(t.Context(), inherit.ReadNode(n, time.Time{}), tc.policy)
			Expect(err).NotTo(HaveOccurred())
			Expect(decided.Reason).To(Equal(tc.why))
			Expect(decided.Inherits()).To(Equal(tc.want != nil))
			Expect(slices.Collect(maps.Keys(decided.Source.Labels))).To(ConsistOf(tc.want))
			Expect(live.gets()).To(BeZero(), "a Node needs no live read")
			decided, err = from(holds(t, tc.cached...)).SourceOf(t.Context(), inherit.ReadNode(n, time.Time{}), tc.policy)
			Expect(err).NotTo(HaveOccurred())
			Expect(decided.Inherits()).To(BeFalse(), "without a known Cluster no Machine is proven: any tenant may have created it")
		})
	}
}

// narrow is a cache that notes lists which are not limited to a namespace, an index and a number of objects.
type narrow struct {
	*reader
	t *testing.T
}

func (n narrow) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	asked := (&client.ListOptions{}).ApplyOptions(options)
	NewWithT(n.t).Expect(asked.Namespace).To(Equal("ns"))
	NewWithT(n.t).Expect(asked.FieldSelector.Requirements()).To(HaveLen(1))
	NewWithT(n.t).Expect(asked.Limit).To(And(BeNumerically(">", 0), BeNumerically("<=", 200)))
	return n.reader.List(ctx, list, options...)
}

// For a Node, Heirloom does not read Machines and MachinePools of other namespaces or of other Clusters, no matter how many claim to be the
// Node.
func TestOthersMachinesCostANodeNothing(t *testing.T) {
	cached := []client.Object{
		ofCluster("c"), machine("m", "", provided, addressed), machinePool("mp", "aws:2"),
		tenants(machine("m", "", isNode, provided, addressed)), tenants(machinePool("mp", "aws:2")),
		machine("beside", "", isNode, provided, addressed, elsewhere), change(machinePool("beside", "aws:2"), func(mp *clusterv1.MachinePool) { mp.Spec.ClusterName = "other" }),
	}
	for known, want := range map[string]string{"n aws:1 10.0.0.1": "Machine ns/m", "n aws:2": "MachinePool ns/mp"} {
		decided, err := from(narrow{holds(t, cached...), t}).Within(itself).SourceOf(t.Context(), inherit.ReadNode(node(known), time.Time{}), inherit.Policy{})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(decided.Source.String()).To(Equal(want))
	}
	decided, err := from(narrow{holds(t, cached...), t}).Within(itself).SourceOf(t.Context(), inherit.ReadNode(node("other"), time.Time{}), inherit.Policy{})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(decided.Inherits()).To(BeFalse())
}

// A Node costs little, even if very many Machines of its Cluster have all its addresses. A proven match stays proven, and no other address
// of the Node identifies a Machine.
func TestMachinesOfItsAddressesCostANodeLittle(t *testing.T) {
	with := func(addresses ...string) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) {
			for _, address := range addresses {
				m.Status.Addresses = append(m.Status.Addresses, clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: address})
			}
		}
	}
	is := func(providerID string) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) { m.Spec.ProviderID = providerID }
	}
	cached := []client.Object{
		ofCluster("c"), machine("proven", "", provided), machine("unique", "", with("1.0.0.1", "10.1.0.1")), machine("free", "", with("10.2.0.1")),
		machine("referring", "", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "10.0.0.0" }), machinePool("pool", "aws:3"), machinePool("another", "aws:3"),
	}
	for i := range 200 {
		cached = append(cached, machine(fmt.Sprint("alike-", i), "", with("10.0.0.0")), machine(fmt.Sprint("equal-", i), "", is("aws:4")))
	}
	for i := range 198 {
		cached = append(cached, machine(fmt.Sprint("taken-", i), "", is(fmt.Sprint("aws:1", i)), with("10.2.0.1")))
	}
	held := narrow{holds(t, cached...), t}
	for _, tc := range []struct {
		name, node string
		addresses  []string
		want       string
	}{
		{name: "a nodeRef proves a Machine although its Node's name is an address of many", node: "10.0.0.0", addresses: []string{"10.0.0.0"}, want: "Machine ns/referring"},
		{name: "so does a providerID", node: "x aws:1", addresses: []string{"10.0.0.0"}, want: "Machine ns/proven"},
		{name: "an address of very many is nobody's", node: "x aws:9", addresses: []string{"10.0.0.0"}},
		{name: "and no other address is any more", node: "x aws:9", addresses: []string{"10.0.0.0", "10.1.0.1"}},
		{name: "not even an address that is looked up before", node: "x aws:9", addresses: []string{"10.0.0.0", "1.0.0.1"}},
		{name: "alone it is", node: "x aws:9", addresses: []string{"10.1.0.1"}, want: "Machine ns/unique"},
		{name: "an address of many is one Machine's if all others are known not to be the Node", node: "x aws:9", addresses: []string{"10.2.0.1"}, want: "Machine ns/free"},
		{name: "a providerID of very many is nobody's, and no address tells", node: "x aws:4", addresses: []string{"10.1.0.1"}},
		{name: "nor is that of several MachinePools", node: "x aws:3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect, n := NewWithT(t).Expect, node(tc.node)
			for _, address := range tc.addresses {
				n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
			}
			decided, err := from(held).Within(itself).SourceOf(t.Context(), inherit.ReadNode(n, time.Time{}), inherit.Policy{})
			Expect(err).NotTo(HaveOccurred())
			Expect(decided.Inherits()).To(Equal(tc.want != ""))
			if tc.want != "" {
				Expect(decided.Source.String()).To(Equal(tc.want))
			}
		})
	}
}

// Entries from a match by name or address go once the Machine belongs to another Node, and not before: if the kubelet reports another
// address or providerID, its Node still inherits from the Machine, as long as no other Machine is proven.
func TestEntriesFromAddressMatchesAreRemoved(t *testing.T) {
	matched := func(known string) *corev1.Node {
		n := node(known)
		registering := inherit.Turn{Registering: true}
		from := inherit.Policy{}.SourceFor(n, machine("m", "", addressed))
		n.Annotations = inherit.Policy{}.PlanNode(inherit.ReadNode(n, time.Now()), from, registering).Result.Annotations
		n.Spec.ProviderID = strings.TrimPrefix(n.Spec.ProviderID, "-")
		return n
	}
	of := also[*clusterv1.Machine]
	moved := func(m *clusterv1.Machine) {
		m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.9"}}
	}
	another := func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "other" }
	declares := func(object client.Object) {
		if mp, ok := object.(*clusterv1.MachinePool); ok {
			declaring(&mp.Spec.Template, "from")
		} else {
			label("from", "1")(object)
		}
	}
	const goes, stays, ours = "goes", "stays", "Machine ns/m"
	c, n, forged := ofCluster("c"), matched("n - 10.0.0.1"), node("n aws:9 10.0.0.1")
	forged.Annotations = map[string]string{inherit.MatchedByAddressAnnotation: "m.0000"}
	for _, tc := range []struct {
		name   string
		node   *corev1.Node
		cached []client.Object
		// want is goes or stays for all entries, or the source of the Node.
		want string
	}{
		{name: "the Machine is another Node", node: n, cached: []client.Object{c, machine("m", "", addressed, another)}, want: goes},
		{name: "the Machine has another address", node: n, cached: []client.Object{c, machine("m", "", moved)}, want: ours},
		{name: "the Node has another address", node: matched("n - 10.0.0.9"), cached: []client.Object{c, machine("m", "", addressed)}, want: ours},
		{name: "the Node claims to be another instance", node: matched("n aws:2 10.0.0.1"), cached: []client.Object{c, machine("m", "", addressed, provided)}, want: ours},
		{name: "the Node has the address of another Machine", node: matched("n - 10.0.0.9"), cached: []client.Object{c, machine("m", "", addressed), machine("m2", "", moved)}, want: ours},
		{name: "two Machines have the address now", node: n, cached: []client.Object{c, machine("m", "", addressed), machine("m2", "", addressed)}, want: ours},
		{name: "the Machine says nothing about itself", node: n, cached: []client.Object{c, machine("m", "")}, want: ours},
		{name: "the Machine is being deleted", node: n, cached: []client.Object{c, machine("m", "", moved, of(deleting))}, want: ours},
		{name: "the Node has another Machine's address, and its Machine is another Node", node: matched("n - 10.0.0.9"), cached: []client.Object{c, machine("m", "", another), machine("m2", "", moved)}, want: "Machine ns/m2"},
		{name: "the Node is proven to be another Machine", node: matched("n - 10.0.0.1"), cached: []client.Object{c, machine("m", "", addressed), machine("m2", "", isNode)}, want: "Machine ns/m2"},
		{name: "a pool names the Node", node: matched("n aws:2 10.0.0.9"), cached: []client.Object{c, machine("m", "", addressed), machinePool("mp", "aws:2")}, want: "MachinePool ns/mp"},
		{name: "the Machine is gone", node: n, cached: []client.Object{c}, want: stays},
		{name: "the Machine is another under the same name", node: n, cached: []client.Object{c, machine("m", "", another, func(m *clusterv1.Machine) { m.UID = "another" })}, want: stays},
		{name: "the Machine is another Node and being deleted", node: n, cached: []client.Object{c, machine("m", "", another, of(deleting))}, want: stays},
		{name: "the Cluster is paused", node: n, cached: []client.Object{pausedCluster(), machine("m", "", another)}, want: stays},
		{name: "the Cluster is being deleted", node: n, cached: []client.Object{change(ofCluster("c"), also[*clusterv1.Cluster](deleting)), machine("m", "", another)}, want: stays},
		{name: "the Cluster is gone", node: n, cached: []client.Object{machine("m", "", another)}, want: stays},
		{name: "the Machine has gone to another Cluster", node: n, cached: []client.Object{c, machine("m", "", another, elsewhere)}, want: stays},
		{name: "the kubelet has made the record up", node: forged, cached: []client.Object{c, machine("m", "", another)}, want: stays},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			for _, object := range tc.cached {
				declares(object)
			}
			decided, err := from(holds(t, tc.cached...)).Within(itself).SourceOf(t.Context(), inherit.ReadNode(tc.node, time.Time{}), inherit.Policy{})
			Expect(err).NotTo(HaveOccurred())
			Expect(decided.Inherits()).To(Equal(tc.want != stays))
			Expect(decided.Reason == "").To(Equal(tc.want != stays))
			if tc.want == stays {
				return
			}
			plan := inherit.Policy{}.PlanNode(inherit.ReadNode(tc.node, time.Now()), decided.Source, inherit.Turn{})
			now := plan.Result
			Expect(plan.LeftOut.Problems()).NotTo(HaveOccurred())
			if tc.want != goes {
				Expect(decided.Source.String()).To(Equal(tc.want))
				Expect(decided.Source.Labels).To(HaveKey("from"), "the Machine's labels are inherited")
				return
			}
			Expect(decided.Source.String()).To(Equal(ours))
			Expect(now.Labels).To(HaveLen(1), "only the label of an empty record")
			Expect(now.Annotations).NotTo(HaveKey(inherit.MatchedByAddressAnnotation))
		})
	}
}

// EffectiveMachines returns the actual Machines together with the effective Machines, so that entries that a Machine does not have yet can
// be recognised.
func TestEffectiveMachinesAreBesideTheActualOnes(t *testing.T) {
	Expect, of := NewWithT(t).Expect, also[*clusterv1.Machine]
	chain := from(holds(t, ofCluster("c"), machineSet("", setDeclares("new")), machine("behind", "MachineSet/ms"), machine("complete", "MachineSet/ms", of(label("new", "1"))),
		machine("skipped", "MachineSet/ms", of(label(inherit.IgnoreLabel, ""))), machine("other", "MachineSet/ms", elsewhere), machine("there", "MachineSet/ms", isNode)))
	machines, _, err := chain.EffectiveMachines(t.Context(), itself, inherit.Policy{})
	Expect(err).NotTo(HaveOccurred())
	Expect(machines).To(HaveLen(4))
	behind, complete, skipped, there := machines[0], machines[1], machines[2], machines[3]
	Expect(behind.Actual.Labels).To(BeEmpty())
	Expect(behind.Effective.Labels).To(HaveKey("new"))
	Expect(complete.Actual.Labels).To(HaveKey("new"))
	Expect(complete.Effective).To(BeIdenticalTo(complete.Actual), "a complete Machine is not copied")
	Expect(skipped.Effective).To(BeIdenticalTo(skipped.Actual))
	Expect(there.Effective).To(BeIdenticalTo(there.Actual), "it has its Node")
	machines, _, err = chain.EffectiveMachines(t.Context(), types.NamespacedName{Namespace: "ns", Name: "gone"}, inherit.Policy{})
	Expect(err).NotTo(HaveOccurred())
	Expect(machines).To(BeEmpty())
}

// A change of an object queues its children, members and Nodes.
func TestLookAgain(t *testing.T) {
	Expect := NewWithT(t).Expect
	old := &clusterv1.MachineSet{ObjectMeta: named("old", "MachineDeployment/md")}
	chain := from(holds(t, machineSet("MachineDeployment/md"), old, machine("m1", "MachineSet/ms"), machine("m2", "MachineSet/ms"), machine("m3", "MachineSet/old"),
		machine("other", "MachineSet/ms#another", elsewhere), node("n aws:1 10.0.0.1"), node("n2 aws:2"), machinePool("mp", "aws:2")))
	called := func(names ...string) OmegaMatcher {
		var all []types.NamespacedName
		for _, name := range names {
			all = append(all, types.NamespacedName{Namespace: "ns", Name: name})
		}
		return ConsistOf(all)
	}
	Expect(chain.Children(t.Context(), machineSet(""), &clusterv1.MachineList{})).To(called("m1", "m2"), "children by UID")
	Expect(chain.Members(t.Context(), itself, &clusterv1.MachineList{})).To(called("m1", "m2", "m3"), "members by Cluster")
	Expect(chain.Keys(t.Context(), &clusterv1.MachineList{})).To(called("m1", "m2", "m3", "other"))
	Expect(chain.MachinesBelow(t.Context(), machineSet(""))).To(ConsistOf(HaveField("Name", "m1"), HaveField("Name", "m2")))
	Expect(chain.MachinesBelow(t.Context(), machineDeployment("md"))).To(HaveLen(3))
	Expect(chain.MachinesBelow(t.Context(), machineDeployment("other"))).To(BeEmpty())
	for _, m := range []*clusterv1.Machine{machine("m", "", isNode), machine("m", "", provided), machine("m", "", addressed)} {
		Expect(chain.NodesOf(t.Context(), chain.Cache, m)).To(ConsistOf(HaveField("Name", "n")))
	}
	Expect(chain.NodesOf(t.Context(), chain.Cache, machine("m", ""))).To(BeEmpty())
	Expect(chain.NodesOf(t.Context(), chain.Cache, machinePool("mp", "aws:2", "aws:9"))).To(ConsistOf(HaveField("Name", "n2")))
	moved := machine("m", "", addressed, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "n2" })
	Expect(chain.NodesOf(t.Context(), chain.Cache, moved)).To(ConsistOf(HaveField("Name", "n"), HaveField("Name", "n2")), "the Machine may have been the other Node")
	many := machinePool("mp")
	for i := range 1001 {
		many.Spec.ProviderIDList = append(many.Spec.ProviderIDList, fmt.Sprint("aws:", i))
	}
	Expect(chain.NodesOf(t.Context(), chain.Cache, many)).To(HaveLen(2), "one list for all providerIDs")
}

// NodeGroup returns the group of equal Nodes, and its size.
func TestNodeGroup(t *testing.T) {
	inUse := func(name, owner string) *clusterv1.Machine {
		return machine(name, owner, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = name })
	}
	pool, set, old := machinePool("mp", "a", "b", "c"), machineSet("MachineDeployment/md"), &clusterv1.MachineSet{ObjectMeta: named("old", "MachineDeployment/md")}
	managed, ofSet := machineDeployment("md", also[*clusterv1.MachineDeployment](ofTopology)), inherit.SourceOfMachine(inUse("m", "MachineSet/ms"))
	for _, tc := range []struct {
		name    string
		from    inherit.NodeSource
		objects []client.Object
		want    string
	}{
		{
			name: "a MachineDeployment with two MachineSets", from: ofSet, want: "MachineDeployment ns/md: 2",
			objects: []client.Object{machineDeployment("md"), set, inUse("m", "MachineSet/ms"), machine("to-come", "MachineSet/ms"), old, inUse("n", "MachineSet/old"), inUse("other", "MachineSet/other")},
		},
		{name: "one of a topology", from: ofSet, objects: []client.Object{managedCluster(), clusterClass(), managed, set, inUse("m", "MachineSet/ms")}, want: "MachineDeployment ns/md: 1"},
		{name: "a MachineSet whose MachineDeployment cannot be read", from: ofSet, objects: []client.Object{set, inUse("m", "MachineSet/ms")}, want: "MachineSet ns/ms: 1"},
		{name: "a MachineSet that stands alone", from: ofSet, objects: []client.Object{machineSet(""), inUse("m", "MachineSet/ms")}, want: "MachineSet ns/ms: 1"},
		{name: "a control plane of a topology", from: inherit.SourceOfMachine(inUse("m", byControlPlane)), objects: []client.Object{managedCluster(), clusterClass(), controlPlane("c", ofTopology), inUse("m", byControlPlane)}, want: "AcmeControlPlane ns/cp: 1"},
		{name: "a MachinePool with Machines", from: inherit.SourceOfMachine(inUse("m", "MachinePool/mp")), objects: []client.Object{pool}, want: "MachinePool ns/mp: 3"},
		{name: "a MachinePool without", from: inherit.Policy{}.SourceForPool(pool, inherit.TemplateOfMachinePool(pool)), objects: []client.Object{pool}, want: "MachinePool ns/mp: 3"},
		{name: "one that has just gone", from: inherit.Policy{}.SourceForPool(pool, inherit.TemplateOfMachinePool(pool)), want: "MachinePool ns/mp: 3"},
		{name: "a Machine without an owner", from: inherit.SourceOfMachine(inUse("m", "")), want: "Machine ns/m: 0"},
	} {
		group, nodes, err := from(holds(t, tc.objects...)).NodeGroup(t.Context(), tc.from)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(fmt.Sprintf("%s: %d", group, nodes)).To(Equal(tc.want), tc.name)
	}
}

// A missing InfraMachine, as during a restore, removes no label that it set on the Node before, and sets none.
func TestFactsOfMissingObjectsStay(t *testing.T) {
	Expect := NewWithT(t).Expect
	fact, err := inherit.ParseFact("AcmeMachine.infrastructure.cluster.x-k8s.io:spec.size=example.com/size")
	Expect(err).NotTo(HaveOccurred())
	m := machine("m", "", isNode, func(m *clusterv1.Machine) {
		m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.InfrastructureGroup, Kind: "AcmeMachine", Name: "m"}
	})
	chain, had, never := from(holds(t, ofCluster("c"), m)).Within(itself), node("n"), node("n")
	had.Labels = map[string]string{"example.com/size": "xl"}
	had.Annotations = map[string]string{inherit.LabelsFromMachineAnnotation: "example.com/size"}
	decided, err := chain.SourceOf(t.Context(), inherit.ReadNode(had, time.Time{}), inherit.Policy{Facts: []inherit.Fact{fact}})
	Expect(err).NotTo(HaveOccurred())
	Expect(decided.Source.Labels).To(HaveKeyWithValue("example.com/size", "xl"))
	decided, err = chain.SourceOf(t.Context(), inherit.ReadNode(never, time.Time{}), inherit.Policy{Facts: []inherit.Fact{fact}})
	Expect(err).NotTo(HaveOccurred())
	Expect(decided.Source.Labels).NotTo(HaveKey("example.com/size"))
}
