// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"cmp"

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
// annotation, or MostProblems of them. Of an update only what differs from old is judged; old is nil for a create. A control plane's kind is not
// known to us: controlPlane says that the object is one.
func ValidateCarrier(object, old *Carrier, controlPlane bool) field.ErrorList {
	if old == nil {
		old = &Carrier{}
	}
	spec := field.NewPath("spec")
	// Machines alone say by a label which they are. In a template the label is for the Machines to come.
	machine := Role(controlPlane)
	if _, ok := object.Metadata.Labels[clusterv1.MachineControlPlaneLabel]; ok {
		machine = ControlPlane
	}
	errs := ValidateAnnotations(field.NewPath("metadata", "annotations"), machine, object.Metadata.Annotations, old.Metadata.Annotations)
	errs = append(errs, Validate(spec.Child("taints"), machine, object.Spec.Taints, old.Spec.Taints)...)
	errs = append(errs, object.Spec.Template.validate(spec.Child("template"), Role(controlPlane), old.Spec.Template)...)
	errs = append(errs, object.Spec.MachineTemplate.validate(spec.Child("machineTemplate"), ControlPlane, old.Spec.MachineTemplate)...)
	errs = append(errs, object.Spec.Topology.validate(spec.Child("topology"), old.Spec.Topology)...)
	return few(append(errs, object.Spec.validate(spec, old.Spec.sections)...))
}

func (t template) validate(path *field.Path, role Role, old template) field.ErrorList {
	errs := ValidateAnnotations(path.Child("metadata", "annotations"), role, t.Metadata.Annotations, old.Metadata.Annotations)
	errs = append(errs, Validate(path.Child("taints"), role, t.Taints, old.Taints)...)
	errs = append(errs, Validate(path.Child("spec", "taints"), role, t.Spec.Taints, old.Spec.Taints)...)
	if t.Spec.MachineTemplate == nil {
		return errs
	}
	before := old.Spec.MachineTemplate
	if before == nil {
		before = &template{}
	}
	return append(errs, t.Spec.MachineTemplate.validate(path.Child("spec", "machineTemplate"), ControlPlane, *before)...)
}

func (s sections) validate(path *field.Path, old sections) field.ErrorList {
	errs := s.ControlPlane.validate(path.Child("controlPlane"), ControlPlane, old.ControlPlane)
	workers := path.Child("workers")
	errs = append(errs, validateAll(workers.Child("machineDeployments"), s.Workers.MachineDeployments, old.Workers.MachineDeployments)...)
	return append(errs, validateAll(workers.Child("machinePools"), s.Workers.MachinePools, old.Workers.MachinePools)...)
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

// id tells a section from its siblings: by name in a topology, where its class may change, and by class in a class.
func (s section) id() string {
	return cmp.Or(s.Name, s.Class)
}

func (s section) validate(path *field.Path, role Role, old section) field.ErrorList {
	errs := ValidateAnnotations(path.Child("metadata", "annotations"), role, s.Metadata.Annotations, old.Metadata.Annotations)
	errs = append(errs, ValidateAnnotations(path.Child("template", "metadata", "annotations"), role,
		s.Template.Metadata.Annotations, old.Template.Metadata.Annotations)...)
	return append(errs, Validate(path.Child("taints"), role, s.Taints, old.Taints)...)
}
