// SPDX-License-Identifier: Apache-2.0

package compare

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// sectionsOfCluster returns the declarations of a Cluster's topology, section by section.
func sectionsOfCluster(cluster *clusterv1.Cluster) []inherit.Declaration {
	class := &clusterv1.ClusterClass{} // it has all sections, and declares nothing
	for _, md := range cluster.Spec.Topology.Workers.MachineDeployments {
		class.Spec.Workers.MachineDeployments = append(class.Spec.Workers.MachineDeployments, clusterv1.MachineDeploymentClass{Class: md.Class})
	}
	for _, mp := range cluster.Spec.Topology.Workers.MachinePools {
		class.Spec.Workers.MachinePools = append(class.Spec.Workers.MachinePools, clusterv1.MachinePoolClass{Class: mp.Class})
	}
	return sections(cluster, class, 0)
}

// sectionsOfClass returns the declarations of a ClusterClass, section by section.
func sectionsOfClass(class *clusterv1.ClusterClass) []inherit.Declaration {
	cluster := &clusterv1.Cluster{} // it uses all sections, and declares nothing
	topology := &cluster.Spec.Topology
	topology.ClassRef.Name = "any"
	for _, md := range class.Spec.Workers.MachineDeployments {
		section := clusterv1.MachineDeploymentTopology{Name: md.Class, Class: md.Class}
		topology.Workers.MachineDeployments = append(topology.Workers.MachineDeployments, section)
	}
	for _, mp := range class.Spec.Workers.MachinePools {
		topology.Workers.MachinePools = append(topology.Workers.MachinePools, clusterv1.MachinePoolTopology{Name: mp.Class, Class: mp.Class})
	}
	return sections(cluster, class, 1)
}

// sections returns the declarations of a Cluster (at is 0) or its ClusterClass (at is 1) in each section of the topology.
func sections(cluster *clusterv1.Cluster, class *clusterv1.ClusterClass, at int) (all []inherit.Declaration) {
	add := func(object metav1.Object, nameLabel, name string) {
		object.SetLabels(map[string]string{
			clusterv1.ClusterNameLabel: cluster.Name, clusterv1.ClusterTopologyOwnedLabel: "", nameLabel: name,
		})
		if section := inherit.SectionOf(cluster, class, object); section != nil {
			all = append(all, section.Declarations(cluster, class)[at])
		}
	}
	ref := cluster.Spec.ControlPlaneRef
	add(&inherit.ControlPlane{
		TypeMeta: metav1.TypeMeta{Kind: ref.Kind, APIVersion: ref.APIGroup + "/v1"}, ObjectMeta: metav1.ObjectMeta{Name: ref.Name},
	}, "", "")
	for _, md := range cluster.Spec.Topology.Workers.MachineDeployments {
		add(&clusterv1.MachineDeployment{}, clusterv1.ClusterTopologyMachineDeploymentNameLabel, md.Name)
	}
	for _, mp := range cluster.Spec.Topology.Workers.MachinePools {
		add(&clusterv1.MachinePool{}, clusterv1.ClusterTopologyMachinePoolNameLabel, mp.Name)
	}
	return all
}
