// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// Propagator returns the owner whose controller in Cluster API writes what this object inherits: a MachineDeployment, a
// MachineSet or a MachinePool. It is nil where there is none: for what a topology or a control plane declares.
func (d Decision) Propagator() client.Object {
	for _, owner := range d.declaredBy {
		switch owner.(type) {
		case *capi.MachineDeployment, *capi.MachineSet, *capi.MachinePool:
			return owner
		}
	}
	return nil
}

// ObservedGeneration returns the last generation of an object that its controller in Cluster API has handled; 0 if no controller
// has handled any.
func ObservedGeneration(object client.Object) int64 {
	switch o := object.(type) {
	case *capi.MachineDeployment:
		return o.Status.ObservedGeneration
	case *capi.MachineSet:
		return o.Status.ObservedGeneration
	case *capi.MachinePool:
		return o.Status.ObservedGeneration
	case *capi.Machine:
		return o.Status.ObservedGeneration
	}
	return 0
}
