// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// A MachineHealthCheck has what the topology declares for the MachineDeployment that it checks.
func TestMachineHealthChecks(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, both)
	name := s.own("mhc")
	s.ensureNamespace(name)
	class := clusterClass(name)
	class.Namespace = name
	s.create(class)
	cluster := stage.Cluster(name, name+"-topology")
	cluster.Spec.Topology = clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: class.Name}, Version: "v1.36.0",
		Workers: clusterv1.WorkersTopology{MachineDeployments: []clusterv1.MachineDeploymentTopology{{
			Name: "md", Class: class.Spec.Workers.MachineDeployments[0].Class, Metadata: clusterv1.ObjectMeta{Labels: map[string]string{"team": "a"}},
		}}},
	}
	s.create(cluster)
	mhc := &clusterv1.MachineHealthCheck{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, Labels: map[string]string{
			clusterv1.ClusterNameLabel: cluster.Name, clusterv1.ClusterTopologyOwnedLabel: "",
		}},
		Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: cluster.Name,
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "md"}},
			Checks: clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
				{Type: "Ready", Status: "Unknown", TimeoutSeconds: new(int32(300))},
			}},
		},
	}
	s.create(mhc)
	s.Expect(mhc.Labels).To(HaveKeyWithValue("team", "a"), "in the write that creates it")
	s.get(cluster)
	s.update(cluster, func() { cluster.Spec.Topology.Workers.MachineDeployments[0].Metadata.Labels["team"] = "b" })
	s.eventually(mhc, func(g Gomega) { g.Expect(mhc.Labels).To(HaveKeyWithValue("team", "b")) })
}
