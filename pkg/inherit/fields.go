// SPDX-License-Identifier: Apache-2.0

package inherit

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Field is an in-place field: a field of a Machine's spec that Cluster API changes without a rollout (docs/design.md §1).
type Field int

// The in-place fields. Numbers come first. A new number needs a constant and a row, and nothing else.
const (
	NodeDrainTimeout Field = iota
	NodeVolumeDetachTimeout
	NodeDeletionTimeout
	MinReadySeconds
	ReadinessGates
	fields
)

// fieldTable has a row for each field. All code for fields loops over the rows.
var fieldTable = [fields]struct { //nolint:gochecknoglobals // a table that nothing changes
	path      string // below a Machine's spec
	seconds   func(*clusterv1.MachineSpec) *int32
	duration  string // the field's name in a control plane of the v1beta1 contract: a duration such as "1m30s", next to the metadata
	key       string // identifies the items of a list
	ofWorkers bool   // Machines of control planes do not inherit the field
}{
	NodeDrainTimeout: {
		path: "deletion.nodeDrainTimeoutSeconds", duration: "nodeDrainTimeout",
		seconds: func(s *clusterv1.MachineSpec) *int32 { return s.Deletion.NodeDrainTimeoutSeconds },
	},
	NodeVolumeDetachTimeout: {
		path: "deletion.nodeVolumeDetachTimeoutSeconds", duration: "nodeVolumeDetachTimeout",
		seconds: func(s *clusterv1.MachineSpec) *int32 { return s.Deletion.NodeVolumeDetachTimeoutSeconds },
	},
	NodeDeletionTimeout: {
		path: "deletion.nodeDeletionTimeoutSeconds", duration: "nodeDeletionTimeout",
		seconds: func(s *clusterv1.MachineSpec) *int32 { return s.Deletion.NodeDeletionTimeoutSeconds },
	},
	MinReadySeconds: {path: "minReadySeconds", ofWorkers: true, seconds: func(s *clusterv1.MachineSpec) *int32 { return s.MinReadySeconds }},
	ReadinessGates:  {path: "readinessGates", key: "conditionType"},
}

// Seconds are the values of the fields that are numbers, in seconds. A nil field is not declared.
type Seconds [ReadinessGates]*int32

// Fields are the in-place fields that an object declares or has. A nil list is not declared.
type Fields struct {
	Seconds        Seconds
	ReadinessGates []clusterv1.MachineReadinessGate
}

// fieldsOf returns the in-place fields in the spec of a Machine or of a Machine template.
func fieldsOf(spec *clusterv1.MachineSpec) Fields {
	fields := Fields{ReadinessGates: spec.ReadinessGates}
	for f := range fields.Seconds {
		fields.Seconds[f] = fieldTable[f].seconds(spec)
	}
	return fields
}

// or returns the fields, and takes fields that are not declared from other.
func (f Fields) or(other Fields) Fields {
	for i := range f.Seconds {
		f.Seconds[i] = cmp.Or(f.Seconds[i], other.Seconds[i])
	}
	f.ReadinessGates = instead(f.ReadinessGates, other.ReadinessGates)
	return f
}

// FieldOf returns the field with this name, in either version of the contract. Any other name is the condition type of a readiness gate.
func FieldOf(name string) Field {
	for f, row := range fieldTable {
		if name == Field(f).Name() || name == row.duration && name != "" {
			return Field(f)
		}
	}
	return ReadinessGates
}

// Name returns the name of the field without its path.
func (f Field) Name() string {
	path := fieldTable[f].path
	return path[strings.LastIndex(path, ".")+1:]
}

// ListKey returns the key that identifies the items of the field, or "" if the field is no list.
func (f Field) ListKey() string { return fieldTable[f].key }

// value returns the value of a field, or the polarity of the readiness gate with this condition type, and whether it is declared.
func (f Fields) value(name string) (string, bool) {
	if field := FieldOf(name); field != ReadinessGates {
		if seconds := f.Seconds[field]; seconds != nil {
			return strconv.Itoa(int(*seconds)), true
		}
		return "", false
	}
	for _, gate := range f.ReadinessGates {
		if gate.ConditionType == name {
			return string(gate.Polarity), true
		}
	}
	return "", false
}

// The sections of a ClusterClass and of a topology have six types, and the templates of control planes two versions. The functions below
// convert their fields to the fields of a Machine.

func sectionOfControlPlane(t clusterv1.ControlPlaneTopology, class *clusterv1.ClusterClass) *Section {
	c := class.Spec.ControlPlane
	section := &Section{
		Class:    partOf("", c.Metadata, &c),
		Topology: partOf("", t.Metadata, &t),
	}
	section.Class.OfMachines, section.Patch = HasMachines(class), PatchOfControlPlane(class, TemplateMetadata)
	return section
}

func sectionOfMachineDeployment(name string, topology *clusterv1.WorkersTopology, class *clusterv1.WorkersClass) *Section {
	inTopology, inClass := topology.MachineDeployments, class.MachineDeployments
	i := slices.IndexFunc(inTopology, func(t clusterv1.MachineDeploymentTopology) bool { return t.Name == name && name != "" })
	j := slices.IndexFunc(inClass, func(c clusterv1.MachineDeploymentClass) bool { return i >= 0 && c.Class == inTopology[i].Class })
	if j < 0 {
		return nil
	}
	t, c := &inTopology[i], &inClass[j]
	return &Section{
		list:     machineDeployments,
		Class:    partOf(c.Class, c.Metadata, c),
		Topology: partOf(name, t.Metadata, t),
	}
}

func sectionOfMachinePool(name string, topology *clusterv1.WorkersTopology, class *clusterv1.WorkersClass) *Section {
	inTopology, inClass := topology.MachinePools, class.MachinePools
	i := slices.IndexFunc(inTopology, func(t clusterv1.MachinePoolTopology) bool { return t.Name == name && name != "" })
	j := slices.IndexFunc(inClass, func(c clusterv1.MachinePoolClass) bool { return i >= 0 && c.Class == inTopology[i].Class })
	if j < 0 {
		return nil
	}
	t, c := &inTopology[i], &inClass[j]
	return &Section{
		list:     machinePools,
		Class:    partOf(c.Class, c.Metadata, c),
		Topology: partOf(name, t.Metadata, t),
	}
}

func partOf(name string, metadata clusterv1.ObjectMeta, section any) Part {
	template := &clusterv1.MachineTemplateSpec{ObjectMeta: metadata}
	copyFields(reflect.ValueOf(&template.Spec).Elem(), reflect.ValueOf(section).Elem())
	return Part{Name: name, Content: contentOf(template)}
}

// copyFields copies the fields that two structs have in common, by name and type.
func copyFields(into, from reflect.Value) {
	for i := range into.NumField() {
		at, has := into.Field(i), from.FieldByName(into.Type().Field(i).Name)
		switch {
		case !has.IsValid():
		case has.Type() == at.Type():
			at.Set(has)
		case has.Kind() == reflect.Struct && at.Kind() == reflect.Struct:
			copyFields(at, has)
		}
	}
}

// ControlPlaneMachineTemplate is the template of a control plane for its Machines, in both versions of the contract.
type ControlPlaneMachineTemplate struct {
	clusterv1.ObjectMeta `json:"metadata,omitempty"`

	// Spec has the fields in the v1beta2 contract.
	Spec ControlPlaneMachineSpec `json:"spec,omitempty"`

	// The v1beta1 contract has the fields next to the metadata.
	Taints                  []clusterv1.MachineTaint         `json:"taints,omitempty"`
	ReadinessGates          []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`
	NodeDrainTimeout        *metav1.Duration                 `json:"nodeDrainTimeout,omitempty"`
	NodeVolumeDetachTimeout *metav1.Duration                 `json:"nodeVolumeDetachTimeout,omitempty"`
	NodeDeletionTimeout     *metav1.Duration                 `json:"nodeDeletionTimeout,omitempty"`
}

// ControlPlaneMachineSpec has the fields of a Machine's spec that control planes declare.
type ControlPlaneMachineSpec struct {
	Taints         []clusterv1.MachineTaint         `json:"taints,omitempty"`
	ReadinessGates []clusterv1.MachineReadinessGate `json:"readinessGates,omitempty"`
	Deletion       clusterv1.MachineDeletionSpec    `json:"deletion,omitempty"`
}

// TemplateOfControlPlane returns the template of rule 4, from the fields of either version of the contract.
func TemplateOfControlPlane(cp *ControlPlane) *Template {
	template := ptr.Deref(cp.Spec.MachineTemplate, ControlPlaneMachineTemplate{})
	newer := clusterv1.MachineSpec{ReadinessGates: template.Spec.ReadinessGates, Deletion: template.Spec.Deletion}
	older := clusterv1.MachineSpec{ReadinessGates: template.ReadinessGates, Deletion: clusterv1.MachineDeletionSpec{
		NodeDrainTimeoutSeconds:        wholeSeconds(template.NodeDrainTimeout),
		NodeVolumeDetachTimeoutSeconds: wholeSeconds(template.NodeVolumeDetachTimeout),
		NodeDeletionTimeoutSeconds:     wholeSeconds(template.NodeDeletionTimeout),
	}}
	return &Template{Content: Content{
		Labels:      template.Labels,
		Annotations: template.Annotations,
		Taints:      instead(template.Spec.Taints, template.Taints),
		Fields:      fieldsOf(&newer).or(fieldsOf(&older)),
	}}
}

// wholeSeconds converts a timeout to seconds, as Cluster API does.
func wholeSeconds(duration *metav1.Duration) *int32 {
	if duration == nil {
		return nil
	}
	return ptr.To(int32(duration.Duration / time.Second)) //nolint:gosec // Cluster API's own conversion has the same limit
}

// The API groups of Cluster API's providers. Operators may add groups for infrastructure and bootstrap.
const (
	ControlPlaneGroup   = "controlplane.cluster.x-k8s.io"
	InfrastructureGroup = "infrastructure.cluster.x-k8s.io"
	BootstrapGroup      = "bootstrap.cluster.x-k8s.io"
)

// Layout holds the paths of the content that an object can inherit. It differs between kinds and, for control planes, between providers.
type Layout struct {
	Version string // of the object's API: an entry of managed fields in another version may have other paths
	// Top has the paths at the object's top, Template the paths in its Machine template, if the object has a template.
	Top, Template Paths
}

// Paths are the paths of inheritable content, as field names. A path is nil if the object cannot have the content.
type Paths struct {
	Metadata, Taints []string
	Fields           [fields][]string
	// Durations says that timeouts are durations such as "1m30s", as in the v1beta1 contract, and not seconds.
	Durations bool
}

// The layouts of Cluster API's own kinds: of a Machine, and of a MachineDeployment, MachineSet or MachinePool.
//
//nolint:gochecknoglobals // nothing changes them
var (
	MachineLayout = Layout{Version: clusterv1.GroupVersion.Version, Top: pathsIn([]string{"metadata"}, []string{"spec"})}
	WorkersLayout = Layout{
		Version: clusterv1.GroupVersion.Version, Top: Paths{Metadata: []string{"metadata"}},
		Template: pathsIn([]string{"spec", "template", "metadata"}, []string{"spec", "template", "spec"}),
	}
)

// ControlPlaneLayout returns the layout of a provider's control plane. has reports whether its schema has a field. By Cluster API's
// contract, a Machine's fields are in spec.machineTemplate.spec in v1beta2, and next to spec.machineTemplate.metadata in v1beta1.
func ControlPlaneLayout(version string, has func(path ...string) bool) Layout {
	template := []string{"spec", "machineTemplate"}
	newer, older := pathsIn(below(template, "metadata"), below(template, "spec")), pathsIn(nil, template)
	at := Paths{Metadata: present(has, newer.Metadata), Taints: present(has, newer.Taints, older.Taints), Durations: true}
	for f, row := range fieldTable {
		if row.duration != "" && present(has, newer.Fields[f]) != nil {
			at.Durations = false // the versions are not mixed, because their units differ
		}
	}
	for f, row := range fieldTable {
		switch {
		case row.ofWorkers:
		case row.duration == "":
			at.Fields[f] = present(has, newer.Fields[f], older.Fields[f])
		case at.Durations:
			at.Fields[f] = present(has, below(template, row.duration))
		default:
			at.Fields[f] = present(has, newer.Fields[f])
		}
	}
	return Layout{Version: version, Top: Paths{Metadata: []string{"metadata"}}, Template: at}
}

// present returns the first path that the schema has, or nil.
func present(has func(path ...string) bool, paths ...[]string) []string {
	for _, path := range paths {
		if has(path...) {
			return path
		}
	}
	return nil
}

// pathsIn returns the paths of the content that Machines inherit: metadata, and taints and in-place fields in spec.
func pathsIn(metadata, spec []string) Paths {
	paths := Paths{Metadata: metadata, Taints: below(spec, "taints")}
	for f, row := range fieldTable {
		paths.Fields[f] = below(spec, strings.Split(row.path, ".")...)
	}
	return paths
}

func below(path []string, names ...string) []string { return slices.Concat(path, names) }

// Value returns a number of seconds in the form of the field: an integer, or a duration such as "1m30s".
func (p Paths) Value(f Field, seconds int32) any {
	if p.Durations && fieldTable[f].duration != "" {
		return (time.Duration(seconds) * time.Second).String()
	}
	return int64(seconds)
}
