// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// UninitializedAnnotation is on a Node to which Heirloom added the taint node.cluster.x-k8s.io/uninitialized, because
// its bootstrap provider did not. Only where it is present does Heirloom remove that taint again.
const UninitializedAnnotation = "heirloom.dev/uninitialized"

// guard keeps workload off a worker Node until its restricted labels are there. If the kubelet registers without the taint
// node.cluster.x-k8s.io/uninitialized, Heirloom adds it. The first privileged write, which also sets the labels, removes it again
// (docs/design.md §4).
//
// An API server may ask twice about the same create, once for each webhook or policy. What the first answer added is still ours in
// the second.
func (n nodeSync) guard(result NodeState) NodeState {
	uninitialized := clusterv1.NodeUninitializedTaint
	present := taint.Find(n.current.Taints, taint.IDOf(uninitialized)) >= 0
	if n.writer == Kubelet {
		if !present && !n.from.ControlPlane {
			result.Taints = append(result.Taints, uninitialized)
			result.Annotations[UninitializedAnnotation] = "added"
		}
		again := n.claimed[UninitializedAnnotation] == "added" &&
			n.claimed[clusterv1.TaintsFromMachineAnnotation] == result.Annotations[clusterv1.TaintsFromMachineAnnotation]
		if present && again && !n.from.ControlPlane {
			result.Annotations[UninitializedAnnotation] = "added"
		}
		return result
	}
	if has(n.current.Annotations, UninitializedAnnotation) && !n.from.withheld {
		result.Taints = taint.Remove(result.Taints, taint.IDOf(uninitialized))
		delete(result.Annotations, UninitializedAnnotation)
	}
	return result
}
