// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Propagation says how far a controller of Cluster API is that propagates to an object what its owner declares.
type Propagation struct {
	// Owner is the owner whose controller it is: a MachineDeployment, a MachineSet or a MachinePool.
	Owner types.UID
	// Generation is the owner's, Observed the last one that the controller has handled. It is 0 if no controller has handled any: then
	// there is nothing to wait for.
	Generation, Observed int64
}

// Propagation returns how far the controller is that writes what this object inherits. It is empty where none does, or where Heirloom
// does not know of it: for what a topology or a control plane declares.
func (d Decision) Propagation() Propagation {
	for _, owner := range d.declaredBy {
		var observed int64
		switch o := owner.(type) {
		case *clusterv1.MachineDeployment:
			observed = o.Status.ObservedGeneration
		case *clusterv1.MachineSet:
			observed = o.Status.ObservedGeneration
		case *clusterv1.MachinePool:
			observed = o.Status.ObservedGeneration
		default:
			continue
		}
		return Propagation{Owner: owner.GetUID(), Generation: owner.GetGeneration(), Observed: observed}
	}
	return Propagation{}
}

// Pending reports whether the controller has yet to handle what the owner declares now.
func (p Propagation) Pending() bool {
	return p.Observed != 0 && p.Observed < p.Generation
}
