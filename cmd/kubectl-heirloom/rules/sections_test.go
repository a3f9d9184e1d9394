// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/rules"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

func TestDeclarationsOfATopology(t *testing.T) {
	g := NewWithT(t)
	metadata := clusterv1.ObjectMeta{Labels: map[string]string{"a": "1"}}
	topology := clusterv1.Topology{ControlPlane: clusterv1.ControlPlaneTopology{Metadata: metadata}, Workers: clusterv1.WorkersTopology{
		MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "one", Class: "worker", Metadata: metadata}, {Name: "two", Class: "worker", Metadata: metadata}},
		MachinePools:       []clusterv1.MachinePoolTopology{{Name: "one", Class: "pool", Metadata: metadata}},
	}}
	class := clusterv1.ClusterClassSpec{ControlPlane: clusterv1.ControlPlaneClass{Metadata: metadata}, Workers: clusterv1.WorkersClass{
		MachineDeployments: []clusterv1.MachineDeploymentClass{{Class: "worker", Metadata: metadata}},
		MachinePools:       []clusterv1.MachinePoolClass{{Class: "worker", Metadata: metadata}},
	}}
	fields := func(declared []inherit.Declaration) (fields []string) {
		for _, d := range declared {
			entry := inherit.Entry{What: "label", Name: "a"}
			g.Expect(d.Declares(entry)).To(BeTrue())
			fields = append(fields, d.Kind+" "+inherit.Sources{All: []inherit.Declaration{d}}.Of(entry).Field)
		}
		return fields
	}
	cluster := &clusterv1.Cluster{Spec: clusterv1.ClusterSpec{Topology: topology}}
	cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: "controlplane.cluster.x-k8s.io", Kind: "X", Name: "x"}
	g.Expect(fields(rules.OfCluster(cluster))).To(Equal([]string{
		"Cluster spec.topology.controlPlane.metadata.labels",
		"Cluster spec.topology.workers.machineDeployments[one].metadata.labels",
		"Cluster spec.topology.workers.machineDeployments[two].metadata.labels",
		"Cluster spec.topology.workers.machinePools[one].metadata.labels",
	}))
	g.Expect(fields(rules.OfClass(&clusterv1.ClusterClass{Spec: class}))).To(Equal([]string{
		"ClusterClass spec.controlPlane.metadata.labels",
		"ClusterClass spec.workers.machineDeployments[worker].metadata.labels",
		"ClusterClass spec.workers.machinePools[worker].metadata.labels",
	}))
	g.Expect(rules.OfCluster(&clusterv1.Cluster{})).To(BeEmpty())
}
