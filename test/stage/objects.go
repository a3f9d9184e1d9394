// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// hashLabel is the label with which Cluster API distinguishes the MachineSets of a MachineDeployment.
const hashLabel = clusterv1.MachineDeploymentUniqueLabel

// Declared holds the entries that an owner declares for its children.
type Declared struct {
	Labels, Annotations map[string]string
	Taints              []clusterv1.MachineTaint
	// Fields changes the template's in-place fields; nil changes nothing.
	Fields func(*clusterv1.MachineSpec)
	// OwnAnnotations are annotations of the MachineDeployment itself.
	OwnAnnotations map[string]string
}

// Cluster returns a Cluster without a topology.
func Cluster(namespace, name string) *clusterv1.Cluster {
	return &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: clusterv1.ClusterSpec{
			ClusterNetwork: clusterv1.ClusterNetwork{Services: clusterv1.NetworkRanges{CIDRBlocks: []string{"10.128.0.0/12"}}},
		},
	}
}

// MachineDeployment returns a MachineDeployment whose template declares d.
func MachineDeployment(cluster *clusterv1.Cluster, name string, d Declared) *clusterv1.MachineDeployment {
	selector := map[string]string{clusterv1.MachineDeploymentNameLabel: name}
	return &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: clusterLabel(cluster.Name), Annotations: d.OwnAnnotations},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: cluster.Name,
			Replicas:    ptr.To(int32(1)),
			Selector:    metav1.LabelSelector{MatchLabels: selector},
			Template:    template(cluster.Name, labels.Merge(selector, d.Labels), d),
		},
	}
}

// MachineSet returns a MachineSet of md as its controller would create it without propagation: only with the labels of its
// selector. The MachineDeployment must be stored before.
func MachineSet(md *clusterv1.MachineDeployment, name string) *clusterv1.MachineSet {
	selector := labels.Merge(md.Spec.Selector.MatchLabels, map[string]string{hashLabel: name})
	return &clusterv1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: md.Namespace, Name: name, Labels: labels.Merge(selector, clusterLabel(md.Spec.ClusterName)),
			OwnerReferences: []metav1.OwnerReference{ControlledBy(md, "MachineDeployment")},
		},
		Spec: clusterv1.MachineSetSpec{
			ClusterName: md.Spec.ClusterName,
			Replicas:    ptr.To(int32(1)),
			Selector:    metav1.LabelSelector{MatchLabels: selector},
			Template:    template(md.Spec.ClusterName, selector, Declared{}),
		},
	}
}

// Machine returns a Machine of ms for a Node of the same name. It has only the labels that ms selects. The MachineSet must be
// stored before.
func Machine(ms *clusterv1.MachineSet, name string) *clusterv1.Machine {
	spec := machineSpec(ms.Spec.ClusterName)
	spec.ProviderID, spec.InfrastructureRef.Name = ProviderID(name), name
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ms.Namespace, Name: name,
			Labels:          labels.Merge(ms.Spec.Selector.MatchLabels, clusterLabel(ms.Spec.ClusterName)),
			OwnerReferences: []metav1.OwnerReference{ControlledBy(ms, "MachineSet")},
		},
		Spec: spec,
	}
}

// ProviderID returns the provider ID that a hollow kubelet reports for its Node.
func ProviderID(node string) string {
	return "kubemark://" + node
}

// Node returns a Node as its kubelet creates it.
func Node(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{ProviderID: ProviderID(name)},
	}
}

// ControlledBy returns an owner reference to a controller.
func ControlledBy(owner client.Object, kind string) metav1.OwnerReference {
	return *metav1.NewControllerRef(owner, clusterv1.GroupVersion.WithKind(kind))
}

// Taints parses a list of taints in kubectl's syntax and gives all of them the same propagation. It panics if the list is invalid.
func Taints(propagation clusterv1.MachineTaintPropagation, list string) []clusterv1.MachineTaint {
	parsed, err := taint.ParseList(list)
	if err != nil {
		panic(fmt.Sprintf("a fixture is wrong: %v", err))
	}
	var taints []clusterv1.MachineTaint
	for _, t := range parsed {
		taints = append(taints, clusterv1.MachineTaint{Key: t.Key, Value: t.Value, Effect: t.Effect, Propagation: propagation})
	}
	return taints
}

func template(cluster string, itsLabels map[string]string, d Declared) clusterv1.MachineTemplateSpec {
	spec := machineSpec(cluster)
	spec.Taints = d.Taints
	if d.Fields != nil {
		d.Fields(&spec)
	}
	return clusterv1.MachineTemplateSpec{
		ObjectMeta: clusterv1.ObjectMeta{Labels: itsLabels, Annotations: d.Annotations},
		Spec:       spec,
	}
}

func machineSpec(cluster string) clusterv1.MachineSpec {
	return clusterv1.MachineSpec{
		ClusterName: cluster,
		Bootstrap:   clusterv1.Bootstrap{DataSecretName: ptr.To("bootstrap-data")},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "FakeMachine", Name: "fake",
		},
	}
}

func clusterLabel(cluster string) map[string]string {
	return map[string]string{clusterv1.ClusterNameLabel: cluster}
}
