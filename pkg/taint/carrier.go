// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Carrier is any object of Cluster API that can declare taints, trimmed to the places where it does: a Machine, a
// MachineSet, MachineDeployment or MachinePool, a control plane of any provider, a Cluster or a ClusterClass. A kind simply
// lacks the places that are not its own.
type Carrier struct {
	Metadata metadata    `json:"metadata"`
	Spec     carrierSpec `json:"spec"`
}

type metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type carrierSpec struct {
	// Taints are those of a Machine.
	Taints []clusterv1.MachineTaint `json:"taints"`
	// Template is that of a MachineSet, MachineDeployment or MachinePool.
	Template place `json:"template"`
	// MachineTemplate is that of a control plane.
	MachineTemplate place `json:"machineTemplate"`
	// Topology is that of a Cluster.
	Topology sections `json:"topology"`
	// The sections of a ClusterClass.
	sections `json:",inline"`
}

// sections are those of a ClusterClass or of a Cluster's topology.
type sections struct {
	ControlPlane place `json:"controlPlane"`
	Workers      struct {
		MachineDeployments []place `json:"machineDeployments"`
		MachinePools       []place `json:"machinePools"`
	} `json:"workers"`
}

// place holds what is declared for Machines: a template, or a section of a ClusterClass or a topology.
type place struct {
	// Name is set in a topology, Class in a ClusterClass.
	Name     string   `json:"name"`
	Class    string   `json:"class"`
	Metadata metadata `json:"metadata"`
	// Taints are those of a section, and of a control plane of the v1beta1 contract.
	Taints []clusterv1.MachineTaint `json:"taints"`
	Spec   struct {
		Taints []clusterv1.MachineTaint `json:"taints"`
		// MachineTemplate is that of a control plane's template, which a ClusterClass refers to.
		MachineTemplate *place `json:"machineTemplate"`
	} `json:"spec"`
}

// ValidateCarrier returns an error, with its field path, for each taint that the object may not declare, by type or by
// annotation, or MostProblems of them. Of an update only what differs from old is judged; old is nil for a create. Kinds of
// control planes are not known to us: controlPlane says that the object is one.
func ValidateCarrier(object, old *Carrier, controlPlane bool) field.ErrorList {
	old = cmp.Or(old, &Carrier{})
	spec := field.NewPath("spec")
	// Machines alone say by a label which they are. In a template the label is for the Machines to come.
	machine := Role(controlPlane)
	if _, ok := object.Metadata.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		machine = ControlPlane
	}
	errs := slices.Concat(
		ValidateAnnotations(field.NewPath("metadata", "annotations"), machine, object.Metadata.Annotations, old.Metadata.Annotations),
		Validate(spec.Child("taints"), machine, object.Spec.Taints, old.Spec.Taints),
		object.Spec.Template.validate(spec.Child("template"), Role(controlPlane), old.Spec.Template),
		object.Spec.MachineTemplate.validate(spec.Child("machineTemplate"), ControlPlane, old.Spec.MachineTemplate),
		object.Spec.Topology.validate(spec.Child("topology"), old.Spec.Topology),
		object.Spec.validate(spec, old.Spec.sections),
	)
	return errs[:min(len(errs), MostProblems)]
}

func (s sections) validate(path *field.Path, old sections) field.ErrorList {
	workers := path.Child("workers")
	return slices.Concat(
		s.ControlPlane.validate(path.Child("controlPlane"), ControlPlane, old.ControlPlane),
		validateAll(workers.Child("machineDeployments"), s.Workers.MachineDeployments, old.Workers.MachineDeployments),
		validateAll(workers.Child("machinePools"), s.Workers.MachinePools, old.Workers.MachinePools),
	)
}

func validateAll(path *field.Path, all, old []place) field.ErrorList {
	before := map[string]place{}
	for _, p := range old {
		before[p.id()] = p
	}
	var errs field.ErrorList
	for i, p := range all {
		errs = append(errs, p.validate(path.Index(i), Worker, before[p.id()])...)
		if len(errs) >= MostProblems {
			break
		}
	}
	return errs
}

// id tells sections apart: by name in a topology, where the class may change, and by class in a ClusterClass.
func (p place) id() string {
	return cmp.Or(p.Name, p.Class)
}

func (p place) validate(path *field.Path, role Role, old place) field.ErrorList {
	errs := slices.Concat(
		ValidateAnnotations(path.Child("metadata", "annotations"), role, p.Metadata.Annotations, old.Metadata.Annotations),
		Validate(path.Child("taints"), role, p.Taints, old.Taints),
		Validate(path.Child("spec", "taints"), role, p.Spec.Taints, old.Spec.Taints),
	)
	if p.Spec.MachineTemplate == nil {
		return errs
	}
	before := cmp.Or(old.Spec.MachineTemplate, &place{})
	return append(errs, p.Spec.MachineTemplate.validate(path.Child("spec", "machineTemplate"), ControlPlane, *before)...)
}
