// SPDX-License-Identifier: Apache-2.0

package integration

import (
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/test/stage"
)

// fleetName is the namespace of the fleet.
const fleetName = "fleet"

// createFleet creates the objects of testdata/fleet.yaml, with the field managers of their creators: Cluster prod of ClusterClass standard, with
// an object of each kind that inherits, and Cluster edge without a topology. It calls created after each object.
func (s *scene) createFleet(created func(*unstructured.Unstructured)) (all []*unstructured.Unstructured) {
	s.t.Helper()
	var fleet []struct {
		Manager string
		Objects []map[string]any
	}
	s.Expect(yaml.Unmarshal([]byte(s.read("testdata/fleet.yaml")), &fleet)).To(Succeed())
	s.ensureNamespace(fleetName)
	s.ensureNamespace("capi-system")
	uids := map[string]types.UID{}
	for _, by := range fleet {
		for _, content := range by.Objects {
			u := &unstructured.Unstructured{Object: content}
			owners := u.GetOwnerReferences()
			for i, owner := range owners {
				owners[i].UID = uids[owner.Kind+owner.Name]
			}
			u.SetOwnerReferences(owners)
			s.Expect(s.Client.Create(s.ctx, u, client.FieldOwner(by.Manager))).To(Succeed())
			uids[u.GetKind()+u.GetName()] = u.GetUID()
			all = append(all, u)
			created(u)
		}
	}
	return all
}

// declare sets a label with this value, and a label with the value in its key, in every section of the fleet's class and of its topology. An
// empty value removes all labels.
func (s *scene) declare(value string) {
	s.t.Helper()
	metadata := clusterv1.ObjectMeta{}
	if value != "" {
		metadata.Labels = map[string]string{"cluster": value, "cluster-" + value: ""}
	}
	class, cluster := &clusterv1.ClusterClass{}, stage.Cluster(fleetName, "prod")
	class.Namespace, class.Name = fleetName, "standard"
	for _, object := range []client.Object{class, cluster} {
		s.get(object)
		s.update(object, func() {
			workers, topology := &class.Spec.Workers, &cluster.Spec.Topology
			class.Spec.ControlPlane.Metadata, topology.ControlPlane.Metadata = metadata, metadata
			for i := range workers.MachineDeployments {
				workers.MachineDeployments[i].Metadata, workers.MachinePools[i].Metadata = metadata, metadata
			}
			for i := range topology.Workers.MachineDeployments {
				topology.Workers.MachineDeployments[i].Metadata, topology.Workers.MachinePools[i].Metadata = metadata, metadata
			}
		})
	}
}

// machineOf makes m a Machine of the control plane.
func machineOf(cp *unstructured.Unstructured, m *clusterv1.Machine) *clusterv1.Machine {
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName, clusterv1.MachineControlPlaneLabel: ""}
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cp, cp.GroupVersionKind())}
	m.Spec.InfrastructureRef.Name = m.Name
	return m
}

// infraMachine returns the InfraMachine of a Machine, with the name in the Machine's reference.
func infraMachine(m *clusterv1.Machine) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": "small"}}}
	u.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	u.SetKind("FakeMachine")
	u.SetNamespace(m.Namespace)
	u.SetName(m.Spec.InfrastructureRef.Name)
	u.SetLabels(map[string]string{clusterv1.ClusterNameLabel: m.Spec.ClusterName})
	u.SetOwnerReferences([]metav1.OwnerReference{stage.ControlledBy(m, "Machine")})
	return u
}
