// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"testing"

	"github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestDeclarationsOfATopology(t *testing.T) {
	g := gomega.NewWithT(t)
	metadata := clusterv1.ObjectMeta{Labels: map[string]string{"a": "1"}}
	topology := clusterv1.Topology{ControlPlane: clusterv1.ControlPlaneTopology{Metadata: metadata}, Workers: clusterv1.WorkersTopology{
		MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "one", Metadata: metadata}},
		MachinePools:       []clusterv1.MachinePoolTopology{{Name: "one", Metadata: metadata}},
	}}
	class := clusterv1.ClusterClassSpec{ControlPlane: clusterv1.ControlPlaneClass{Metadata: metadata}, Workers: clusterv1.WorkersClass{
		MachineDeployments: []clusterv1.MachineDeploymentClass{{Class: "worker", Metadata: metadata}},
		MachinePools:       []clusterv1.MachinePoolClass{{Class: "worker", Metadata: metadata}},
	}}
	fields := func(declared []Declaration) (fields []string) {
		for _, d := range declared {
			fields = append(fields, d.Kind+" "+Sources{All: []Declaration{d}}.Of(Entry{What: labelKey, Name: "a"}).Field)
		}
		return fields
	}
	g.Expect(fields(DeclarationsOfCluster(&clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Topology: topology}}))).To(gomega.Equal([]string{
		"Cluster spec.topology.controlPlane.metadata.labels",
		"Cluster spec.topology.workers.machineDeployments[one].metadata.labels",
		"Cluster spec.topology.workers.machinePools[one].metadata.labels",
	}))
	g.Expect(fields(DeclarationsOfClass(&clusterv1.ClusterClass{Spec: class}))).To(gomega.Equal([]string{
		"ClusterClass spec.controlPlane.metadata.labels",
		"ClusterClass spec.workers.machineDeployments[worker].metadata.labels",
		"ClusterClass spec.workers.machinePools[worker].metadata.labels",
	}))
	g.Expect(DeclarationsOfCluster(&clusterv1.Cluster{})).To(gomega.BeEmpty())
}
