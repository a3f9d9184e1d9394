// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// Which Nodes do the same work, and how many there are.
func TestNodeGroup(t *testing.T) {
	const owned = clusterv1.ClusterTopologyOwnedLabel
	drains := clusterv1.ObjectMeta{Annotations: map[string]string{taint.AlwaysAnnotation: "drain:NoExecute"}}
	inUse := func(name, owner string) *capi.Machine {
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
	pool := func() *capi.MachinePool {
		return &capi.MachinePool{ObjectMeta: named("mp", ""), Spec: capi.WorkersSpec{ClusterName: "c", ProviderIDList: []string{"a", "b", "c"}}}
	}
	managedPool := pool()
	managed(managedPool)
	topology := func(byClass, byCluster clusterv1.ObjectMeta) []client.Object {
		section := capi.Section{Class: "worker", ObjectMeta: byClass}
		class := &capi.ClusterClass{ObjectMeta: named("class", "")}
		class.Spec.Workers = capi.Workers{MachineDeployments: []capi.Section{section}, MachinePools: []capi.Section{section}}
		class.Spec.ControlPlane = section
		section.Name, section.ObjectMeta = "w", byCluster
		cluster := &capi.Cluster{ObjectMeta: named("c", ""), Spec: capi.ClusterSpec{Topology: &capi.Topology{ClassRef: capi.ClassRef{Name: "class"}}}}
		cluster.Spec.Topology.ControlPlane = section
		cluster.Spec.Topology.Workers = capi.Workers{MachineDeployments: []capi.Section{section}, MachinePools: []capi.Section{section}}
		return []client.Object{class, cluster}
	}
	ofControlPlane := func() inherit.NodeSource { return inherit.SourceOfMachine(inUse("m", acme+" AcmeControlPlane/cp")) }
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
				&capi.MachineSet{ObjectMeta: named("old", "MachineDeployment/md"), Spec: capi.WorkersSpec{ClusterName: "c"}}, inUse("n", "MachineSet/old"), inUse("other", "MachineSet/other"),
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
