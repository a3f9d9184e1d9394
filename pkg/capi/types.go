// SPDX-License-Identifier: Apache-2.0

package capi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Cluster is a trimmed Cluster.
//
// +kubebuilder:object:root=true
type Cluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ClusterSpec   `json:"spec,omitempty"`
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is a trimmed ClusterSpec.
type ClusterSpec struct {
	Paused          bool      `json:"paused,omitempty"`
	ControlPlaneRef ObjectRef `json:"controlPlaneRef,omitempty"`
	Topology        *Topology `json:"topology,omitempty"`
}

// ClusterStatus is a trimmed ClusterStatus.
type ClusterStatus struct {
	Initialization ClusterInitialization `json:"initialization,omitempty"`

	// InfrastructureReady is what v1beta1 has instead.
	InfrastructureReady bool `json:"infrastructureReady,omitempty"`
}

// ClusterInitialization is a trimmed ClusterInitializationStatus.
type ClusterInitialization struct {
	InfrastructureProvisioned bool `json:"infrastructureProvisioned,omitempty"`
}

// HasAPIServer reports whether the infrastructure has been provisioned, so that there is an API server to connect to.
func (s ClusterStatus) HasAPIServer() bool {
	return s.Initialization.InfrastructureProvisioned || s.InfrastructureReady
}

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

	Spec   WorkersSpec `json:"spec,omitempty"`
	Status Observed    `json:"status,omitempty"`
}

// Observed is the part of a status that says how far the object's controller in Cluster API is.
type Observed struct {
	// ObservedGeneration is the last generation that the controller has handled; 0 if no controller has handled any.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WorkersSpec is the trimmed spec of a MachineDeployment, MachineSet or MachinePool.
type WorkersSpec struct {
	ClusterName string          `json:"clusterName,omitempty"`
	Template    MachineTemplate `json:"template,omitempty"`

	WorkerFields `json:",inline"`

	// Selector is that of a MachineDeployment or MachineSet, ProviderIDList that of a MachinePool.
	Selector       metav1.LabelSelector `json:"selector,omitempty"`
	ProviderIDList []string             `json:"providerIDList,omitempty"`
}

// MachineSet is a trimmed MachineSet.
//
// +kubebuilder:object:root=true
type MachineSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   WorkersSpec `json:"spec,omitempty"`
	Status Observed    `json:"status,omitempty"`
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
	ClusterName       string    `json:"clusterName,omitempty"`
	ProviderID        string    `json:"providerID,omitempty"`
	InfrastructureRef ObjectRef `json:"infrastructureRef,omitempty"`
	Bootstrap         Bootstrap `json:"bootstrap,omitempty"`

	MachineFields `json:",inline"`
	WorkerFields  `json:",inline"`
}

// Bootstrap is a trimmed Bootstrap.
type Bootstrap struct {
	ConfigRef ObjectRef `json:"configRef,omitempty"`
}

// ObjectRef refers to an object in the same namespace: by group in v1beta2, by group and version in v1beta1.
type ObjectRef struct {
	APIGroup   string `json:"apiGroup,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
}

// GroupKind returns what the reference refers to; it is empty where there is none.
func (r ObjectRef) GroupKind() schema.GroupKind {
	if r.APIGroup != "" || r.APIVersion == "" {
		return schema.GroupKind{Group: r.APIGroup, Kind: r.Kind}
	}
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).GroupKind()
}

// MachineStatus is a trimmed MachineStatus.
type MachineStatus struct {
	Observed `json:",inline"`

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

	Spec   WorkersSpec       `json:"spec,omitempty"`
	Status MachinePoolStatus `json:"status,omitempty"`
}

// MachinePoolStatus is a trimmed MachinePoolStatus.
type MachinePoolStatus struct {
	Observed `json:",inline"`

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
	// MachineTemplate is nil for a control plane that does not consist of Machines.
	MachineTemplate *ControlPlaneMachineTemplate `json:"machineTemplate,omitempty"`
}

// ControlPlaneMachineTemplate is what a control plane declares for its Machines.
type ControlPlaneMachineTemplate struct {
	clusterv1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is where the v1beta2 contract has fields.
	Spec MachineFields `json:"spec,omitempty"`
	// MachineFields is inline: the v1beta1 contract has the same fields beside the metadata.
	MachineFields `json:",inline"`
}
