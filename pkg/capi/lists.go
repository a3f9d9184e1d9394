// SPDX-License-Identifier: Apache-2.0

package capi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The lists of each kind.
type (
	ClusterList           = List[Cluster, *Cluster]
	ClusterClassList      = List[ClusterClass, *ClusterClass]
	MachineDeploymentList = List[MachineDeployment, *MachineDeployment]
	MachineSetList        = List[MachineSet, *MachineSet]
	MachineList           = List[Machine, *Machine]
	MachinePoolList       = List[MachinePool, *MachinePool]
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
	copied := &List[T, P]{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	if l.Items != nil {
		copied.Items = make([]T, len(l.Items))
	}
	for i := range l.Items {
		P(&l.Items[i]).DeepCopyInto(&copied.Items[i])
	}
	return copied
}
