// SPDX-License-Identifier: Apache-2.0

package capi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

type (
	// ClusterList is a list of Clusters.
	ClusterList = List[Cluster, *Cluster]
	// ClusterClassList is a list of ClusterClasses.
	ClusterClassList = List[ClusterClass, *ClusterClass]
	// MachineDeploymentList is a list of MachineDeployments.
	MachineDeploymentList = List[MachineDeployment, *MachineDeployment]
	// MachineSetList is a list of MachineSets.
	MachineSetList = List[MachineSet, *MachineSet]
	// MachineList is a list of Machines.
	MachineList = List[Machine, *Machine]
	// MachinePoolList is a list of MachinePools.
	MachinePoolList = List[MachinePool, *MachinePool]
)

// List is a list of objects of one kind.
//
// +kubebuilder:object:generate=false
type List[T any, P interface {
	*T
	DeepCopyInto(into *T)
}] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []T `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *List[T, P]) DeepCopyObject() runtime.Object {
	metadata := l.ListMeta
	copied := &List[T, P]{TypeMeta: l.TypeMeta, ListMeta: *metadata.DeepCopy()}
	if l.Items != nil {
		copied.Items = make([]T, len(l.Items))
	}
	for i := range l.Items {
		P(&l.Items[i]).DeepCopyInto(&copied.Items[i])
	}
	return copied
}
