// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"testing"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestPathOfAnEntry(t *testing.T) {
	ref := func(kind string) Ref {
		return Ref{kind, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}}
	}
	declares := func(kind string, keys ...string) Declaration {
		d := Declaration{Ref: ref(kind), Content: Content{Labels: map[string]string{}}}
		for _, key := range keys {
			d.Labels[key] = "1"
		}
		return d
	}
	sources := Sources{All: []Declaration{
		declares("Cluster", "topology"), declares("ClusterClass", "class"), declares("MachineDeployment", "topology", "class", "md"),
		declares("MachineSet"), declares("Machine", "own"),
	}}
	for key, want := range map[string][]string{
		"topology": {"Cluster ns/x", "MachineDeployment ns/x", "MachineSet ns/x"},
		"class":    {"ClusterClass ns/x", "MachineDeployment ns/x", "MachineSet ns/x"},
		"md":       {"MachineDeployment ns/x", "MachineSet ns/x"},
		"own":      nil,
	} {
		var got []string
		for _, step := range sources.Path(Entry{What: labelKey, Name: key}, ref("Machine")) {
			got = append(got, step.String())
		}
		gomega.NewWithT(t).Expect(got).To(gomega.Equal(want), key)
	}
	gomega.NewWithT(t).Expect(Sources{}.Path(Entry{}, ref("Machine"))).To(gomega.BeEmpty())
}

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
