// SPDX-License-Identifier: Apache-2.0

package owners

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/heirloom-dev/heirloom/pkg/inherit"
)

// transformed reads an object from YAML and transforms it twice, as an informer does with its first list.
func transformed[T any](t *testing.T, document string) *T {
	t.Helper()
	object := new(T)
	NewWithT(t).Expect(yaml.UnmarshalStrict([]byte(document), object)).To(Succeed())
	for range 2 {
		_, err := Transform(object)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
	return object
}

// Of each kind the cache keeps what the rules, the loop and the ClusterCache read, and drops what takes most of the memory.
func TestTransform(t *testing.T) {
	Expect := NewWithT(t).Expect
	cluster := transformed[clusterv1.Cluster](t, `
spec: {paused: true, topology: {classRef: {name: cc}, version: v1, variables: [{name: v, value: 1}], workers: {
  machineDeployments: [{name: md, class: w, minReadySeconds: 1, variables: {overrides: [{name: v, value: 1}]}}],
  machinePools: [{name: mp, class: w, minReadySeconds: 2, variables: {overrides: [{name: v, value: 1}]}}]}}}
status: {phase: Provisioned, initialization: {infrastructureProvisioned: true}}`)
	Expect(cluster.Spec.Paused).To(HaveValue(BeTrue()))
	Expect(cluster.Spec.Topology.ClassRef.Name).To(Equal("cc"))
	Expect(cluster.Spec.Topology.Variables).To(BeNil())
	Expect(cluster.Spec.Topology.Workers.MachineDeployments).To(Equal([]clusterv1.MachineDeploymentTopology{{Name: "md", Class: "w", MinReadySeconds: new(int32(1))}}))
	Expect(cluster.Spec.Topology.Workers.MachinePools).To(Equal([]clusterv1.MachinePoolTopology{{Name: "mp", Class: "w", MinReadySeconds: new(int32(2))}}))
	Expect(cluster.Status).To(Equal(clusterv1.ClusterStatus{Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: new(true)}}))

	class := transformed[clusterv1.ClusterClass](t, `
spec: {variables: [{name: v, required: true}], patches: [{name: p}], workers: {machineDeployments: [{class: w, minReadySeconds: 1}]}}
status: {observedGeneration: 1}`)
	Expect(class).To(Equal(&clusterv1.ClusterClass{Spec: clusterv1.ClusterClassSpec{Workers: clusterv1.WorkersClass{
		MachineDeployments: []clusterv1.MachineDeploymentClass{{Class: "w", MinReadySeconds: new(int32(1))}},
	}}}))

	const status = "\nstatus: {observedGeneration: 7, replicas: 3, conditions: [{type: Ready, status: 'True', reason: r, message: m, lastTransitionTime: null}]}"
	Expect(transformed[clusterv1.MachineDeployment](t, "spec: {clusterName: c}"+status)).To(Equal(&clusterv1.MachineDeployment{
		Spec: clusterv1.MachineDeploymentSpec{ClusterName: "c"}, Status: clusterv1.MachineDeploymentStatus{ObservedGeneration: 7},
	}))
	Expect(transformed[clusterv1.MachineSet](t, "spec: {clusterName: c}"+status)).To(Equal(&clusterv1.MachineSet{
		Spec: clusterv1.MachineSetSpec{ClusterName: "c"}, Status: clusterv1.MachineSetStatus{ObservedGeneration: 7},
	}))
	Expect(transformed[clusterv1.MachinePool](t, "spec: {clusterName: c}"+status)).To(Equal(&clusterv1.MachinePool{
		Spec: clusterv1.MachinePoolSpec{ClusterName: "c"}, Status: clusterv1.MachinePoolStatus{ObservedGeneration: 7},
	}))

	m := transformed[clusterv1.Machine](t, `
spec: {clusterName: c, providerID: p, infrastructureRef: {kind: K, name: x, apiGroup: g}}
status: {nodeRef: {name: node}, observedGeneration: 7, phase: Running, addresses: [{type: ExternalIP, address: 192.0.2.1}, {type: Hostname, address: h}]}`)
	Expect(m.Spec).To(Equal(clusterv1.MachineSpec{
		ClusterName: "c", ProviderID: "p", InfrastructureRef: clusterv1.ContractVersionedObjectReference{Kind: "K", Name: "x", APIGroup: "g"},
	}))
	Expect(m.Status).To(Equal(clusterv1.MachineStatus{
		NodeRef: clusterv1.MachineNodeReference{Name: "node"}, Addresses: []clusterv1.MachineAddress{{Type: "Hostname", Address: "h"}},
	}))

	cp := transformed[unstructured.Unstructured](t, `
{apiVersion: v1, kind: Acme, metadata: {name: cp}, status: {ready: true}, spec: {replicas: 3, machineTemplate: {metadata: {labels: {a: b}}}}}`)
	Expect(cp.Object).To(Equal(map[string]any{
		"apiVersion": "v1", "kind": "Acme", "metadata": map[string]any{"name": "cp"},
		"spec": map[string]any{"machineTemplate": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}},
	}))
	Expect(transformed[unstructured.Unstructured](t, "{apiVersion: v1, kind: Acme, spec: {replicas: 3}}").Object).To(HaveLen(2), "it has no Machines")
	Expect(transformed[unstructured.Unstructured](t, "{apiVersion: v1, kind: Acme, spec: text}").Object).To(HaveLen(2), "it breaks the contract")
}

// Of managed fields the cache keeps our entry. That there are others, which is not the same as none, can still be told.
func TestTransformOfManagedFields(t *testing.T) {
	others := metav1.ManagedFieldsEntry{Manager: "manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}
	ours := metav1.ManagedFieldsEntry{Manager: "heirloom", Operation: "Apply", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a":{}}}}`)}
	for name, tc := range map[string]struct{ sent, kept []metav1.ManagedFieldsEntry }{
		"ours":         {[]metav1.ManagedFieldsEntry{ours}, []metav1.ManagedFieldsEntry{ours}},
		"both":         {[]metav1.ManagedFieldsEntry{others, ours}, []metav1.ManagedFieldsEntry{ours}},
		"only others'": {[]metav1.ManagedFieldsEntry{others}, []metav1.ManagedFieldsEntry{{}}},
		"none":         {},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(1, 0), ManagedFields: tc.sent}}
		for range 2 {
			_, err := Transform(m)
			NewWithT(t).Expect(err).NotTo(HaveOccurred())
			NewWithT(t).Expect(m.ManagedFields).To(Equal(tc.kept), name)
		}
	}
}

// A Node keeps the labels that rules read, and all annotations: an API server accepts only so many of them.
func TestTransformOfNodes(t *testing.T) {
	Expect := NewWithT(t).Expect
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Labels: map[string]string{"l": "1", "node.cluster.x-k8s.io/a": "1"}, Annotations: map[string]string{"a": "1"}, ManagedFields: []metav1.ManagedFieldsEntry{{}},
	}}
	node.Spec = corev1.NodeSpec{ProviderID: "p", PodCIDR: "10.0.0.0/24", Taints: []corev1.Taint{{Key: "t", Effect: "NoSchedule"}}}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"i"}}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: "ExternalIP", Address: "192.0.2.1"}, {Type: "Hostname", Address: "n"}}
	want := node.DeepCopy()
	delete(want.Labels, "l")
	want.ManagedFields, want.Spec.PodCIDR, want.Status = nil, "", corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: "Hostname", Address: "n"}}}
	for range 2 {
		_, err := TransformNode(inherit.Policy{})(node)
		Expect(err).NotTo(HaveOccurred())
		Expect(node).To(Equal(want))
	}
	for _, other := range []any{&corev1.Secret{}, "text"} {
		Expect(Transform(other)).To(BeIdenticalTo(other))
		Expect(TransformNode(inherit.Policy{})(other)).To(BeIdenticalTo(other))
	}
}
