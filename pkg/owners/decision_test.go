// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"cmp"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/owners"
)

const hasRoom = "node.cluster.x-k8s.io/a"

// children returns an object of each kind that inherits in a world; Cluster API's own workers also declare hasRoom.
func children() map[string]metav1.Object {
	md, mp, ms := machineDeployment("x"), machinePool("x"), machineSet("MachineDeployment/md")
	for _, template := range []*clusterv1.MachineTemplateSpec{&md.Spec.Template, &mp.Spec.Template, &ms.Spec.Template} {
		declaring(template, hasRoom)
	}
	cp := &inherit.ControlPlane{TypeMeta: metav1.TypeMeta{APIVersion: acme, Kind: "AcmeControlPlane"}, ObjectMeta: named("cp", "")}
	ofTopology(md)
	ofTopology(mp)
	ofTopology(cp)
	return map[string]metav1.Object{
		"ControlPlane": cp, "MachineDeployment": md, "MachinePool": mp, "MachineSet": ms, "external object": external("Machine/m"),
		"Machine": machine("x", "MachineSet/ms"), "Machine of a pool": machine("x", "MachinePool/mp"), "Machine of a control plane": machine("x", byControlPlane),
	}
}

// The table has the kinds of Cluster API that the rules name.
func TestTableOfKinds(t *testing.T) {
	var names []string
	for _, kind := range owners.Table {
		if kind.Name != "" {
			names = append(names, kind.Name)
		}
	}
	NewWithT(t).Expect(names).To(Equal(inherit.Kinds))
}

// world returns the objects from which children inherit.
func world() []client.Object {
	return []client.Object{
		managedCluster(), clusterClass(), machineDeployment("md"), machineSet("MachineDeployment/md"), machinePool("mp"), controlPlane("c"), machine("m", "MachineSet/ms", refers),
	}
}

// evaluate evaluates an object with the row of its kind.
func evaluate(t *testing.T, chain *owners.Chain, object metav1.Object, policy inherit.Policy) owners.Decision {
	t.Helper()
	decided, err := kindOf(object).Evaluate(t.Context(), chain, object, policy)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return decided
}

// Objects of every kind are skipped for the same reasons.
func TestSkipped(t *testing.T) {
	watched := inherit.Policy{WatchFilter: "blue"}
	for _, tc := range []struct {
		name            string
		policy          inherit.Policy
		object, cluster func(metav1.Object)
		why             inherit.Reason
	}{
		{name: "an object as it should be is not"},
		{name: "an object that another instance watches", policy: watched, object: label(clusterv1.WatchLabel, "green"), why: "it does not carry the label cluster.x-k8s.io/watch-filter=blue"},
		{name: "an object that this instance watches is not", policy: watched, object: label(clusterv1.WatchLabel, "blue")},
		{name: "an object of a Cluster that is not enrolled", policy: inherit.Policy{OnlyLabeled: true}, why: inherit.ClusterIsNotEnrolled},
		{name: "a paused object", object: pause, why: inherit.IsPaused},
		{name: "an object of a paused Cluster", cluster: func(c metav1.Object) { c.(*clusterv1.Cluster).Spec.Paused = new(true) }, why: inherit.ClusterIsPaused},
	} {
		for kind, object := range children() {
			t.Run(tc.name+" as a "+kind, func(t *testing.T) {
				all := world()
				if tc.object != nil {
					tc.object(object)
				}
				if tc.cluster != nil {
					tc.cluster(all[0])
				}
				if tc.policy.WatchFilter != "" {
					tc.object(all[6]) // an external object need not carry the label, its Machine must
				}
				found := evaluate(t, admission(holds(t, all...), holds(t)), object, tc.policy)
				NewWithT(t).Expect(found.Reason).To(Equal(tc.why))
				NewWithT(t).Expect(found.Untouched()).To(Equal(tc.why != ""))
			})
		}
	}
}

// A Cluster that is not known yet may be paused or skipped: no object inherits until it is. An object that names none inherits.
func TestObjectsOfUnknownClustersAreSkipped(t *testing.T) {
	for kind, object := range children() {
		found := evaluate(t, admission(holds(t, world()[1:]...), holds(t)), object, inherit.Policy{})
		NewWithT(t).Expect(found.Reason).To(Equal(inherit.ClusterDoesNotExist), kind)
		NewWithT(t).Expect(found.Untouched()).To(BeTrue(), kind)
	}
	unnamed := machine("m", "", func(m *clusterv1.Machine) { m.Spec.ClusterName = "" })
	NewWithT(t).Expect(evaluate(t, from(holds(t)), unnamed, inherit.Policy{}).Outcome).To(Equal(inherit.NoOwner))
	for _, value := range []string{inherit.IgnoreAndCleanUp, "release"} { // the deprecated value
		cleaned := machine("m", "", also[*clusterv1.Machine](label(inherit.IgnoreLabel, value)))
		NewWithT(t).Expect(evaluate(t, from(holds(t)), cleaned, inherit.Policy{}).Reason).To(Equal(inherit.IsCleanedUp))
	}
}

// The cache may be behind if the child was written later than all objects that declare its entries.
func TestBehind(t *testing.T) {
	for _, tc := range []struct {
		name, of string
		versions map[string]string
		child    string
		behind   bool
	}{
		{name: "the owner is later", of: "Machine", versions: map[string]string{"ms": "1000"}, child: "999"},
		{name: "the child is later", of: "Machine", versions: map[string]string{"ms": "999"}, child: "1000", behind: true},
		{name: "what is above the owner does not count", of: "Machine", versions: map[string]string{"ms": "9", "md": "11", "c": "11", "cc": "11"}, child: "10", behind: true},
		{name: "one of a topology's two is later", of: "MachineDeployment", versions: map[string]string{"c": "9", "cc": "11"}, child: "10"},
		{name: "neither is", of: "MachineDeployment", versions: map[string]string{"c": "8", "cc": "9"}, child: "10", behind: true},
		{name: "an external object's is its Machine's owner", of: "external object", versions: map[string]string{"m": "11", "ms": "9"}, child: "10", behind: true},
		{name: "nobody can tell", of: "Machine", versions: map[string]string{"ms": "b"}, child: "a", behind: true},
	} {
		all, child := world(), machine("x", "")
		for _, object := range all {
			object.SetResourceVersion(tc.versions[object.GetName()])
		}
		child.ResourceVersion = tc.child
		NewWithT(t).Expect(evaluate(t, from(holds(t, all...)), children()[tc.of], inherit.Policy{}).Behind(child)).To(Equal(tc.behind), tc.name)
		NewWithT(t).Expect(evaluate(t, from(holds(t, all...)), child, inherit.Policy{}).Behind(child)).To(BeFalse(), "nothing declares for it")
	}
}

// TestTopologyInherits checks which Cluster and ClusterClass apply.
func TestTopologyInherits(t *testing.T) {
	labels := func(labels map[string]string) func(metav1.Object) {
		return func(o metav1.Object) { o.SetLabels(labels) }
	}
	both := []client.Object{managedCluster(), clusterClass()}
	for _, tc := range []struct {
		name     string
		object   func(metav1.Object)
		cached   []client.Object
		inherits bool
		why      inherit.Reason
		reads    int
	}{
		{name: "what ClusterClass and Cluster declare is inherited", object: func(metav1.Object) {}, cached: both, inherits: true},
		{name: "an object of no topology inherits nothing", object: labels(map[string]string{clusterv1.ClusterNameLabel: "c"}), cached: both},
		{name: "an object of another namespace inherits nothing", object: func(o metav1.Object) { o.SetNamespace("other") }, cached: both, why: inherit.ClusterDoesNotExist, reads: 1},
		{name: "an object whose Cluster is not cached yet inherits", object: func(metav1.Object) {}, cached: both[1:], inherits: true, reads: 1},
		{name: "an object whose ClusterClass is not there inherits nothing", object: func(metav1.Object) {}, cached: both[:1]},
	} {
		for _, kind := range []string{"ControlPlane", "MachineDeployment", "MachinePool"} {
			t.Run(tc.name+" as a "+kind, func(t *testing.T) {
				Expect, live, object := NewWithT(t).Expect, holds(t, both...), children()[kind]
				tc.object(object)
				found := evaluate(t, admission(holds(t, tc.cached...), live), object, inherit.Policy{})
				Expect(found.Problems()).NotTo(HaveOccurred())
				Expect(found.Untouched()).To(Equal(!tc.inherits))
				Expect(live.gets()).To(Equal(tc.reads))
				if tc.inherits {
					Expect(found.Desired.Top.Labels).To(Equal(map[string]string{"fromClass": "1", "fromCluster": "1"}))
				} else {
					Expect(found.Reason).To(Equal(cmp.Or(tc.why, inherit.NothingDeclares)))
				}
			})
		}
	}
}

// The ClusterClass of a topology need not be in the Cluster's namespace. Clusters are queued again when their class changes.
func TestClusterClass(t *testing.T) {
	class := func(namespace string) *clusterv1.ClusterClass {
		return change(clusterClass(), func(class *clusterv1.ClusterClass) { class.Namespace, class.UID = namespace, "in-"+class.UID })
	}
	cluster := func(name string, of clusterv1.ClusterClassRef) *clusterv1.Cluster {
		return change(ofCluster(name), func(c *clusterv1.Cluster) { c.Spec.Topology.ClassRef = of })
	}
	near, far, both := cluster("near", clusterv1.ClusterClassRef{Name: "cc"}), cluster("far", clusterv1.ClusterClassRef{Name: "cc", Namespace: "classes"}), []client.Object{class("ns"), class("classes")}
	for _, tc := range []struct {
		name    string
		cluster *clusterv1.Cluster
		cached  []client.Object
		want    string
	}{
		{name: "a Cluster without a topology has none", cluster: ofCluster("c"), cached: both},
		{name: "a topology refers to it", cluster: near, cached: both, want: "ns"},
		{name: "in another namespace, too", cluster: far, cached: both, want: "classes"},
		{name: "one of another namespace is another", cluster: near, cached: both[1:]},
		{name: "one that is not cached is none", cluster: near},
		{name: "no Cluster has none", cached: both},
	} {
		Expect, live, namespace := NewWithT(t).Expect, holds(t, both...), ""
		got, err := admission(holds(t, tc.cached...), live).ClusterClass(t.Context(), tc.cluster)
		Expect(err).NotTo(HaveOccurred(), tc.name)
		if got != nil {
			namespace = got.Namespace
		}
		Expect(namespace).To(Equal(tc.want), tc.name)
		Expect(live.gets()).To(BeZero(), "a ClusterClass needs no live read")
	}
	chain := from(holds(t, near, far, cluster("another", clusterv1.ClusterClassRef{Name: "another"}), ofCluster("none")))
	for namespace, want := range map[string]string{"ns": "near", "classes": "far"} {
		NewWithT(t).Expect(chain.ClustersOf(t.Context(), class(namespace))).To(ConsistOf(HaveField("Name", want)))
	}
}
