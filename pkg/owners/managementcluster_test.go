// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// A tenant who may create a Machine somewhere decides nothing about the management cluster's Nodes.
func TestMachinesOfOthersHandNothingDownToTheManagementCluster(t *testing.T) {
	own := &clusterv1.Cluster{ObjectMeta: named("c", "")}
	tenants := func(o client.Object) client.Object {
		o.SetNamespace("tenant")
		return o
	}
	pool := &clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c", ProviderIDList: []string{"aws:1"}}}
	unknown := func() types.NamespacedName { return types.NamespacedName{} }
	for _, tc := range []struct {
		name    string
		cluster func() types.NamespacedName
		cached  []client.Object
		why     inherit.Reason
	}{
		{name: "where no Cluster is the management cluster", why: inherit.NotOfManagementCluster, cached: []client.Object{own, change(machine("m", ""), provided)}},
		{name: "as long as it is not known", why: inherit.NotOfManagementCluster, cluster: unknown, cached: []client.Object{own, change(machine("m", ""), provided)}},
		{name: "nor does a MachinePool", why: inherit.NotOfManagementCluster, cluster: unknown, cached: []client.Object{own, pool}},
		{name: "an ownerless Machine of another namespace", why: inherit.IsNoMachine, cluster: itself, cached: []client.Object{own, tenants(own.DeepCopy()), tenants(change(machine("m", ""), provided))}},
		{name: "one whose Cluster does not exist", why: inherit.ClusterDoesNotExist, cluster: itself, cached: []client.Object{change(machine("m", ""), provided)}},
		{name: "a MachinePool whose Cluster does not exist", why: inherit.ClusterDoesNotExist, cluster: itself, cached: []client.Object{pool}},
		{name: "a Machine of another Cluster", why: inherit.IsNoMachine, cluster: itself, cached: []client.Object{own, change(machine("m", ""), provided, elsewhere)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			decided, err := (&Chain{Reader: holds(t, tc.cached...), ManagementCluster: tc.cluster}).EvaluateNode(t.Context(), node("n aws:1"), inherit.Policy{})
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(decided.Inherits()).To(BeFalse())
			NewWithT(t).Expect(decided.Reason).To(Equal(tc.why))
		})
	}
}

func TestMayBeManagementCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	of := func(cluster string) func(*clusterv1.Machine) {
		return func(m *clusterv1.Machine) { m.Spec.ClusterName = cluster }
	}
	chain := Chain{Reader: holds(t,
		node("n aws:1"), node("n2 aws:2"), node("n3"),
		&clusterv1.Cluster{ObjectMeta: named("c", "")}, &clusterv1.Cluster{ObjectMeta: named("pooled", "")}, &clusterv1.Cluster{ObjectMeta: named("other", "")},
		change(machine("m", ""), provided), change(machine("m2", ""), provided, of("nowhere")), change(machine("m3", ""), of("other")),
		&clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "pooled", ProviderIDList: []string{"aws:2"}}},
	)}
	clusters, err := chain.MayBeManagementCluster(t.Context())
	Expect(err).NotTo(HaveOccurred())
	Expect(clusters).To(ConsistOf(HaveField("Name", "c"), HaveField("Name", "pooled")))
}

func TestIsManagementCluster(t *testing.T) {
	Expect := NewWithT(t).Expect
	key, none := itself(), types.NamespacedName{}
	Expect((&Chain{}).IsManagementCluster(key)).To(BeFalse())
	Expect((&Chain{ManagementCluster: itself}).IsManagementCluster(key)).To(BeTrue())
	Expect((&Chain{ManagementCluster: Always(none)}).IsManagementCluster(none)).To(BeFalse())
	Expect((&Chain{ManagementCluster: itself}).Within(types.NamespacedName{Namespace: "ns", Name: "red"}).cluster().Name).To(Equal("red"))
}

// What a name or an address has brought goes once the Machine contradicts it, and not before.
func TestWhatAnAddressBroughtGoes(t *testing.T) {
	matched := func(known string) *corev1.Node {
		n := node(known)
		if strings.Contains(known, "-") {
			n.Spec.ProviderID = ""
		}
		from := inherit.Policy{}.SourceFor(n, change(machine("m", ""), addressed))
		had, _ := inherit.Policy{}.Node(from, inherit.NodeState{}, inherit.Kubelet)
		n.Annotations = had.Annotations
		return n
	}
	moved := func(m *clusterv1.Machine) {
		m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: "10.0.0.9"}}
	}
	cluster := func() *clusterv1.Cluster { return &clusterv1.Cluster{ObjectMeta: named("c", "")} }
	for _, tc := range []struct {
		name   string
		node   *corev1.Node
		cached []client.Object
		goes   bool
	}{
		{name: "the Machine is another Node", cached: []client.Object{cluster(), change(machine("m", ""), addressed, func(m *clusterv1.Machine) { m.Status.NodeRef.Name = "other" })}, goes: true},
		{name: "the Machine has another address", cached: []client.Object{cluster(), change(machine("m", ""), moved)}, goes: true},
		{name: "the Node is another instance", node: matched("n aws:2 10.0.0.1"), cached: []client.Object{cluster(), change(machine("m", ""), addressed, provided)}, goes: true},
		{name: "it stays where the Machine is gone", cached: []client.Object{cluster()}},
		{name: "where the Machine says nothing about itself", cached: []client.Object{cluster(), machine("m", "")}},
		{name: "where the Machine is another under the same name", cached: []client.Object{cluster(), change(machine("m", ""), moved, func(m *clusterv1.Machine) { m.UID = "another" })}},
		{name: "where two Machines have the address now", cached: []client.Object{cluster(), change(machine("m", ""), addressed), change(machine("m2", ""), addressed)}},
		{name: "where the Machine is being deleted", cached: []client.Object{cluster(), change(machine("m", ""), moved, func(m *clusterv1.Machine) {
			m.DeletionTimestamp, m.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"x/y"}
		})}},
		{name: "where the Machine is paused", cached: []client.Object{cluster(), change(machine("m", ""), moved, func(m *clusterv1.Machine) {
			m.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		})}},
		{name: "where the Cluster is paused", cached: []client.Object{change(cluster(), func(c *clusterv1.Cluster) { c.Spec.Paused = new(true) }), change(machine("m", ""), moved)}},
		{name: "where the Cluster is gone", cached: []client.Object{change(machine("m", ""), moved)}},
		{name: "where the Machine has gone to another Cluster", cached: []client.Object{cluster(), change(machine("m", ""), moved, elsewhere)}},
		{name: "where the kubelet has made the record up", cached: []client.Object{cluster(), change(machine("m", ""), moved)}, node: change(node("n aws:9 10.0.0.1"), func(n *corev1.Node) {
			n.SetAnnotations(map[string]string{inherit.MatchedByAddressAnnotation: "m.0000"})
		})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			if tc.node == nil {
				tc.node = matched("n - 10.0.0.1")
			}
			decided, err := (&Chain{Reader: holds(t, tc.cached...), ManagementCluster: itself}).EvaluateNode(t.Context(), tc.node, inherit.Policy{})
			Expect(err).NotTo(HaveOccurred())
			Expect(decided.Inherits()).To(Equal(tc.goes))
			if !tc.goes {
				Expect(decided.Reason).NotTo(BeEmpty())
				return
			}
			Expect(decided.Source.String()).To(Equal("Machine ns/m"))
			now, err := inherit.Policy{}.Node(decided.Source, inherit.OfNode(tc.node), inherit.Privileged)
			Expect(err).NotTo(HaveOccurred())
			Expect(now.Labels).To(HaveLen(1), "only what says that nothing is recorded")
			Expect(now.Annotations).NotTo(HaveKey(inherit.MatchedByAddressAnnotation))
		})
	}
}

// A Node of a control plane gets what rule 1 is about to bring to the control plane, as far as its kind has room for it.
func TestANodeOfAControlPlaneInheritsWhatItsTopologyDeclares(t *testing.T) {
	layout := func(fields ...string) func(context.Context, schema.GroupVersionKind) (inherit.Layout, error) {
		return func(_ context.Context, gvk schema.GroupVersionKind) (inherit.Layout, error) {
			return inherit.ControlPlaneLayout(gvk.Version, func(path ...string) bool {
				for _, field := range fields {
					if path[len(path)-1] == field {
						return true
					}
				}
				return false
			}), nil
		}
	}
	class := clusterClass()
	class.Spec.ControlPlane.MachineInfrastructure.TemplateRef.Name = "t"
	class.Spec.ControlPlane.Taints = []clusterv1.MachineTaint{{Key: "fromClass", Effect: "NoSchedule", Propagation: "Always"}}
	for _, tc := range []struct {
		name          string
		layout        func(context.Context, schema.GroupVersionKind) (inherit.Layout, error)
		labels, taint bool
	}{
		{name: "all that there is room for", layout: layout("metadata", "taints"), labels: true, taint: true},
		{name: "no taints where the kind has none", layout: layout("metadata"), labels: true},
		{name: "no labels where the kind has none", layout: layout("taints"), taint: true},
		{name: "nothing while nobody can tell", layout: func(context.Context, schema.GroupVersionKind) (inherit.Layout, error) {
			return inherit.Layout{}, errors.New("no schema")
		}},
		{name: "nothing where nobody is asked"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			Expect := NewWithT(t).Expect
			cp := controlPlane("c")
			ofTopology(cp)
			m := change(machine("m", acme+" AcmeControlPlane/cp"), isNode)
			chain := Chain{Reader: holds(t, managedCluster(), class, m, cp), ManagementCluster: itself, Layout: tc.layout}
			decided, err := chain.EvaluateNode(t.Context(), node("n"), inherit.Policy{})
			Expect(err).NotTo(HaveOccurred())
			got := decided.Source
			Expect(got.Labels).To(HaveKey("fromControlPlane"))
			if tc.labels {
				Expect(got.Labels).To(And(HaveKey("fromClass"), HaveKey("fromCluster")))
			} else {
				Expect(got.Labels).NotTo(Or(HaveKey("fromClass"), HaveKey("fromCluster")))
			}
			Expect(len(got.Unprotected(inherit.NodeState{})) > 0).To(Equal(tc.taint))
		})
	}
}

// A Node that is left out is known by its Machine, its MachinePool or its Cluster, never by what its kubelet says.
func TestIgnored(t *testing.T) {
	ignored := map[string]string{inherit.IgnoreLabel: ""}
	cluster := func() *clusterv1.Cluster { return &clusterv1.Cluster{ObjectMeta: named("c", "")} }
	pool := &clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c", ProviderIDList: []string{"aws:1"}}}
	label := func(o client.Object) client.Object {
		o.SetLabels(ignored)
		return o
	}
	for _, tc := range []struct {
		name   string
		cached []client.Object
		want   bool
	}{
		{name: "by its Machine", cached: []client.Object{cluster(), label(change(machine("m", ""), provided))}, want: true},
		{name: "by its MachinePool", cached: []client.Object{cluster(), label(pool.DeepCopy())}, want: true},
		{name: "by its Cluster", cached: []client.Object{label(cluster()), change(machine("m", ""), provided)}, want: true},
		{name: "not by itself", cached: []client.Object{cluster(), change(machine("m", ""), provided)}},
		{name: "not where it has no Machine", cached: []client.Object{label(cluster())}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := node("n aws:1")
			n.Labels = ignored
			got, err := (&Chain{Reader: holds(t, tc.cached...), ManagementCluster: itself}).EvaluateNode(t.Context(), n, inherit.Policy{})
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(got.Reason.OptedOut()).To(Equal(tc.want))
		})
	}
}
