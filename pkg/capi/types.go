// SPDX-License-Identifier: Apache-2.0

package capi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Cluster is a trimmed Cluster.
//
// +kubebuilder:object:root=true
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterSpec `json:"spec,omitempty"`
}

// ClusterSpec is a trimmed ClusterSpec.
type ClusterSpec struct {
	Paused   bool      `json:"paused,omitempty"`
	Topology *Topology `json:"topology,omitempty"`
}

// Topology is a trimmed Topology. That it exists says that the Cluster's objects are managed by a ClusterClass.
type Topology struct{}

// MachineTemplate is a trimmed MachineTemplateSpec, the way owners declare what Machines inherit.
type MachineTemplate struct {
	clusterv1.ObjectMeta `json:"metadata,omitempty"`

	Spec MachineSpec `json:"spec,omitempty"`
}

// MachineDeployment is a trimmed MachineDeployment.
//
// +kubebuilder:object:root=true
type MachineDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MachineDeploymentSpec `json:"spec,omitempty"`
}

// MachineDeploymentSpec is a trimmed MachineDeploymentSpec.
type MachineDeploymentSpec struct {
	ClusterName string               `json:"clusterName,omitempty"`
	Selector    metav1.LabelSelector `json:"selector,omitempty"`
	Template    MachineTemplate      `json:"template,omitempty"`

	// MinReadySeconds is here in v1beta1 and in the template in v1beta2.
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
}

// MachineSet is a trimmed MachineSet.
//
// +kubebuilder:object:root=true
type MachineSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MachineSetSpec `json:"spec,omitempty"`
}

// MachineSetSpec is a trimmed MachineSetSpec.
type MachineSetSpec struct {
	ClusterName string               `json:"clusterName,omitempty"`
	Selector    metav1.LabelSelector `json:"selector,omitempty"`
	Template    MachineTemplate      `json:"template,omitempty"`

	// MinReadySeconds is here in v1beta1 and in the template in v1beta2.
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
}

// Machine is a trimmed Machine.
//
// +kubebuilder:object:root=true
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MachineSpec   `json:"spec,omitempty"`
	Status MachineStatus `json:"status,omitempty"`
}

// MachineSpec is a trimmed MachineSpec.
type MachineSpec struct {
	ClusterName string                   `json:"clusterName,omitempty"`
	ProviderID  string                   `json:"providerID,omitempty"`
	Taints      []clusterv1.MachineTaint `json:"taints,omitempty"`

	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`

	// The rest of the in-place mutable fields, as v1beta2 has them.
	Deletion        clusterv1.MachineDeletionSpec `json:"deletion,omitempty"`
	MinReadySeconds *int32                        `json:"minReadySeconds,omitempty"`

	// The same timeouts as v1beta1 has them.
	NodeDrainTimeout        *metav1.Duration `json:"nodeDrainTimeout,omitempty"`
	NodeVolumeDetachTimeout *metav1.Duration `json:"nodeVolumeDetachTimeout,omitempty"`
	NodeDeletionTimeout     *metav1.Duration `json:"nodeDeletionTimeout,omitempty"`
}

// MachineStatus is a trimmed MachineStatus.
type MachineStatus struct {
	NodeRef   NodeRef                    `json:"nodeRef,omitempty"`
	Addresses []clusterv1.MachineAddress `json:"addresses,omitempty"`
}

// NodeRef names the Node of a Machine. In v1beta1 it is an ObjectReference, in v1beta2 a name; both have this field.
type NodeRef struct {
	Name string `json:"name,omitempty"`
}

// IsControlPlane reports whether the Machine belongs to a control plane.
func (m *Machine) IsControlPlane() bool {
	_, ok := m.Labels[clusterv1.MachineControlPlaneLabel]
	return ok
}

// MachinePool is a trimmed MachinePool.
//
// +kubebuilder:object:root=true
type MachinePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MachinePoolSpec   `json:"spec,omitempty"`
	Status MachinePoolStatus `json:"status,omitempty"`
}

// MachinePoolSpec is a trimmed MachinePoolSpec.
type MachinePoolSpec struct {
	ClusterName    string          `json:"clusterName,omitempty"`
	Template       MachineTemplate `json:"template,omitempty"`
	ProviderIDList []string        `json:"providerIDList,omitempty"`

	// MinReadySeconds is here in v1beta1 and in the template in v1beta2.
	MinReadySeconds *int32 `json:"minReadySeconds,omitempty"`
}

// MachinePoolStatus is a trimmed MachinePoolStatus.
type MachinePoolStatus struct {
	NodeRefs []NodeRef `json:"nodeRefs,omitempty"`
}

// ControlPlane is a control plane of any provider, trimmed to what Cluster API's contract says of it.
//
// +kubebuilder:object:root=true
type ControlPlane struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ControlPlaneSpec `json:"spec,omitempty"`
}

// ControlPlaneSpec is the part of a control plane's spec that the contract names.
type ControlPlaneSpec struct {
	MachineTemplate ControlPlaneMachineTemplate `json:"machineTemplate,omitempty"`
}

// ControlPlaneMachineTemplate is what a control plane declares for its Machines.
type ControlPlaneMachineTemplate struct {
	clusterv1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is where the v1beta2 contract has fields.
	Spec MachineSpec `json:"spec,omitempty"`
	// MachineSpec is inline: the v1beta1 contract has the same fields beside the metadata.
	MachineSpec `json:",inline"`
}

// ClusterList is a list of Clusters.
//
// +kubebuilder:object:root=true
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Cluster `json:"items"`
}

// MachineDeploymentList is a list of MachineDeployments.
//
// +kubebuilder:object:root=true
type MachineDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MachineDeployment `json:"items"`
}

// MachineSetList is a list of MachineSets.
//
// +kubebuilder:object:root=true
type MachineSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MachineSet `json:"items"`
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Machine `json:"items"`
}

// MachinePoolList is a list of MachinePools.
//
// +kubebuilder:object:root=true
type MachinePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []MachinePool `json:"items"`
}
