// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/settings"
	"github.com/heirloom-dev/heirloom/cmd/kubectl-heirloom/snapshot"
	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// now is when the trees of tests are looked at. Their Nodes are a day old.
func now() time.Time { return time.Now() }

// world is a Cluster fleet/prod of the ClusterClass quick in which everything has what it inherits, with a control plane and a
// MachineDeployment. A test changes it before it looks.
type world struct {
	class        *clusterv1.ClusterClass
	cluster      *clusterv1.Cluster
	controlPlane *unstructured.Unstructured
	deployment   *clusterv1.MachineDeployment
	set          *clusterv1.MachineSet
	machines     []*clusterv1.Machine
	infra        []*unstructured.Unstructured
	nodes        []*corev1.Node
	others       []client.Object
	nodesErr     error
	// flags are the server's.
	flags []string
}

func gpu() clusterv1.MachineTaint {
	return clusterv1.MachineTaint{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways}
}

// prod returns the world, with three Machines of the control plane and so many workers.
func prod(workers int) *world {
	w := &world{
		class:   &clusterv1.ClusterClass{ObjectMeta: named("quick", nil, nil)},
		cluster: &clusterv1.Cluster{ObjectMeta: named("prod", nil, nil)},
	}
	w.class.Spec.ControlPlane.Metadata.Labels = map[string]string{"tier": "std"}
	w.class.Spec.Workers.MachineDeployments = []clusterv1.MachineDeploymentClass{{Class: "worker", Metadata: clusterv1.ObjectMeta{Labels: map[string]string{"tier": "std"}}}}
	w.cluster.Spec.ControlPlaneRef = clusterv1.ContractVersionedObjectReference{APIGroup: inherit.ControlPlaneGroup, Kind: "AcmeControlPlane", Name: "prod-cp"}
	w.cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "quick"}}
	w.cluster.Spec.Topology.Workers.MachineDeployments = []clusterv1.MachineDeploymentTopology{{
		Name: "md-0", Class: "worker",
		Metadata: clusterv1.ObjectMeta{Labels: map[string]string{"node.cluster.x-k8s.io/pool": "ml"}},
		Taints:   []clusterv1.MachineTaint{gpu()},
	}}
	w.controlPlane = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": inherit.ControlPlaneGroup + "/v1beta2", "kind": "AcmeControlPlane",
		"metadata": map[string]any{
			"namespace": "fleet", "name": "prod-cp", "uid": "prod-cp",
			"labels": map[string]any{clusterv1.ClusterNameLabel: "prod", clusterv1.ClusterTopologyOwnedLabel: "", "tier": "std"},
		},
		"spec": map[string]any{"machineTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"tier": "std"}}}},
	}}
	labels := map[string]string{"tier": "std", "node.cluster.x-k8s.io/pool": "ml"}
	template := clusterv1.MachineTemplateSpec{ObjectMeta: clusterv1.ObjectMeta{Labels: with(labels, "shift", "day")}}
	template.Spec.Taints = []clusterv1.MachineTaint{gpu()}
	w.deployment = &clusterv1.MachineDeployment{
		ObjectMeta: named("prod-md-0", with(labels,
			clusterv1.ClusterNameLabel, "prod", clusterv1.ClusterTopologyOwnedLabel, "", clusterv1.ClusterTopologyMachineDeploymentNameLabel, "md-0"), nil),
		Spec: clusterv1.MachineDeploymentSpec{ClusterName: "prod", Template: template},
	}
	w.set = &clusterv1.MachineSet{
		ObjectMeta: named("prod-md-0-abc", template.Labels, controller(clusterv1.GroupVersion.WithKind("MachineDeployment"), "prod-md-0")),
		Spec:       clusterv1.MachineSetSpec{ClusterName: "prod", Template: *template.DeepCopy()},
	}
	for n := range 3 {
		w.machine(fmt.Sprintf("prod-cp-%d", n), map[string]string{"tier": "std"}, controller(w.controlPlane.GroupVersionKind(), "prod-cp"))
	}
	for n := range workers {
		w.machine(fmt.Sprintf("prod-md-0-abc-%d", n), template.Labels, controller(clusterv1.GroupVersion.WithKind("MachineSet"), "prod-md-0-abc"))
	}
	return w
}

// machine adds a Machine with its infrastructure and its Node.
func (w *world) machine(name string, labels map[string]string, owner *metav1.OwnerReference) {
	m := &clusterv1.Machine{ObjectMeta: named(name, with(labels, clusterv1.ClusterNameLabel, "prod"), owner)}
	m.Spec.ClusterName, m.Spec.ProviderID = "prod", "acme://"+name
	m.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: clusterv1.GroupVersionInfrastructure.Group, Kind: "AcmeMachine", Name: name}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-" + name, Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(now().Add(-24 * time.Hour))},
		Spec:       corev1.NodeSpec{ProviderID: m.Spec.ProviderID},
	}
	if owner.Kind == "MachineSet" {
		m.Spec.Taints = []clusterv1.MachineTaint{gpu()}
		node.Labels["node.cluster.x-k8s.io/pool"] = "ml"
		node.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(clusterv1.GroupVersionInfrastructure.WithKind("AcmeMachine"))
	infra.SetNamespace("fleet")
	infra.SetName(name)
	infra.SetUID(types.UID("infra-" + name))
	infra.SetLabels(m.Labels)
	infra.SetOwnerReferences([]metav1.OwnerReference{*controller(clusterv1.GroupVersion.WithKind("Machine"), name)})
	w.machines, w.infra, w.nodes = append(w.machines, m), append(w.infra, infra), append(w.nodes, node)
}

// forest is the answer about the world.
func (w *world) forest(t *testing.T, view View) *Forest {
	t.Helper()
	g := NewWithT(t)
	from := snapshot.New(w.serves(t), layouts{})
	var nodes []client.Object
	for _, node := range w.nodes {
		nodes = append(nodes, node)
	}
	workload := fake.NewClientBuilder().WithObjects(nodes...).Build()
	read := snapshot.Nodes(func(context.Context, types.NamespacedName) (client.Reader, error) { return workload, w.nodesErr }).Once()
	server, err := (&settings.Flags{ServerFlags: append(w.flags, "--cluster-api-taint-propagation=enabled")}).Offline()
	g.Expect(err).NotTo(HaveOccurred())
	policy := server.Policy()
	key := types.NamespacedName{Namespace: "fleet", Name: "prod"}
	walked, err := from.Walk(t.Context(), key, server, policy, read)
	g.Expect(err).NotTo(HaveOccurred())
	policy.SkipNothing = true
	all, err := from.Walk(t.Context(), key, server, policy, read)
	g.Expect(err).NotTo(HaveOccurred())
	forest := New(view)
	forest.Add(t.Context(), Builder{Policy: policy, Now: now()}, walked, all)
	return forest
}

func (w *world) serves(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	utilruntime.Must(clusterv1.AddToScheme(scheme))
	scheme.AddKnownTypeWithName(clusterv1.GroupVersionInfrastructure.WithKind("AcmeMachine"), &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(clusterv1.GroupVersionInfrastructure.WithKind("AcmeMachineList"), &unstructured.UnstructuredList{})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{w.controlPlane.GroupVersionKind().GroupVersion(), clusterv1.GroupVersionInfrastructure})
	mapper.Add(w.controlPlane.GroupVersionKind(), meta.RESTScopeNamespace)
	mapper.Add(clusterv1.GroupVersionInfrastructure.WithKind("AcmeMachine"), meta.RESTScopeNamespace)
	for _, kind := range []string{"Cluster", "ClusterClass", "MachineDeployment", "MachineSet", "MachinePool", "Machine"} {
		mapper.Add(clusterv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	all := append([]client.Object{w.class, w.cluster, w.controlPlane, w.deployment, w.set}, w.others...)
	for i := range w.machines {
		all = append(all, w.machines[i])
	}
	for _, infra := range w.infra {
		all = append(all, infra)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(all...).WithReturnManagedFields().Build()
}

// layouts are those of kinds that have all fields.
type layouts struct{}

func (layouts) ControlPlane(context.Context, schema.GroupVersionKind) (inherit.Layout, error) {
	return inherit.ControlPlaneLayout("v1beta2", func(...string) bool { return true }), nil
}

func (layouts) Machine(context.Context, schema.GroupVersionKind) inherit.Layout {
	return inherit.MachineLayout
}

// named returns the metadata of an object in namespace fleet.
func named(name string, labels map[string]string, owner *metav1.OwnerReference) metav1.ObjectMeta {
	object := metav1.ObjectMeta{Namespace: "fleet", Name: name, UID: types.UID(name), Labels: with(labels)}
	if owner != nil {
		object.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return object
}

func controller(gvk schema.GroupVersionKind, name string) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: name, UID: types.UID(name), Controller: new(true)}
}

// with returns a copy of a map with these keys and values.
func with(m map[string]string, pairs ...string) map[string]string {
	all := map[string]string{}
	for key, value := range m {
		all[key] = value
	}
	for pair := range slices.Chunk(pairs, 2) {
		all[pair[0]] = pair[1]
	}
	return all
}

// without returns a copy of a map without a key.
func without(m map[string]string, key string) map[string]string {
	all := with(m)
	delete(all, key)
	return all
}
