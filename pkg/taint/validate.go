// SPDX-License-Identifier: Apache-2.0

package taint

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Role is the role of the Nodes that a taint is for: only Nodes of a control plane may have the control plane's own taint.
type Role bool

// The roles of Machines.
const (
	Worker       Role = false
	ControlPlane Role = true
)

// MostProblems limits the problems that are reported for a list: a forged review could fill the memory with them.
const MostProblems = 100

// Validate returns an error for each taint that may not be declared at path, and stops after MostProblems of them. It does not check taints
// that old has unchanged, so that an object that was stored before Heirloom was installed can still be updated.
func Validate(path *field.Path, role Role, taints, old []clusterv1.MachineTaint) field.ErrorList {
	var errs field.ErrorList
	before, seen, unchanged := map[ID]int{}, map[ID]int{}, sets.New(old...)
	for _, t := range old {
		before[MachineID(t)]++
	}
	for i, t := range taints {
		at, id := path.Index(i), MachineID(t)
		if !unchanged.Has(t) {
			errs = append(errs, check(at, role, t)...)
		}
		if seen[id]++; seen[id] > max(1, before[id]) {
			errs = append(errs, field.Duplicate(at, id.String()))
		}
		if len(errs) >= MostProblems {
			break
		}
	}
	return errs
}

// ValidateAnnotations is Validate for the taints that annotations declare. Its errors name the annotation's path.
func ValidateAnnotations(path *field.Path, role Role, annotations, old map[string]string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range Annotations {
		value, at := annotations[name], path.Key(name)
		if len(value) > longestDeclaration {
			if value != old[name] {
				errs = append(errs, field.TooLong(at, "", longestDeclaration))
			}
			continue
		}
		known, wrong := sets.New(Split(old[name])...), 0
		for _, entry := range Split(value) {
			if _, err := parserOf(name)(entry); err != nil && !known.Has(entry) && wrong < MostProblems {
				errs = append(errs, field.Invalid(at, entry, err.Error()))
				wrong++
			}
		}
		taints, _ := declared(annotations, name)
		before, _ := declared(old, name)
		for _, e := range Validate(at, role, taints, before) {
			errs = append(errs, &field.Error{Type: e.Type, Field: at.String(), BadValue: e.BadValue, Detail: e.Detail})
		}
	}
	return errs
}

// Problem says why an object may not have a taint, or "", and whether the taint's key is reserved.
func Problem(role Role, t clusterv1.MachineTaint) (problem string, isReserved bool) {
	if errs := check(nil, role, t); len(errs) > 0 {
		return errs[0].Detail, reserved(role, t.Key) != ""
	}
	return "", false
}

func check(at *field.Path, role Role, t clusterv1.MachineTaint) field.ErrorList {
	var errs field.ErrorList
	if reason := reserved(role, t.Key); reason != "" {
		errs = append(errs, field.Invalid(at.Child("key"), t.Key, reason))
	}
	for _, msg := range validation.IsQualifiedName(t.Key) {
		errs = append(errs, field.Invalid(at.Child("key"), t.Key, msg))
	}
	for _, msg := range validation.IsValidLabelValue(t.Value) {
		errs = append(errs, field.Invalid(at.Child("value"), t.Value, msg))
	}
	if !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, effects))
	}
	if !Always(t) && !Initialize(t) {
		errs = append(errs, field.NotSupported(at.Child("propagation"), t.Propagation, propagations))
	}
	return errs
}

//nolint:gochecknoglobals // nothing changes them
var (
	effects      = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	propagations = []clusterv1.MachineTaintPropagation{clusterv1.MachineTaintPropagationAlways, clusterv1.MachineTaintPropagationOnInitialization}
)

// reserved says why the key of a taint is reserved, or "" if it is not.
func reserved(role Role, key string) string {
	switch {
	case key == clusterv1.NodeUninitializedTaint.Key, key == clusterv1.NodeOutdatedRevisionTaint.Key:
		return "the key is reserved: Cluster API sets and removes this taint itself"
	case strings.HasPrefix(key, "node.kubernetes.io/") && key != corev1.TaintNodeOutOfService:
		return "the prefix node.kubernetes.io/ is reserved for the kubelet and the node lifecycle controller; only " +
			corev1.TaintNodeOutOfService + " may be set"
	case strings.HasPrefix(key, "node.cloudprovider.kubernetes.io/"):
		return "the prefix node.cloudprovider.kubernetes.io/ is reserved for the kubelet and the cloud controller manager"
	case key == "node-role.kubernetes.io/master":
		return "the key is deprecated since Kubernetes 1.24: use node-role.kubernetes.io/control-plane"
	case key == "node-role.kubernetes.io/control-plane" && role == Worker:
		return "the key is reserved for control plane Machines"
	}
	return ""
}

// Carrier is an object of Cluster API that can declare taints, of any kind. It has only its Cluster and the fields that can hold taints or
// taint annotations.
type Carrier struct {
	Metadata metadata    `json:"metadata"`
	Spec     carrierSpec `json:"spec"`
}

type metadata struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	// OwnerReferences are only read from the metadata of the object itself.
	OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
}

type carrierSpec struct {
	ClusterName     string                   `json:"clusterName"`     // of a kind of Cluster API
	Taints          []clusterv1.MachineTaint `json:"taints"`          // of a Machine
	Template        template                 `json:"template"`        // of a MachineSet, MachineDeployment, MachinePool or control plane's template
	MachineTemplate place                    `json:"machineTemplate"` // of a control plane
	Topology        sections                 `json:"topology"`        // of a Cluster
	sections        `json:",inline"`         // of a ClusterClass
}

// sections are the sections of a ClusterClass or of a Cluster's topology.
type sections struct {
	ControlPlane place `json:"controlPlane"`
	Workers      struct {
		MachineDeployments []place `json:"machineDeployments"`
		MachinePools       []place `json:"machinePools"`
	} `json:"workers"`
}

// template is a template of Machines, or of a control plane: a ClusterClass refers to templates of control planes.
type template struct {
	Metadata metadata `json:"metadata"`
	Spec     struct {
		Taints          []clusterv1.MachineTaint `json:"taints"`
		MachineTemplate place                    `json:"machineTemplate"`
	} `json:"spec"`
}

// place is a part of an object that declares taints for Machines: a template, or a section of a ClusterClass or a topology.
type place struct {
	Name     string                   `json:"name"`  // in a topology
	Class    string                   `json:"class"` // in a ClusterClass
	Metadata metadata                 `json:"metadata"`
	Taints   []clusterv1.MachineTaint `json:"taints"` // of a section, and of a control plane of the v1beta1 contract
	Spec     struct {
		Taints []clusterv1.MachineTaint `json:"taints"`
	} `json:"spec"`
}

// id identifies a section: in a topology by its name, because its class may change; in a ClusterClass by its class.
func (p place) id() string { return cmp.Or(p.Name, p.Class) }

// ValidateCarrier returns an error, with its field path, for each taint that the object may not declare, typed or by annotation; at most
// MostProblems errors. Of an update, it checks only taints that differ from old; old is nil for a create. controlPlane says that the object
// is a control plane of any provider.
func ValidateCarrier(object, old *Carrier, controlPlane bool) field.ErrorList {
	old = cmp.Or(old, &Carrier{})
	spec := field.NewPath("spec")
	_, labeled := object.Metadata.Labels[clusterv1.MachineControlPlaneLabel] // of a Machine
	machine := Role(controlPlane || labeled)
	errs := slices.Concat(
		object.Metadata.validate(field.NewPath("metadata"), machine, old.Metadata),
		Validate(spec.Child("taints"), machine, object.Spec.Taints, old.Spec.Taints),
		object.Spec.Template.validate(spec.Child("template"), Role(controlPlane), old.Spec.Template),
		object.Spec.MachineTemplate.validate(spec.Child("machineTemplate"), ControlPlane, old.Spec.MachineTemplate),
		object.Spec.Topology.validate(spec.Child("topology"), old.Spec.Topology),
		object.Spec.validate(spec, old.Spec.sections),
	)
	return errs[:min(len(errs), MostProblems)]
}

// OwnDomain is the domain of Heirloom's own labels on Nodes. Cluster API would copy a Machine's labels of this domain to its Node.
const OwnDomain = "heirloom.node-restriction.kubernetes.io"

// validate returns an error for each taint that the annotations may not declare, and for each added label in Heirloom's domain.
func (m metadata) validate(path *field.Path, role Role, old metadata) field.ErrorList {
	errs := ValidateAnnotations(path.Child("annotations"), role, m.Annotations, old.Annotations)
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		if _, had := old.Labels[key]; !had && strings.HasPrefix(key, OwnDomain+"/") && len(errs) < MostProblems {
			errs = append(errs, field.Invalid(path.Child("labels").Key(key), m.Labels[key], "the domain "+OwnDomain+" is reserved for Heirloom's own labels on Nodes"))
		}
	}
	return errs
}

// Place is a part of an object that has labels and annotations.
type Place struct {
	// Path is the path of the metadata. Name is the same, with the names of sections in place of their indexes.
	Path, Name string
	// Kind is the kind of the object that has this metadata, or gets it from a template of its kind.
	Kind string
	// ForMachines says that Machines inherit from here: a template of Machines, or a section of a topology or a ClusterClass.
	ForMachines         bool
	Labels, Annotations map[string]string
}

// Places returns the places of an object of this kind: first its own metadata, then every place that others inherit from.
func (c *Carrier) Places(kind string) []Place {
	of, isTemplate := strings.CutSuffix(kind, "Template")
	places := []Place{
		c.Metadata.place("metadata", kind, false),
		c.Spec.Template.Metadata.place("spec.template.metadata", of, !isTemplate),
		c.Spec.MachineTemplate.Metadata.place("spec.machineTemplate.metadata", kind, true),
		c.Spec.Template.Spec.MachineTemplate.Metadata.place("spec.template.spec.machineTemplate.metadata", kind, true),
	}
	for path, s := range map[string]sections{"spec.topology.": c.Spec.Topology, "spec.": c.Spec.sections} {
		places = append(places, s.ControlPlane.Metadata.place(path+"controlPlane.metadata", kind, true))
		for pools, all := range map[string][]place{"machineDeployments": s.Workers.MachineDeployments, "machinePools": s.Workers.MachinePools} {
			for i, section := range all {
				at := section.Metadata.place(fmt.Sprintf("%sworkers.%s[%d].metadata", path, pools, i), kind, true)
				at.Name = fmt.Sprintf("%sworkers.%s[%s].metadata", path, pools, section.id())
				places = append(places, at)
			}
		}
	}
	slices.SortStableFunc(places[1:], func(a, b Place) int { return cmp.Compare(a.Path, b.Path) })
	return places
}

func (m metadata) place(path, kind string, forMachines bool) Place {
	return Place{Path: path, Name: path, Kind: kind, ForMachines: forMachines, Labels: m.Labels, Annotations: m.Annotations}
}

// IsManaged reports whether a controller of Cluster API manages the object, and copies labels and annotations to it.
func (c *Carrier) IsManaged() bool {
	_, ofTopology := c.Metadata.Labels[clusterv1.ClusterTopologyOwnedLabel]
	return ofTopology || slices.ContainsFunc(c.Metadata.OwnerReferences, func(owner metav1.OwnerReference) bool { return ptr.Deref(owner.Controller, false) })
}

func (s sections) validate(path *field.Path, old sections) field.ErrorList {
	workers := path.Child("workers")
	return slices.Concat(
		s.ControlPlane.validate(path.Child("controlPlane"), ControlPlane, old.ControlPlane),
		validateAll(workers.Child("machineDeployments"), s.Workers.MachineDeployments, old.Workers.MachineDeployments),
		validateAll(workers.Child("machinePools"), s.Workers.MachinePools, old.Workers.MachinePools),
	)
}

func validateAll(path *field.Path, all, old []place) (errs field.ErrorList) {
	before := map[string]place{}
	for _, p := range old {
		before[p.id()] = p
	}
	for i := 0; i < len(all) && len(errs) < MostProblems; i++ {
		errs = append(errs, all[i].validate(path.Index(i), Worker, before[all[i].id()])...)
	}
	return errs
}

func (t template) validate(path *field.Path, role Role, old template) field.ErrorList {
	return slices.Concat(
		t.Metadata.validate(path.Child("metadata"), role, old.Metadata),
		Validate(path.Child("spec", "taints"), role, t.Spec.Taints, old.Spec.Taints),
		t.Spec.MachineTemplate.validate(path.Child("spec", "machineTemplate"), ControlPlane, old.Spec.MachineTemplate),
	)
}

func (p place) validate(path *field.Path, role Role, old place) field.ErrorList {
	return slices.Concat(
		p.Metadata.validate(path.Child("metadata"), role, old.Metadata),
		Validate(path.Child("taints"), role, p.Taints, old.Taints),
		Validate(path.Child("spec", "taints"), role, p.Spec.Taints, old.Spec.Taints),
	)
}
