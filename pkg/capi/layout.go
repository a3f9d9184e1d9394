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

// MetadataLayout is that of an object of which only metadata inherits: an InfraMachine or a BootstrapConfig.
func MetadataLayout(version string) Layout {
	return Layout{Version: version, Top: Paths{Metadata: []string{"metadata"}}}
}

// MachineLayout is that of a Machine.
func MachineLayout(version string) Layout {
	return Layout{Version: version, Top: MachinePaths(version, []string{"metadata"}, []string{"spec"}, nil)}
}

// WorkersLayout is that of a MachineDeployment, MachineSet or MachinePool.
func WorkersLayout(version string) Layout {
	template := []string{"spec", "template"}
	return Layout{
		Version:  version,
		Top:      Paths{Metadata: []string{"metadata"}},
		Template: MachinePaths(version, below(template, "metadata"), below(template, "spec"), []string{"spec"}),
	}
}

// Only returns the layout of a Machine without what the schema of its kind does not have: releases of Cluster API before v1.12
// have no taints, those before v1.9 no readiness gates.
func (l Layout) Only(has func(path ...string) bool) Layout {
	l.Top.Taints = first(has, l.Top.Taints)
	for f, path := range l.Top.Fields {
		l.Top.Fields[f] = first(has, path)
	}
	return l
}

// first returns the first of the paths that there is.
func first(has func(path ...string) bool, paths ...[]string) []string {
	for _, path := range paths {
		if len(path) > 0 && has(path...) {
			return path
		}
	}
	return nil
}

// ControlPlaneLayout is that of a provider's control plane. Cluster API's contract has two forms of it: in v1beta2 a
// Machine's fields are in spec.machineTemplate.spec, in v1beta1 beside spec.machineTemplate.metadata; all are optional.
// has reports whether the schema of the object's kind has a field.
func ControlPlaneLayout(version string, has func(path ...string) bool) Layout {
	template := []string{"spec", "machineTemplate"}
	newer := MachinePaths("v1beta2", nil, below(template, "spec"), nil)
	older := MachinePaths("v1beta1", nil, template, nil)
	timeouts := older // or newer: the two are not mixed, since their units differ
	for f, row := range table() {
		if row.v1beta1 != "" && first(has, newer.Fields[f]) != nil {
			timeouts = newer
		}
	}
	at := Paths{
		Metadata: first(has, below(template, "metadata")), Taints: first(has, newer.Taints, older.Taints),
		Durations: timeouts.Durations, ListsMove: true,
	}
	for f, row := range table() {
		switch {
		case row.ofWorkers != nil:
		case row.v1beta1 != "":
			at.Fields[f] = first(has, timeouts.Fields[f])
		default:
			at.Fields[f] = first(has, newer.Fields[f], older.Fields[f])
		}
	}
	return Layout{Version: version, Top: Paths{Metadata: []string{"metadata"}}, Template: at}
}

// MachinePaths returns the paths of what Machines inherit: metadata, and fields in spec. around is where v1beta1 has the fields of
// workers: the spec around a template, or the section of a topology itself. A Machine has none.
func MachinePaths(version string, metadata, spec, around []string) Paths {
	paths := Paths{Metadata: metadata, Taints: below(spec, "taints"), Durations: version == "v1beta1"}
	for f, row := range table() {
		in, path := spec, row.path
		if version == "v1beta1" {
			path = cmp.Or(row.v1beta1, path)
			if row.ofWorkers != nil {
				in = around
			}
		}
		if in == nil {
			continue
		}
		paths.Fields[f] = make([]string, len(in), len(in)+2) // one allocation for each: admission asks for these paths
		copy(paths.Fields[f], in)
		for name := range strings.SplitSeq(path, ".") {
			paths.Fields[f] = append(paths.Fields[f], name)
		}
	}
	return paths
}

func below(path []string, names ...string) []string {
	return slices.Concat(path, names)
}
