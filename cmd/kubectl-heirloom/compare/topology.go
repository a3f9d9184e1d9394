// SPDX-License-Identifier: Apache-2.0

package compare

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// sectionsOfCluster says what the topology of a Cluster declares, section by section.
func sectionsOfCluster(cluster *clusterv1.Cluster) (all []inherit.Declaration) {
	class, workers := &clusterv1.ClusterClass{}, &cluster.Spec.Topology.Workers
	for i := range workers.MachineDeployments {
		section := clusterv1.MachineDeploymentClass{Class: workers.MachineDeployments[i].Class}
		class.Spec.Workers.MachineDeployments = append(class.Spec.Workers.MachineDeployments, section)
	}
	for i := range workers.MachinePools {
		section := clusterv1.MachinePoolClass{Class: workers.MachinePools[i].Class}
		class.Spec.Workers.MachinePools = append(class.Spec.Workers.MachinePools, section)
	}
	for _, both := range sections(cluster, class) {
		all = append(all, both[0])
	}
	return all
}

// sectionsOfClass says what a ClusterClass declares, section by section.
func sectionsOfClass(class *clusterv1.ClusterClass) (all []inherit.Declaration) {
	cluster, workers := &clusterv1.Cluster{}, &class.Spec.Workers
	topology := &cluster.Spec.Topology
	topology.ClassRef.Name = "any"
	for i := range workers.MachineDeployments {
		section := clusterv1.MachineDeploymentTopology{Name: workers.MachineDeployments[i].Class, Class: workers.MachineDeployments[i].Class}
		topology.Workers.MachineDeployments = append(topology.Workers.MachineDeployments, section)
	}
	for i := range workers.MachinePools {
		section := clusterv1.MachinePoolTopology{Name: workers.MachinePools[i].Class, Class: workers.MachinePools[i].Class}
		topology.Workers.MachinePools = append(topology.Workers.MachinePools, section)
	}
	for _, both := range sections(cluster, class) {
		all = append(all, both[1])
	}
	return all
}

// sections returns what a Cluster and its ClusterClass declare in each section of the topology.
func sections(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass) (all [][]inherit.Declaration) {
	add := func(object metav1.Object, nameLabel, name string) {
		object.SetLabels(map[string]string{
			clusterv1.ClusterNameLabel: cluster.Name, clusterv1.ClusterTopologyOwnedLabel: "", nameLabel: name,
		})
		if section := inherit.SectionOf(cluster, class, object); section != nil {
			all = append(all, section.Declarations(cluster, class))
		}
	}
	cp := &inherit.ControlPlane{}
	ref := cluster.Spec.ControlPlaneRef
	cp.Name, cp.Kind, cp.APIVersion = ref.Name, ref.Kind, ref.APIGroup+"/v1"
	add(cp, "", "")
	for i := range cluster.Spec.Topology.Workers.MachineDeployments {
		name := cluster.Spec.Topology.Workers.MachineDeployments[i].Name
		add(&clusterv1.MachineDeployment{}, clusterv1.ClusterTopologyMachineDeploymentNameLabel, name)
	}
	for i := range cluster.Spec.Topology.Workers.MachinePools {
		add(&clusterv1.MachinePool{}, clusterv1.ClusterTopologyMachinePoolNameLabel, cluster.Spec.Topology.Workers.MachinePools[i].Name)
	}
	return all
}
