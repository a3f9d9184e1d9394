// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/heirloom-dev/heirloom/pkg/taint"
)

// NodeSource is what a Node inherits from: its Machine as it will be once it has inherited itself, or its MachinePool if the
// provider has no Machines.
type NodeSource struct {
	// Ref is the Machine or the MachinePool.
	Ref
	// Cluster names the Cluster of the Node.
	Cluster types.NamespacedName
	// Labels and Annotations are all that the object has, not only what rules 11 and 12 propagate.
	Labels, Annotations map[string]string
	// ControlPlane says that the Node is one of the control plane.
	ControlPlane bool

	// taints are those that a Node can have; problems lists the others.
	taints   declaredTaints
	problems error
	// matched is the value of MatchedByAddressAnnotation, if only a name or an address says that the Node is the Machine; withheld says
	// that the Node does not get all labels for that reason.
	matched  string
	withheld bool
	ahead    ahead
}

// SourceOfMachine returns what the Node of this Machine inherits from.
func SourceOfMachine(m *clusterv1.Machine) NodeSource {
	s := sourceOf(m.Labels, m.Annotations, m.Spec.Taints)
	s.Ref, s.Cluster = Ref{"Machine", m}, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.ClusterName}
	return s
}

// SourceOfMachinePool returns what the Nodes of a MachinePool inherit from if its provider has no Machines (rule 9). effective is
// the MachinePool as it will be once it has inherited itself.
func SourceOfMachinePool(mp, effective *clusterv1.MachinePool) NodeSource {
	template := effective.Spec.Template
	s := sourceOf(inheritable(template.Labels), inheritable(template.Annotations), template.Spec.Taints)
	s.Ref, s.Cluster = Ref{"MachinePool", mp}, types.NamespacedName{Namespace: mp.Namespace, Name: mp.Spec.ClusterName}
	return s
}

// sourceOf returns the source with these labels, annotations and typed taints.
func sourceOf(labels, annotations map[string]string, typed []clusterv1.MachineTaint) NodeSource {
	s := NodeSource{Labels: labels, Annotations: annotations, ControlPlane: has(labels, clusterv1.MachineControlPlaneLabel)}
	s.taints, s.problems = taintsOf(taint.Role(s.ControlPlane), typed, annotations)
	return s
}

// declaredTaints are taints for a Node, divided by how they are declared.
type declaredTaints struct {
	typed, annotated []clusterv1.MachineTaint
}

func (t declaredTaints) all() []clusterv1.MachineTaint {
	return taint.Merge(t.typed, t.annotated)
}

// taintsOf returns the taints that are declared for a Node, each once: the typed one wins. The error lists those that no Node can
// have.
func taintsOf(role taint.Role, typed []clusterv1.MachineTaint, annotations map[string]string) (declaredTaints, error) {
	typed, typedErr := taint.Usable(role, taint.Merge(typed, nil))
	annotated, parseErr := taint.FromAnnotations(annotations)
	annotated, annotatedErr := taint.Usable(role, annotated)
	wins := sets.New[taint.ID]()
	for _, t := range typed {
		wins.Insert(taint.MachineID(t))
	}
	annotated = slices.DeleteFunc(annotated, func(t clusterv1.MachineTaint) bool { return wins.Has(taint.MachineID(t)) })
	return declaredTaints{typed: typed, annotated: annotated}, errors.Join(typedErr, parseErr, annotatedErr)
}
