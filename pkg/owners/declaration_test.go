// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Which Nodes do the same work, and how many there are.
func TestNodeGroup(t *testing.T) {
	const owned = clusterv1.ClusterTopologyOwnedLabel
	drains := clusterv1.ObjectMeta{Annotations: map[string]string{taint.AlwaysAnnotation: "drain:NoExecute"}}
	inUse := func(name, owner string) *clusterv1.Machine {
		m := machine(name, owner)
		m.Status.NodeRef.Name = name
		return m
	}
	managed := func(object client.Object) client.Object {
		object.SetLabels(map[string]string{
			clusterv1.ClusterNameLabel: "c", owned: "", clusterv1.ClusterTopologyMachineDeploymentNameLabel: "w", clusterv1.ClusterTopologyMachinePoolNameLabel: "w",
		})
		return object
	}
	pool := func() *clusterv1.MachinePool {
		return &clusterv1.MachinePool{ObjectMeta: named("mp", ""), Spec: clusterv1.MachinePoolSpec{ClusterName: "c", ProviderIDList: []string{"a", "b", "c"}}}
	}
	managedPool := pool()
	managed(managedPool)
	topology := func(byClass, byCluster clusterv1.ObjectMeta) []client.Object {
		class := &clusterv1.ClusterClass{ObjectMeta: named("class", ""), Spec: classWith("worker", byClass)}
		cluster := &clusterv1.Cluster{ObjectMeta: named("c", ""), Spec: clusterv1.ClusterSpec{Topology: topologyWith("class", "w", "worker", byCluster)}}
		return []client.Object{class, cluster}
	}
	ofControlPlane := func() inherit.NodeSource { return inherit.SourceOfMachine(inUse("m", acme+" AcmeControlPlane/cp")) }
	another := func(objects []client.Object) []client.Object {
		objects[1].(*clusterv1.Cluster).Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.ControlPlaneGroup, Kind: "AcmeControlPlane", Name: "another"}
		return objects
	}
	var none clusterv1.ObjectMeta
	for _, tc := range []struct {
		name    string
		from    inherit.NodeSource
		objects []client.Object
		want    string
	}{
		{
			name: "a MachineDeployment with two MachineSets", from: inherit.SourceOfMachine(inUse("m", "MachineSet/ms")), want: "MachineDeployment ns/md: 2 Nodes",
			objects: []client.Object{
				machineDeployment("md"), machineSet("MachineDeployment/md"), inUse("m", "MachineSet/ms"), machine("to-come", "MachineSet/ms"),
				&clusterv1.MachineSet{ObjectMeta: named("old", "MachineDeployment/md"), Spec: clusterv1.MachineSetSpec{ClusterName: "c"}}, inUse("n", "MachineSet/old"), inUse("other", "MachineSet/other"),
			},
		},
		{name: "a MachineSet that stands alone", from: inherit.SourceOfMachine(inUse("m", "MachineSet/ms")), objects: []client.Object{machineSet(""), inUse("m", "MachineSet/ms")}, want: "MachineSet ns/ms: 1 Nodes"},
		{name: "a MachinePool with Machines", from: inherit.SourceOfMachine(inUse("m", "MachinePool/mp")), objects: []client.Object{pool()}, want: "MachinePool ns/mp: 3 Nodes"},
		{name: "a MachinePool without", from: inherit.SourceOfMachinePool(pool(), pool()), objects: []client.Object{pool()}, want: "MachinePool ns/mp: 3 Nodes"},
		{name: "one that has just gone", from: inherit.SourceOfMachinePool(pool(), pool()), want: "MachinePool ns/mp: 3 Nodes"},
		{name: "a Machine without an owner", from: inherit.SourceOfMachine(inUse("m", "")), want: "Machine ns/m: 0 Nodes"},
		{name: "a class that declares it", from: inherit.SourceOfMachine(inUse("m", "MachineSet/ms")), objects: append(topology(drains, none), managed(machineDeployment("md")), machineSet("MachineDeployment/md")), want: "MachineDeployment ns/md: 0 Nodes"},
		{name: "for a MachinePool", from: inherit.SourceOfMachinePool(managedPool, managedPool), objects: append(topology(drains, none), managedPool), want: "MachinePool ns/mp: 3 Nodes"},
		{name: "a control plane on its own", from: ofControlPlane(), objects: append(topology(drains, drains), controlPlane("c")), want: "AcmeControlPlane ns/cp: 0 Nodes"},
		{name: "a control plane whose class has it in a template", from: ofControlPlane(), objects: append(topology(none, none), managed(controlPlane("c"))), want: "AcmeControlPlane ns/cp: 0 Nodes"},
		{name: "a MachineDeployment beside the topology", from: inherit.SourceOfMachine(inUse("m", "MachineSet/ms")), objects: append(topology(drains, none), machineDeployment("md"), machineSet("MachineDeployment/md")), want: "MachineDeployment ns/md: 0 Nodes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			chain := Chain{Reader: holds(t, tc.objects...)}
			group, nodes, err := chain.NodeGroup(t.Context(), tc.from)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(fmt.Sprintf("%s: %d Nodes", group, nodes)).To(Equal(tc.want))
		})
	}
}
