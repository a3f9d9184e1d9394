// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// DeclarerOf names the object where an operator changes what the Machine inherits: the top of its chain, because a
// change further down would be undone. The MachineSet is nil for a Machine that has none.
func DeclarerOf(m *capi.Machine, ms *capi.MachineSet) string {
	if ms == nil {
		return cmp.Or(topologyOf(m, m.Spec.ClusterName), Name("Machine", m))
	}
	return cmp.Or(topologyOf(m, m.Spec.ClusterName), DeclarerOfMachineSet(ms))
}

// DeclarerOfMachineSet names the object where an operator changes what the MachineSet and its Machines inherit.
func DeclarerOfMachineSet(ms *capi.MachineSet) string {
	if topology := topologyOf(ms, ms.Spec.ClusterName); topology != "" {
		return topology
	}
	if ref := metav1.GetControllerOfNoCopy(ms); ref != nil {
		return fmt.Sprintf("%s %s/%s (spec.template)", ref.Kind, ms.Namespace, ref.Name)
	}
	return Name("MachineSet", ms) + " (spec.template)"
}

// topologyOf names the Cluster whose topology manages the object, or returns "" if none does.
func topologyOf(object metav1.Object, cluster string) string {
	if !has(object.GetLabels(), clusterv1.ClusterTopologyOwnedLabel) {
		return ""
	}
	return fmt.Sprintf("Cluster %s/%s (spec.topology)", object.GetNamespace(), cluster)
}

// Name names an object as people read it, "<kind> <namespace>/<name>".
func Name(kind string, object metav1.Object) string {
	return fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}
