// SPDX-License-Identifier: Apache-2.0

package ownerchain

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/capi"
)

// DeclarerOf names the object where an operator changes what the Machine inherits: the top of its chain, because a
// change further down would be undone. The MachineSet is nil for a Machine that has none.
func DeclarerOf(m *capi.Machine, ms *capi.MachineSet) string {
	switch {
	case has(m.Labels, clusterv1.ClusterTopologyOwnedLabel):
		return fmt.Sprintf("Cluster %s/%s (spec.topology)", m.Namespace, m.Spec.ClusterName)
	case ms == nil:
		return Name("Machine", m)
	default:
		return DeclarerOfMachineSet(ms)
	}
}

// DeclarerOfMachineSet names the object where an operator changes what the MachineSet and its Machines inherit.
func DeclarerOfMachineSet(ms *capi.MachineSet) string {
	if has(ms.Labels, clusterv1.ClusterTopologyOwnedLabel) {
		return fmt.Sprintf("Cluster %s/%s (spec.topology)", ms.Namespace, ms.Spec.ClusterName)
	}
	if ref := metav1.GetControllerOfNoCopy(ms); ref != nil {
		return fmt.Sprintf("%s %s/%s (spec.template)", ref.Kind, ms.Namespace, ref.Name)
	}
	return Name("MachineSet", ms) + " (spec.template)"
}

// Name names an object as people read it, "<kind> <namespace>/<name>".
func Name(kind string, object metav1.Object) string {
	return fmt.Sprintf("%s %s/%s", kind, object.GetNamespace(), object.GetName())
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}
