// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"slices"
	"strings"
)

// Layout says where an object has what it can inherit. It differs between kinds, between versions of the API and, for
// control planes, between providers.
type Layout struct {
	// Version is the version of the object's API. Where our managed fields are of another one, paths that differ between
	// versions cannot be compared.
	Version string
	// Top is the object itself; Template is what it declares for Machines, if it does.
	Top, Template Paths
}

// Paths lead to the parts that inherit, as field names. What the object does not have is nil.
type Paths struct {
	Metadata, Taints, ReadinessGates                               []string
	NodeDrainTimeout, NodeVolumeDetachTimeout, NodeDeletionTimeout []string
	MinReadySeconds                                                []string
	// Durations says that timeouts are durations such as "1m30s", as in v1beta1, and not seconds.
	Durations bool
	// ListsMove says that taints and readiness gates are elsewhere in another version of the API.
	ListsMove bool
}

// Names of in-place fields, as v1beta1 has them; v1beta2 says the unit behind those of timeouts.
const (
	NodeDrainTimeout        = "nodeDrainTimeout"
	NodeVolumeDetachTimeout = "nodeVolumeDetachTimeout"
	NodeDeletionTimeout     = "nodeDeletionTimeout"
	MinReadySeconds         = "minReadySeconds"
	ReadinessGates          = "readinessGates"
)

// FieldOf returns which in-place field has this name in any version of the API. What is none of them is the type of a
// readiness gate's condition.
func FieldOf(name string) string {
	if name == MinReadySeconds {
		return MinReadySeconds
	}
	switch short := strings.TrimSuffix(name, "Seconds"); short {
	case NodeDrainTimeout, NodeVolumeDetachTimeout, NodeDeletionTimeout:
		return short
	}
	return ReadinessGates
}

// Field returns the path of the in-place field that has this name in any version of the API, or of the readiness gates.
func (p Paths) Field(name string) []string {
	switch FieldOf(name) {
	case NodeDrainTimeout:
		return p.NodeDrainTimeout
	case NodeVolumeDetachTimeout:
		return p.NodeVolumeDetachTimeout
	case NodeDeletionTimeout:
		return p.NodeDeletionTimeout
	case MinReadySeconds:
		return p.MinReadySeconds
	}
	return p.ReadinessGates
}

// SectionPaths are those of a section of a ClusterClass or of a topology, which has the metadata where it says and the rest
// in itself.
func SectionPaths(version string, section, metadata []string) Paths {
	return machinePaths(version, metadata, section, section)
}

// MetadataLayout is that of an object of which only metadata inherits: an InfraMachine or a BootstrapConfig.
func MetadataLayout(version string) Layout {
	return Layout{Version: version, Top: Paths{Metadata: []string{"metadata"}}}
}

// MachineLayout is that of a Machine.
func MachineLayout(version string) Layout {
	return Layout{Version: version, Top: machinePaths(version, []string{"metadata"}, []string{"spec"}, nil)}
}

// WorkersLayout is that of a MachineDeployment, MachineSet or MachinePool.
func WorkersLayout(version string) Layout {
	template := []string{"spec", "template"}
	return Layout{
		Version:  version,
		Top:      Paths{Metadata: []string{"metadata"}},
		Template: machinePaths(version, below(template, "metadata"), below(template, "spec"), []string{"spec"}),
	}
}

// Only returns the layout without what the schema of the object's kind does not have: releases of Cluster API before v1.12
// have no taints, those before v1.9 no readiness gates.
func (l Layout) Only(has func(path ...string) bool) Layout {
	l.Top.Taints, l.Top.ReadinessGates = only(l.Top.Taints, has), only(l.Top.ReadinessGates, has)
	l.Template.Taints, l.Template.ReadinessGates = only(l.Template.Taints, has), only(l.Template.ReadinessGates, has)
	return l
}

func only(path []string, has func(path ...string) bool) []string {
	if path == nil || !has(path...) {
		return nil
	}
	return path
}

// ControlPlaneLayout is that of a provider's control plane. Cluster API's contract has two forms of it: in v1beta2 a
// Machine's fields are in spec.machineTemplate.spec, in v1beta1 beside spec.machineTemplate.metadata; all are optional.
// has reports whether the schema of the object's kind has a field.
func ControlPlaneLayout(version string, has func(path ...string) bool) Layout {
	template := []string{"spec", "machineTemplate"}
	newer := machinePaths("v1beta2", nil, below(template, "spec"), nil)
	older := machinePaths("v1beta1", nil, template, nil)
	first := func(paths ...[]string) []string {
		for _, path := range paths {
			if len(path) > 0 && has(path...) {
				return path
			}
		}
		return nil
	}
	layout := Layout{Version: version, Top: Paths{Metadata: []string{"metadata"}}, Template: Paths{
		Metadata:       first(below(template, "metadata")),
		Taints:         first(newer.Taints, older.Taints),
		ReadinessGates: first(newer.ReadinessGates, older.ReadinessGates),
		ListsMove:      true,
	}}
	layout.Template.NodeDrainTimeout = first(newer.NodeDrainTimeout)
	layout.Template.NodeVolumeDetachTimeout = first(newer.NodeVolumeDetachTimeout)
	layout.Template.NodeDeletionTimeout = first(newer.NodeDeletionTimeout)
	if layout.Template.NodeDrainTimeout == nil && layout.Template.NodeVolumeDetachTimeout == nil && layout.Template.NodeDeletionTimeout == nil {
		layout.Template.Durations = true
		layout.Template.NodeDrainTimeout = first(older.NodeDrainTimeout)
		layout.Template.NodeVolumeDetachTimeout = first(older.NodeVolumeDetachTimeout)
		layout.Template.NodeDeletionTimeout = first(older.NodeDeletionTimeout)
	}
	return layout
}

// machinePaths returns the paths of a Machine's metadata and spec. around is the spec of the object around a template,
// where v1beta1 has minReadySeconds; a Machine of v1beta1 has none.
func machinePaths(version string, metadata, spec, around []string) Paths {
	paths := Paths{Metadata: metadata, Taints: below(spec, "taints"), ReadinessGates: below(spec, "readinessGates")}
	if version != "v1beta1" {
		paths.NodeDrainTimeout = below(spec, "deletion", "nodeDrainTimeoutSeconds")
		paths.NodeVolumeDetachTimeout = below(spec, "deletion", "nodeVolumeDetachTimeoutSeconds")
		paths.NodeDeletionTimeout = below(spec, "deletion", "nodeDeletionTimeoutSeconds")
		paths.MinReadySeconds = below(spec, "minReadySeconds")
		return paths
	}
	paths.Durations = true
	paths.NodeDrainTimeout = below(spec, "nodeDrainTimeout")
	paths.NodeVolumeDetachTimeout = below(spec, "nodeVolumeDetachTimeout")
	paths.NodeDeletionTimeout = below(spec, "nodeDeletionTimeout")
	if around != nil {
		paths.MinReadySeconds = below(around, "minReadySeconds")
	}
	return paths
}

func below(path []string, names ...string) []string {
	return slices.Concat(path, names)
}
