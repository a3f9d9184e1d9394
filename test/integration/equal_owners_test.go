// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
	"github.com/heirloom-dev/heirloom/test/stage"
)

// fleet is one of everything that inherits from a Cluster's topology, in one of two scenes, owners before their children.
type fleet struct {
	*scene
	class    *clusterv1.ClusterClass
	cluster  *clusterv1.Cluster
	children []client.Object
}

// What the webhook answers and what the loop applies are the same also for the rules of control planes, topologies and
// MachinePools (1 to 4 and 9), for what inherits beside a Machine, and for what cluster-autoscaler is told (14).
func TestWebhookAndLoopAgreeOnEveryOwner(t *testing.T) {
	t.Parallel()
	admitted, looped := sharedScene(t, admission), sharedScene(t, loop)
	name := admitted.own(fleetName)
	a, b := newFleet(admitted, name), newFleet(looped, name)
	expectEqual(a, b, func(g Gomega, child client.Object) {
		g.Expect(child.GetLabels()).To(And(HaveKeyWithValue("class", "one"), HaveKeyWithValue("cluster", "one")), "%T", child)
		g.Expect(ours(child)).NotTo(BeEmpty())
		expectCapacity(g, child, "one")
	})
	for _, f := range []*fleet{a, b} {
		f.declare("two")
	}
	expectEqual(a, b, func(g Gomega, child client.Object) {
		g.Expect(child.GetLabels()).To(HaveKeyWithValue("cluster", "two"), "%T", child)
		expectCapacity(g, child, "two")
	})
	for _, f := range []*fleet{a, b} {
		f.declare("")
	}
	expectEqual(a, b, func(g Gomega, child client.Object) {
		g.Expect(child.GetLabels()).NotTo(Or(HaveKey("class"), HaveKey("cluster")), "%T", child)
		g.Expect(ours(child)).To(BeEmpty(), "nothing is declared, so nothing of a %T is ours", child)
	})
}

// fleetName is the usual name of a fleet's namespace, and of most that is in it.
const fleetName = "fleet"

func newFleet(s *scene, name string) *fleet {
	f := &fleet{scene: s, class: clusterClass(name), cluster: stage.Cluster(name, name)}
	s.ensureNamespace(name)
	f.cluster.Spec.Topology = clusterv1.Topology{
		ClassRef: clusterv1.ClusterClassRef{Name: name}, Version: "v1.36.0",
		Workers: clusterv1.WorkersTopology{
			MachineDeployments: []clusterv1.MachineDeploymentTopology{{Name: "md", Class: "worker"}},
			MachinePools:       []clusterv1.MachinePoolTopology{{Name: "mp", Class: "worker"}},
		},
	}
	f.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: "controlplane.cluster.x-k8s.io", Kind: "ModernControlPlane", Name: name,
	}
	f.set("one")
	s.create(f.class, f.cluster)

	owned := map[string]string{clusterv1.ClusterNameLabel: name, clusterv1.ClusterTopologyOwnedLabel: ""}
	cp := modernControlPlane(name, owned)
	md := stage.MachineDeployment(f.cluster, name, stage.Declared{})
	md.Labels = merged(owned, map[string]string{clusterv1.ClusterTopologyMachineDeploymentNameLabel: "md"})
	mp := &clusterv1.MachinePool{ObjectMeta: metav1.ObjectMeta{
		Namespace: name, Name: name, Labels: merged(owned, map[string]string{clusterv1.ClusterTopologyMachinePoolNameLabel: "mp"}),
	}, Spec: clusterv1.MachinePoolSpec{ClusterName: name, Template: md.Spec.Template}}
	mp.Spec.Template.Labels = nil
	f.add(cp, md, mp)
	ms := stage.MachineSet(md, name)
	f.add(ms)
	f.addMachine(ms, "of-set", stage.ControlledBy(ms, "MachineSet"))
	f.addMachine(ms, "of-control-plane", *metav1.NewControllerRef(cp, cp.GroupVersionKind()))
	pooled := stage.Machine(ms, "of-pool")
	pooled.OwnerReferences = []metav1.OwnerReference{stage.ControlledBy(mp, "MachinePool")}
	f.add(pooled)
	return f
}

func (f *fleet) add(children ...client.Object) {
	f.create(children...)
	f.children = append(f.children, children...)
}

// addMachine adds a Machine with its InfraMachine and its BootstrapConfig.
func (f *fleet) addMachine(ms *clusterv1.MachineSet, name string, owner metav1.OwnerReference) {
	m := stage.Machine(ms, name)
	m.OwnerReferences = []metav1.OwnerReference{owner}
	m.Spec.InfrastructureRef.Name = name
	m.Spec.Bootstrap = clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
		APIGroup: "bootstrap.cluster.x-k8s.io", Kind: "KubeadmConfig", Name: name,
	}}
	f.add(m)
	config := infraMachine(m)
	config.SetAPIVersion("bootstrap.cluster.x-k8s.io/v1beta2")
	config.SetKind("KubeadmConfig")
	config.Object["spec"] = map[string]any{"verbosity": int64(1)}
	f.add(infraMachine(m), config)
}

// declare changes what the class and the Cluster declare.
func (f *fleet) declare(value string) {
	f.t.Helper()
	f.get(f.class)
	f.update(f.class, func() { f.setClass(value) })
	f.get(f.cluster)
	f.update(f.cluster, func() { f.setCluster(value) })
}

func (f *fleet) set(value string) {
	f.setClass(value)
	f.setCluster(value)
}

// setClass makes the class declare a value everywhere, or nothing.
func (f *fleet) setClass(value string) {
	metadata, gates, timeout := clusterv1.ObjectMeta{}, []clusterv1.MachineReadinessGate(nil), (*int32)(nil)
	if value != "" {
		metadata = clusterv1.ObjectMeta{
			Labels: map[string]string{"class": value, "cluster": "overruled"}, Annotations: map[string]string{"class/note": value},
		}
		gates = []clusterv1.MachineReadinessGate{{ConditionType: "example.com/" + value}}
		timeout = ptr.To(int32(len(value) * 10))
	}
	spec := &f.class.Spec
	spec.ControlPlane.Metadata, spec.ControlPlane.ReadinessGates = metadata, gates
	spec.ControlPlane.Deletion.NodeDrainTimeoutSeconds = timeout
	for i := range spec.Workers.MachineDeployments {
		md, mp := &spec.Workers.MachineDeployments[i], &spec.Workers.MachinePools[i]
		md.Metadata, md.ReadinessGates, md.MinReadySeconds = metadata, gates, timeout
		md.Deletion.NodeDeletionTimeoutSeconds, mp.Metadata, mp.MinReadySeconds = timeout, metadata, timeout
	}
}

// setCluster makes the Cluster's topology declare a value everywhere, or nothing.
func (f *fleet) setCluster(value string) {
	metadata, taints := clusterv1.ObjectMeta{}, []clusterv1.MachineTaint(nil)
	if value != "" {
		metadata = clusterv1.ObjectMeta{
			Labels:      map[string]string{"cluster": value},
			Annotations: map[string]string{taint.AlwaysAnnotation: "noted=" + value + ":NoExecute"},
		}
		taints = append(stage.Taints(clusterv1.MachineTaintPropagationAlways, "gpu="+value+":NoSchedule"),
			stage.Taints(clusterv1.MachineTaintPropagationOnInitialization, "boot="+value+":NoSchedule")...)
	}
	topology := &f.cluster.Spec.Topology
	topology.ControlPlane.Metadata, topology.ControlPlane.Taints = metadata, taints
	md, mp := &topology.Workers.MachineDeployments[0], &topology.Workers.MachinePools[0]
	metadata = autoscaled(metadata, value)
	md.Metadata, md.Taints, mp.Metadata, mp.Taints = metadata, taints, metadata, taints
}

// expectEqual waits until every child satisfies the check in both scenes and is the same in both.
func expectEqual(a, b *fleet, check func(g Gomega, child client.Object)) {
	a.t.Helper()
	for i := range a.children {
		a.Eventually(func(g Gomega) {
			for _, f := range []*fleet{a, b} {
				for _, child := range f.children[:i+1] { // owners first: webhooks see a child when it is written
					f.get(child)
					f.update(child, func() {
						child.SetLabels(merged(child.GetLabels(), map[string]string{touched: child.GetResourceVersion()}))
					})
				}
			}
			check(g, a.children[i])
			check(g, b.children[i])
			g.Expect(cmp.Diff(essence(a.children[i]), essence(b.children[i]))).To(BeEmpty(), "webhook (-) and loop (+) for a %T", a.children[i])
		}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	}
}

// essence is what matters of a child: its labels, annotations and spec, and which of them is ours.
func essence(child client.Object) map[string]any {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(child)
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	u := &unstructured.Unstructured{Object: object}
	labels := u.GetLabels()
	delete(labels, touched)
	return map[string]any{"labels": labels, "annotations": u.GetAnnotations(), "spec": u.Object["spec"], "ours": ours(child)}
}

// clusterClass returns a ClusterClass whose control plane consists of Machines, with one class of workers.
func clusterClass(name string) *clusterv1.ClusterClass {
	template := func(group, kind string) clusterv1.ClusterClassTemplateReference {
		return clusterv1.ClusterClassTemplateReference{APIVersion: group + ".cluster.x-k8s.io/v1beta2", Kind: kind, Name: "fake"}
	}
	infrastructure, bootstrap := template("infrastructure", "FakeMachineTemplate"), template("bootstrap", "KubeadmConfigTemplate")
	return &clusterv1.ClusterClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name},
		Spec: clusterv1.ClusterClassSpec{
			Infrastructure: clusterv1.InfrastructureClass{TemplateRef: template("infrastructure", "FakeClusterTemplate")},
			ControlPlane: clusterv1.ControlPlaneClass{
				TemplateRef:           template("controlplane", "ModernControlPlaneTemplate"),
				MachineInfrastructure: clusterv1.ControlPlaneClassMachineInfrastructureTemplate{TemplateRef: infrastructure},
			},
			Workers: clusterv1.WorkersClass{
				MachineDeployments: []clusterv1.MachineDeploymentClass{{
					Class:          "worker",
					Bootstrap:      clusterv1.MachineDeploymentClassBootstrapTemplate{TemplateRef: bootstrap},
					Infrastructure: clusterv1.MachineDeploymentClassInfrastructureTemplate{TemplateRef: infrastructure},
				}},
				MachinePools: []clusterv1.MachinePoolClass{{
					Class:          "worker",
					Bootstrap:      clusterv1.MachinePoolClassBootstrapTemplate{TemplateRef: bootstrap},
					Infrastructure: clusterv1.MachinePoolClassInfrastructureTemplate{TemplateRef: infrastructure},
				}},
			},
		},
	}
}

func modernControlPlane(name string, labels map[string]string) *unstructured.Unstructured {
	cp := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"machineTemplate": map[string]any{"spec": map[string]any{
			"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "FakeMachineTemplate", "name": "fake"},
		}}},
	}}
	cp.SetAPIVersion("controlplane.cluster.x-k8s.io/v1beta2")
	cp.SetKind("ModernControlPlane")
	cp.SetNamespace(name)
	cp.SetName(name)
	cp.SetLabels(labels)
	return cp
}
