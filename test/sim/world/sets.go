// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A set of Machines has the name of the object that declares for it. The end of the name says which kind this object has: a
// MachineDeployment, a control plane or a MachinePool.
const ofControlPlane, ofPool = "-cp", "-pool"

// nameOf returns the name of a Cluster, setsOf the names of its sets of Machines, and clusterOf the Cluster of a set.
func nameOf(cluster int) string { return fmt.Sprintf("cluster-%d", cluster) }

func setsOf(cluster string, options Options) []string {
	sets := []string{cluster + "-a"}
	if options.TwoSets {
		sets = append(sets, cluster+"-b")
	}
	if options.Topologies {
		sets = append(sets, cluster+ofTopology)
	}
	if options.ControlPlanes || options.Topologies {
		sets = append(sets, cluster+ofControlPlane)
	}
	if options.Pools {
		sets = append(sets, cluster+ofPool)
	}
	return sets
}

func clusterOf(set string) string { return set[:len(nameOf(0))] }

// setOf returns the set that an object is, or is a part of.
func setOf(object *unstructured.Unstructured) string {
	if object.GetName() != "" && object.GetKind() == kindOf(object.GetName()) {
		return object.GetName()
	}
	if set, ok := object.GetLabels()[clusterv1.MachineControlPlaneNameLabel]; ok {
		return set
	}
	return object.GetLabels()[clusterv1.MachineDeploymentNameLabel]
}

// kindOf returns the kind of the object that declares for a set.
func kindOf(set string) string {
	switch {
	case strings.HasSuffix(set, ofControlPlane):
		return "ModernControlPlane"
	case strings.HasSuffix(set, ofPool):
		return "MachinePool"
	}
	return "MachineDeployment"
}

// templateField returns the field of the spec with the declarations for Machines.
func templateField(kind string) string {
	if kind == "ModernControlPlane" {
		return "machineTemplate"
	}
	return "template"
}

// setObjects returns the objects that declare for sets of Machines.
func (w *World) setObjects() []*unstructured.Unstructured {
	return slices.Concat(w.management.objects("MachineDeployment"), w.management.objects("ModernControlPlane"), w.management.objects("MachinePool"))
}

// newSet returns the object that declares for a set, as an operator creates it.
func newSet(set string) client.Object {
	switch kindOf(set) {
	case "ModernControlPlane":
		return controlPlane(set)
	case "MachinePool":
		return pool(set)
	}
	return deployment(set)
}

// named returns an object of the namespace fleet that has only a name.
func named(kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(resources[kind].GroupVersion().WithKind(kind))
	object.SetNamespace(fleet)
	object.SetName(name)
	return object
}
