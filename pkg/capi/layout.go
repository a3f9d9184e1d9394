// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Layout says where an object has what it can inherit. It differs between kinds, between versions of the API and, for
// control planes, between providers.
//
// +kubebuilder:object:generate=false
type Layout struct {
	// Version is the version of the object's API. Where our managed fields are of another one, paths that differ between
	// versions cannot be compared.
	Version string
	// Top is the object itself; Template is what it declares for Machines, if it does.
	Top, Template Paths
}

// Paths lead to the parts that inherit, as field names. What the object does not have is nil.
//
// +kubebuilder:object:generate=false
type Paths struct {
	Metadata, Taints []string
	Fields           [fields][]string
	// Durations says that timeouts are durations such as "1m30s", as in v1beta1, and not seconds.
	Durations bool
	// ListsMove says that taints and readiness gates are elsewhere in another version of the API.
	ListsMove bool
}

// Value returns so many seconds as a field has them.
func (p Paths) Value(f Field, seconds int32) any {
	if p.Durations && table()[f].v1beta1 != "" {
		return (time.Duration(seconds) * time.Second).String()
	}
	return int64(seconds)
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

// Only returns the layout of a Machine without what the schema of its kind does not have: releases of Cluster API before v1.12
// have no taints, those before v1.9 no readiness gates.
func (l Layout) Only(has func(path ...string) bool) Layout {
	l.Top.Taints = only(l.Top.Taints, has)
	for f, path := range l.Top.Fields {
		l.Top.Fields[f] = only(path, has)
	}
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
	at := Paths{Metadata: first(below(template, "metadata")), Taints: first(newer.Taints, older.Taints), ListsMove: true, Durations: true}
	for f, row := range table() {
		if row.v1beta1 != "" && first(newer.Fields[f]) != nil {
			at.Durations = false // units differ, so the two forms are not mixed
		}
	}
	for f, row := range table() {
		switch {
		case row.ofWorkers != nil:
		case row.v1beta1 == "":
			at.Fields[f] = first(newer.Fields[f], older.Fields[f])
		case at.Durations:
			at.Fields[f] = first(older.Fields[f])
		default:
			at.Fields[f] = first(newer.Fields[f])
		}
	}
	return Layout{Version: version, Top: Paths{Metadata: []string{"metadata"}}, Template: at}
}

// machinePaths returns the paths of a Machine's metadata and spec. around is the spec of the object around a template; a
// Machine of v1beta1 has none of the fields that are there.
func machinePaths(version string, metadata, spec, around []string) Paths {
	paths := Paths{Metadata: metadata, Taints: below(spec, "taints"), Durations: version == "v1beta1"}
	for f, row := range table() {
		in, path := spec, row.path
		if version == "v1beta1" {
			path = cmp.Or(row.v1beta1, path)
			if row.ofWorkers != nil {
				in = around
			}
		}
		if in != nil {
			paths.Fields[f] = below(in, strings.Split(path, ".")...)
		}
	}
	return paths
}

func below(path []string, names ...string) []string {
	return slices.Concat(path, names)
}
