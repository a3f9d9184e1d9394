// SPDX-License-Identifier: Apache-2.0

package capi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ClusterClass is a trimmed ClusterClass.
//
// +kubebuilder:object:root=true
type ClusterClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec Sections `json:"spec,omitempty"`
}

// Topology is a trimmed Topology. That a Cluster has one says that a ClusterClass manages its objects.
type Topology struct {
	Sections `json:",inline"`

	ClassRef ClassRef `json:"classRef,omitempty"`

	// The same reference as v1beta1 has it.
	Class          string `json:"class,omitempty"`
	ClassNamespace string `json:"classNamespace,omitempty"`
}

// ClassRef is a reference to a ClusterClass.
type ClassRef struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// Sections are what a ClusterClass and a topology declare, by the kind that they declare it for.
type Sections struct {
	ControlPlane Section `json:"controlPlane,omitempty"`
	Workers      Workers `json:"workers,omitempty"`
}

// Workers are the sections for workers.
type Workers struct {
	MachineDeployments []Section `json:"machineDeployments,omitempty"`
	MachinePools       []Section `json:"machinePools,omitempty"`
}

// Section is what a ClusterClass or a topology declares for the objects of one kind and class.
type Section struct {
	// Name is a topology's own, Class its reference to a section of the ClusterClass, or that section's own name.
	Name  string `json:"name,omitempty"`
	Class string `json:"class,omitempty"`

	clusterv1.ObjectMeta `json:"metadata,omitempty"`
	// Template is where a ClusterClass of v1beta1 has the metadata of workers.
	Template SectionTemplate `json:"template,omitempty"`
	// MachineInfrastructure is there if a ClusterClass's control plane consists of Machines.
	MachineInfrastructure *MachineInfrastructure `json:"machineInfrastructure,omitempty"`

	MachineFields `json:",inline"`
	WorkerFields  `json:",inline"`
}

// SectionTemplate is a trimmed template of a section.
type SectionTemplate struct {
	clusterv1.ObjectMeta `json:"metadata,omitempty"`
}

// MachineInfrastructure is trimmed to nothing: that it exists is what counts.
type MachineInfrastructure struct{}
