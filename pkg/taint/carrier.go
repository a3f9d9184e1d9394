// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Carrier is any object of Cluster API that can declare taints, trimmed to the places where it does: a Machine, a
// MachineSet, MachineDeployment or MachinePool, a control plane of any provider, a Cluster or a ClusterClass, of v1beta1
// or v1beta2. A kind simply lacks the places that are not its own.
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
	Template template `json:"template"`
	// MachineTemplate is that of a control plane.
	MachineTemplate template `json:"machineTemplate"`
	// Topology is that of a Cluster.
	Topology sections `json:"topology"`
	// The sections of a ClusterClass.
	sections `json:",inline"`
}

// template holds what is declared for Machines. Control planes of the v1beta1 contract have the taints beside the
// metadata, those of v1beta2 in spec.
type template struct {
	Metadata metadata                 `json:"metadata"`
	Taints   []clusterv1.MachineTaint `json:"taints"`
	Spec     struct {
		Taints []clusterv1.MachineTaint `json:"taints"`
		// MachineTemplate is that of a control plane's template, which a ClusterClass refers to.
		MachineTemplate *template `json:"machineTemplate"`
	} `json:"spec"`
}

// sections are those of a ClusterClass or of a Cluster's topology.
type sections struct {
	ControlPlane section `json:"controlPlane"`
	Workers      struct {
		MachineDeployments []section `json:"machineDeployments"`
		MachinePools       []section `json:"machinePools"`
	} `json:"workers"`
}

type section struct {
	// Name is set in a topology, Class in a ClusterClass.
	Name     string                   `json:"name"`
	Class    string                   `json:"class"`
	Metadata metadata                 `json:"metadata"`
	Taints   []clusterv1.MachineTaint `json:"taints"`
	// Template has the metadata of a ClusterClass of v1beta1.
	Template struct {
		Metadata metadata `json:"metadata"`
	} `json:"template"`
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

func (t template) validate(path *field.Path, role Role, old template) field.ErrorList {
	errs := slices.Concat(
		ValidateAnnotations(path.Child("metadata", "annotations"), role, t.Metadata.Annotations, old.Metadata.Annotations),
		Validate(path.Child("taints"), role, t.Taints, old.Taints),
		Validate(path.Child("spec", "taints"), role, t.Spec.Taints, old.Spec.Taints),
	)
	if t.Spec.MachineTemplate == nil {
		return errs
	}
	before := cmp.Or(old.Spec.MachineTemplate, &template{})
	return append(errs, t.Spec.MachineTemplate.validate(path.Child("spec", "machineTemplate"), ControlPlane, *before)...)
}

func (s sections) validate(path *field.Path, old sections) field.ErrorList {
	workers := path.Child("workers")
	return slices.Concat(
		s.ControlPlane.validate(path.Child("controlPlane"), ControlPlane, old.ControlPlane),
		validateAll(workers.Child("machineDeployments"), s.Workers.MachineDeployments, old.Workers.MachineDeployments),
		validateAll(workers.Child("machinePools"), s.Workers.MachinePools, old.Workers.MachinePools),
	)
}

func validateAll(path *field.Path, all, old []section) field.ErrorList {
	before := map[string]section{}
	for _, s := range old {
		before[s.id()] = s
	}
	var errs field.ErrorList
	for i, s := range all {
		errs = append(errs, s.validate(path.Index(i), Worker, before[s.id()])...)
		if len(errs) >= MostProblems {
			break
		}
	}
	return errs
}

// id tells sections apart: by name in a topology, where the class may change, and by class in a ClusterClass.
func (s section) id() string {
	return cmp.Or(s.Name, s.Class)
}

func (s section) validate(path *field.Path, role Role, old section) field.ErrorList {
	return slices.Concat(
		ValidateAnnotations(path.Child("metadata", "annotations"), role, s.Metadata.Annotations, old.Metadata.Annotations),
		ValidateAnnotations(path.Child("template", "metadata", "annotations"), role,
			s.Template.Metadata.Annotations, old.Template.Metadata.Annotations),
		Validate(path.Child("taints"), role, s.Taints, old.Taints),
	)
}
